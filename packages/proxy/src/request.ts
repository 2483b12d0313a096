/**
 * GET requests over kept-alive connections. Unlike fetch, the answer shows whether the connection
 * was reused.
 */
import http, { type OutgoingHttpHeaders } from 'node:http';
import https from 'node:https';

export type Answer = {
  status: number;
  /** Headers by lower-case name, with all values. */
  headers: NodeJS.Dict<string[]>;
  body: Buffer;
  /** True if an earlier request used the connection. */
  reused: boolean;
};
export type GetOptions = {
  agents: Agents;
  headers: OutgoingHttpHeaders;
  signal: AbortSignal;
  timeoutMs: number;
  /** Limit in bytes; a larger body throws BodyTooLarge. */
  maxBody: number;
};
export type Agents = { http: http.Agent; https: https.Agent };

export const createAgents = (options: http.AgentOptions): Agents => ({
  http: new http.Agent(options),
  https: new https.Agent(options),
});
export const destroyAgents = (agents: Agents): void => {
  agents.http.destroy();
  agents.https.destroy();
};

export class BodyTooLarge extends Error {
  override name = 'BodyTooLarge';
}

/**
 * True if the server closed a kept-alive connection just when it was reused. The server has not
 * processed the request.
 */
export const isStaleConnection = (error: unknown, request: { reusedSocket: boolean }): boolean =>
  request.reusedSocket &&
  error instanceof Error &&
  'code' in error &&
  (error.code === 'ECONNRESET' || error.code === 'EPIPE');

/** True if no connection was made, so the server has not received anything of the request. */
export const isUnreached = (error: unknown): boolean =>
  error instanceof Error &&
  'code' in error &&
  (error.code === 'ECONNREFUSED' ||
    error.code === 'EHOSTUNREACH' ||
    error.code === 'ENETUNREACH' ||
    error.code === 'ECONNECT_TIMEOUT');

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

function once(url: URL, options: GetOptions, keepAlive: boolean): Promise<Answer> {
  const signal = AbortSignal.any([options.signal, AbortSignal.timeout(options.timeoutMs)]);
  const secure = url.protocol === 'https:';
  const agent = keepAlive && options.agents[secure ? 'https' : 'http'];
  return new Promise((resolve, reject) => {
    const request = (secure ? https : http).request(url, {
      method: 'GET',
      agent,
      headers: options.headers,
      signal,
    });
    const fail = (error: Error): void =>
      reject(
        isStaleConnection(error, request)
          ? new StaleConnection(error.message, { cause: error })
          : error,
      );
    request.on('error', fail);
    request.on('response', (response) => {
      const chunks: Buffer[] = [];
      let size = 0;
      response.on('data', (chunk: Buffer) => {
        size += chunk.length;
        chunks.push(chunk);
        if (size <= options.maxBody) return;
        // Reject before destroying: a body that has already arrived completely would still emit
        // `end`.
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
