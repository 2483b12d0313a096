/**
 * Whether the reverse proxy hands on request headers whose names have other characters than letters, digits and `-`. Applications
 * may read `X!Forwarded!User` as `X-Forwarded-User`, which only the proxy may set. Traefik does not tell its version, so this asks
 * what it does: the marker's second path answers only to a request whose odd headers have reached the routers.
 */
import type { Logger } from '@berth/kit/log';
import type { AliasWatch } from '../domain/configuration.ts';
import { answersMarker } from './confirm.ts';
import { ALIAS_HEADERS, aliasPath } from './traefik.ts';

export function createAliasWatch(probeUrls: readonly string[], log: Pick<Logger, 'warn' | 'info'>): AliasWatch {
  const keeps = new Map<string, boolean>();
  const headers = Object.fromEntries(ALIAS_HEADERS.map((name) => [name, '1']));
  async function ask(url: string, hash: string, signal: AbortSignal): Promise<void> {
    // A proxy that does not serve this configuration yet would answer 404 to both.
    if (!(await answersMarker(url, `/${hash}`, {}, signal))) return;
    const kept = await answersMarker(url, aliasPath(hash), headers, signal);
    if (!kept && !(await answersMarker(url, `/${hash}`, {}, signal))) return;
    if (kept !== (keeps.get(url) ?? false))
      log[kept ? 'warn' : 'info']({ proxy: url, kept }, 'what the proxy does with headers like X!Forwarded!User has changed');
    keeps.set(url, kept);
  }
  return {
    check: async (hash, signal) => void (await Promise.all(probeUrls.map((url) => ask(url, hash, signal)))),
    kept: () => (keeps.size === 0 ? null : [...keeps.values()].some(Boolean)),
  };
}
