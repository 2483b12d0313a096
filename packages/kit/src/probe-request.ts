/** Helpers for requests that test whether a visitor's proxy would get an answer. */
import type { ClientRequest, IncomingMessage } from 'node:http';

/** Equal to Traefik's limit: an answer that reaches a visitor must not fail here. */
const MAX_HEADERS = 10 * 1024 * 1024;

/** Accepts every answer that proxies and browsers accept. Each request uses a new connection. */
export const PROBE_OPTIONS = {
  agent: false,
  maxHeaderSize: MAX_HEADERS,
  insecureHTTPParser: true,
} as const;

/** Calls `answered` for an unrequested 101, for which node:http emits no `response` event. */
export function onUnaskedUpgrade(
  request: ClientRequest,
  answered: (response: IncomingMessage) => void,
): void {
  request.once('upgrade', (response, socket) => {
    socket.destroy();
    answered(response);
  });
}

/** Returns the host of a URL without the brackets of an IPv6 address, and its port. */
export function hostAndPort(url: URL): { host: string; port: number } {
  const defaultPort = url.protocol === 'https:' ? 443 : 80;
  return {
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: url.port === '' ? defaultPort : Number(url.port),
  };
}
