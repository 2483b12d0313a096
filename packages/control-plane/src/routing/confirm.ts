/**
 * Whether the reverse proxy serves a configuration: asked from outside, at every address of PROXY_PROBE_URLS, for the marker
 * whose path is the configuration's hash (ARCHITECTURE.md "Bringing a version live"). 418 is noop@internal's answer, which no
 * backend is needed for; anything else means "not yet".
 */
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { MARKER_HOST } from './traefik.ts';

const PROBE_TIMEOUT_MS = 2_000;

/** True when every address answers for this hash. Never throws: no answer is "not yet". */
export async function markerAnswers(probeUrls: readonly string[], hash: string, signal?: AbortSignal): Promise<boolean> {
  const answers = await Promise.all(probeUrls.map((url) => answersMarker(url, `/${hash}`, {}, signal)));
  return answers.every(Boolean);
}

/** Whether this address answers the marker's path with 418 to a request with these headers. Never throws. */
export function answersMarker(base: string, path: string, headers: Record<string, string>, signal?: AbortSignal): Promise<boolean> {
  const url = new URL(base);
  const secure = url.protocol === 'https:';
  return new Promise((resolve) => {
    const request = (secure ? httpsRequest : httpRequest)(
      {
        host: url.hostname.replace(/^\[|\]$/g, ''),
        port: url.port === '' ? (secure ? 443 : 80) : Number(url.port),
        path,
        headers: { host: MARKER_HOST, ...headers },
        // The marker's host has no certificate and never can have one (RFC 2606 `.invalid`); the answer is no secret and
        // the hash in the path is the proof.
        ...(secure ? { rejectUnauthorized: false, servername: MARKER_HOST } : {}),
        timeout: PROBE_TIMEOUT_MS,
        agent: false,
        ...(signal === undefined ? {} : { signal }),
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
