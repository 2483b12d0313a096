/**
 * Checks regularly how the proxy handles unusual header names, because it may have been upgraded or
 * reconfigured.
 */
import type { LoopDeps } from './deps.ts';

export const proxyHeaders =
  ({ source, aliases }: LoopDeps) =>
  async (signal: AbortSignal): Promise<void> => {
    if (aliases !== undefined) await aliases.check(source.current().hash, signal);
  };
