/** One GET over a connection that is kept: what the provider and forwardAuth need and fetch hides (which connection it was). */
import http, { type OutgoingHttpHeaders } from 'node:http';
import https from 'node:https';

export type Answer = {
  status: number;
  /** Lower-case names, each with all its values. */
  headers: NodeJS.Dict<string[]>;
  body: Buffer;
  /** The connection had carried a request before. */
  reused: boolean;
};
export type GetOptions = {
  agents: Agents;
  headers: OutgoingHttpHeaders;
  signal: AbortSignal;
  timeoutMs: number;
  /** Bytes; more is a BodyTooLarge. */
  maxBody: number;
};
export type Agents = { http: http.Agent; https: https.Agent };

export const createAgents = (options: http.AgentOptions): Agents => ({ http: new http.Agent(options), https: new https.Agent(options) });
export const destroyAgents = (agents: Agents): void => {
  agents.http.destroy();
  agents.https.destroy();
};

export class BodyTooLarge extends Error {
  override name = 'BodyTooLarge';
}

/** The other side closed a kept connection at the moment it was used again: nothing was done with the request. */
export const isStaleConnection = (error: unknown, request: { reusedSocket: boolean }): boolean =>
  request.reusedSocket && error instanceof Error && 'code' in error && (error.code === 'ECONNRESET' || error.code === 'EPIPE');

export async function get(url: URL, options: GetOptions): Promise<Answer> {
  try {
    return await once(url, options, true);
  } catch (error) {
    if (!(error instanceof StaleConnection)) throw error;
    return once(url, options, false);
  }
}

class StaleConnection extends Error {
  override name = 'StaleConnection';
}

function once(url: URL, options: GetOptions, keep: boolean): Promise<Answer> {
  const signal = AbortSignal.any([options.signal, AbortSignal.timeout(options.timeoutMs)]);
  const secure = url.protocol === 'https:';
  const agent = keep ? (secure ? options.agents.https : options.agents.http) : false;
  return new Promise((resolve, reject) => {
    const request = (secure ? https : http).request(url, { method: 'GET', agent, headers: options.headers, signal });
    const fail = (error: Error): void =>
      reject(isStaleConnection(error, request) ? new StaleConnection(error.message, { cause: error }) : error);
    request.on('error', fail);
    request.on('response', (response) => {
      const chunks: Buffer[] = [];
      let size = 0;
      response.on('data', (chunk: Buffer) => {
        size += chunk.length;
        chunks.push(chunk);
        if (size <= options.maxBody) return;
        // Said before it is destroyed: a body that has come in whole by now would still `end` as if nothing were wrong.
        reject(new BodyTooLarge(`${url.origin} answered with more than ${options.maxBody} bytes`));
        response.destroy();
      });
      response.on('error', reject);
      response.on('end', () =>
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headersDistinct,
          body: Buffer.concat(chunks),
          reused: request.reusedSocket,
        }),
      );
    });
    request.end();
  });
}
