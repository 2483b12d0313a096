/**
 * Checks whether the reverse proxy serves a configuration. Requests the marker, whose path is the
 * hash of the configuration, at every address of PROXY_PROBE_URLS. `noop@internal` answers 418
 * without a backend; any other answer means "not yet".
 */
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { defined } from '@berth/kit/defined';
import { hostAndPort } from '@berth/kit/probe-request';
import { MARKER_HOST } from './traefik.ts';

const PROBE_TIMEOUT_MS = 2_000;

/**
 * Returns whether every address answers for this hash. Never throws: a missing answer means "not
 * yet".
 */
export async function markerAnswers(
  probeUrls: readonly string[],
  hash: string,
  signal?: AbortSignal,
): Promise<boolean> {
  const answers = await Promise.all(
    probeUrls.map((url) => answersMarker(url, `/${hash}`, {}, signal)),
  );
  return answers.every(Boolean);
}

/**
 * Returns whether this address answers 418 to a request for this path with these headers. Never
 * throws.
 */
export function answersMarker(
  base: string,
  path: string,
  headers: Record<string, string>,
  signal?: AbortSignal,
): Promise<boolean> {
  const url = new URL(base);
  const secure = url.protocol === 'https:';
  return new Promise((resolve) => {
    const request = (secure ? httpsRequest : httpRequest)(
      {
        ...hostAndPort(url),
        path,
        headers: { host: MARKER_HOST, ...headers },
        // Accept any certificate: the marker's host cannot have one (RFC 2606 `.invalid`). The
        // answer is not secret, and the hash in the path is the proof.
        ...defined({
          rejectUnauthorized: secure ? false : undefined,
          servername: secure ? MARKER_HOST : undefined,
        }),
        timeout: PROBE_TIMEOUT_MS,
        agent: false,
        ...defined({ signal }),
      },
      (response) => {
        response.resume();
        resolve(response.statusCode === 418);
      },
    );
    request.on('timeout', () => request.destroy());
    request.on('error', () => resolve(false));
    request.end();
  });
}
