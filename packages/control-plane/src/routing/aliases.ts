/**
 * Checks whether the reverse proxy forwards request headers whose names contain characters other
 * than letters, digits and `-`. Applications can read `X!Forwarded!User` as `X-Forwarded-User`,
 * which only the proxy must set. Traefik does not report its version, so this checks its behaviour:
 * the second path of the marker answers only if such headers reach the routers.
 */
import type { Logger } from '@berth/kit/log';
import type { AliasWatch } from '../domain/routes/configuration.ts';
import { answersMarker } from './confirm.ts';
import { ALIAS_HEADERS, aliasPath } from './traefik.ts';

export function createAliasWatch(
  probeUrls: readonly string[],
  log: Pick<Logger, 'warn' | 'info'>,
): AliasWatch {
  const keptBy = new Map<string, boolean>();
  const headers = Object.fromEntries(ALIAS_HEADERS.map((name) => [name, '1']));
  async function ask(url: string, hash: string, signal: AbortSignal): Promise<void> {
    // Skip a proxy that does not serve this configuration yet: it answers 404 to both paths.
    if (!(await answersMarker(url, `/${hash}`, {}, signal))) return;
    const kept = await answersMarker(url, aliasPath(hash), headers, signal);
    if (!kept && !(await answersMarker(url, `/${hash}`, {}, signal))) return;
    if (kept !== (keptBy.get(url) ?? false))
      log[kept ? 'warn' : 'info'](
        { proxy: url, kept },
        'proxy changed its handling of headers like X!Forwarded!User',
      );
    keptBy.set(url, kept);
  }
  return {
    check: async (hash, signal) =>
      void (await Promise.all(probeUrls.map((url) => ask(url, hash, signal)))),
    kept: () => (keptBy.size === 0 ? null : [...keptBy.values()].some(Boolean)),
  };
}
