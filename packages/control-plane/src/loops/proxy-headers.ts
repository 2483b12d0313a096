/**
 * Checks regularly how the proxy handles unusual header names, because the proxy might have been
 * upgraded or reconfigured.
 */
import type { AliasWatch, ConfigSource } from '../domain/routes/configuration.ts';

export type Deps = {
  source: Pick<ConfigSource, 'current'>;
  /** Unset without PROXY_PROBE_URLS. */
  aliases?: Pick<AliasWatch, 'check'>;
};

export const proxyHeaders =
  ({ source, aliases }: Deps) =>
  async (signal: AbortSignal): Promise<void> => {
    if (aliases !== undefined) await aliases.check(source.current().hash, signal);
  };
