/**
 * Sends requests over node:http. It starts faster than fetch, never follows a redirect (which could
 * send a password to another host), and resolves `*.localhost` to this machine (RFC 6761 section
 * 6.3), which many systems do not.
 */
import { lookup as systemLookup } from 'node:dns';
import type { IncomingMessage } from 'node:http';
import type { LookupFunction } from 'node:net';
import { defined } from '@berth/kit/defined';
import { CliError, EXIT } from './problem.ts';

/** Maximum size of an answer in bytes. Streams have no limit. */
const MAX_ANSWER = 64 * 1024 * 1024;

export type HttpRequest = {
  method?: string;
  headers?: Record<string, string>;
  body?: string;
  signal?: AbortSignal;
};
export type HttpAnswer = {
  status: number;
  header(name: string): string | null;
  message: IncomingMessage;
};

export const lookup: LookupFunction = (host, options, callback) => {
  if (!/(^|\.)localhost\.?$/i.test(host)) return systemLookup(host, options, callback);
  if (options.all === true)
    return callback(null, [
      { address: '127.0.0.1', family: 4 },
      { address: '::1', family: 6 },
    ]);
  callback(null, '127.0.0.1', 4);
};

/**
 * Sends a request and returns its answer with an unread body. Throws CliError for a redirect, and
 * otherwise the error of node:http.
 */
export async function open(
  address: string,
  { method = 'GET', headers = {}, body, signal }: HttpRequest = {},
): Promise<HttpAnswer> {
  const url = new URL(address);
  // An `import` of node:http would take 30 ms longer, because it also loads undici for its
  // WebSocket export. TLS loads slowly too, so it is loaded only when needed.
  const { request: send } = process.getBuiltinModule(
    url.protocol === 'https:' ? 'node:https' : 'node:http',
  );
  return new Promise((resolve, reject) => {
    const length: Record<string, string> =
      body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) };
    const request = send(
      url,
      {
        method,
        headers: { ...headers, ...length },
        lookup,
        ...defined({ signal }),
      },
      (message) => {
        const status = message.statusCode ?? 0;
        const header = (name: string): string | null => {
          const value = message.headers[name];
          return Array.isArray(value) ? value.join(', ') : (value ?? null);
        };
        if (status >= 300 && status < 400 && status !== 304) {
          message.resume();
          reject(redirected(url, header('location')));
        } else resolve({ status, header, message });
      },
    );
    // If all addresses of a name fail, the AggregateError has no message: use its first error.
    request.on('error', (error) =>
      reject(error instanceof AggregateError && error.message === '' ? error.errors[0] : error),
    );
    request.end(body);
  });
}

function redirected(from: URL, location: string | null): CliError {
  const to =
    location !== null && URL.canParse(location, from.href)
      ? new URL(location, from.href).origin
      : null;
  const message =
    `${from.origin} redirects to ${to ?? 'an unknown address'}; the command line does not follow ` +
    'redirects';
  return new CliError(
    EXIT.unreachable,
    'redirected',
    message,
    to === null ? {} : { next: `berth login ${to}` },
  );
}

export async function readText(message: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of message as AsyncIterable<Buffer>) {
    bytes += part.length;
    if (bytes > MAX_ANSWER)
      throw new Error(`the answer is larger than ${MAX_ANSWER / 1024 / 1024} MiB`);
    parts.push(part);
  }
  // If the connection breaks inside a body, node:http ends the iteration without an error.
  if (!message.complete) throw new Error('the connection ended before the answer was complete');
  return Buffer.concat(parts).toString('utf8');
}

/** The parts of `fetch` that @berth/wire/client uses. */
export type Fetch = (address: string, init: HttpRequest) => Promise<HttpAnswer>;
export function asFetch(send: Fetch): typeof fetch {
  const adapter = async (address: string, init: HttpRequest) => {
    const { status, header, message } = await send(address, init);
    const text = await readText(message);
    return {
      status,
      ok: status >= 200 && status < 300,
      headers: { get: header },
      text: async () => text,
    };
  };
  return adapter as unknown as typeof fetch;
}
