/** The random kills of npm run soak. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Platform } from '@berth/testbed/platform';
import { createRandom } from '../../../packages/control-plane/test/sim/random.ts';
import { printLine } from './report.ts';

/**
 * Kills one process of Berth after the other with -9 until it is stopped. Each starts again a
 * moment later, as under a supervisor. The same seed kills in the same order, not at the same
 * moment.
 */
export function startKills(berth: Platform, seed: number): { stop(): Promise<void> } {
  const victims = [
    berth.controlPlane,
    berth.relay,
    berth.gateway,
    ...Object.values(berth.agents),
  ].filter((service) => service !== undefined);
  const random = createRandom(seed);
  const killed = new Map<string, number>();
  let isOver = false;
  const all = (async () => {
    for (;;) {
      await sleep(random.int(2_000, 8_000));
      const victim = random.pick(victims);
      if (isOver) return;
      await victim.crash();
      killed.set(victim.name, (killed.get(victim.name) ?? 0) + 1);
      await sleep(random.int(0, 2_000));
      await victim.start();
    }
  })();
  return {
    async stop() {
      isOver = true;
      await all;
      const text = [...killed].map(([name, count]) => `${name} ${count}`).join(', ');
      printLine(`kill -9 (seed ${seed}): ${text}`);
    },
  };
}
