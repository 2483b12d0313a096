/** Keeps the uptime clock running while nothing else asks for it. */
import type { LoopDeps } from './deps.ts';

export const uptimeBeat =
  ({ uptime }: LoopDeps) =>
  async (): Promise<void> => {
    await uptime.now();
  };
