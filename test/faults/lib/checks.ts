/** Checks after each row what must hold after any fault. */
import { expect } from 'vitest';
import { isSettled, isTerminal } from '@berth/wire/vocabulary';
import { waitFor } from '@berth/testbed/wait';
import { versionOf } from '../../e2e/world.ts';
import type { Stage } from './stage.ts';

export async function expectRecovered(stage: Stage): Promise<void> {
  const { accepted, ended } = stage;
  for (const id of accepted) {
    const d = await waitFor(`deployment ${id} is settled`, async () => {
      const seen = await stage.see({ id });
      return isSettled(seen.status) && seen;
    });
    const before = ended.get(id);
    if (before !== undefined && isTerminal(before))
      expect(d.status, 'a terminal state never changes').toBe(before);
    ended.set(id, d.status);
    // A person must be able to read the story of a deployment.
    expect(d.events.length).toBeLessThan(100);
  }
  const running = await stage.running();
  await waitFor(
    'exactly one container exists, it runs under its final name, and the route points to it',
    async () => {
      const all = [
        ...(await stage.containers(stage.engines.build)),
        ...(await stage.containers(stage.engines.node)),
      ];
      const { health } = await stage.see(running);
      return (
        all.join() === 'svc-app running' &&
        health?.status === 'healthy' &&
        versionOf((await stage.get()).body) === stage.version()
      );
    },
    { deadlineMs: 60_000 },
  );
}
