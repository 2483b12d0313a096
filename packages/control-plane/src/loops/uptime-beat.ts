/** Advances the uptime clock when no other reader does. */
import type { LoopDeps } from './deps.ts';

export const uptimeBeat =
  ({ uptime }: LoopDeps) =>
  async (): Promise<void> => {
    await uptime.now();
  };
