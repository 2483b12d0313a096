/** Asks the proxy what it does with odd header names: it may have been upgraded, or set up anew. */
import type { LoopDeps } from './deps.ts';

export const proxyHeaders =
  ({ source, aliases }: LoopDeps) =>
  async (signal: AbortSignal): Promise<void> => {
    if (aliases !== undefined) await aliases.check(source.current().hash, signal);
  };
