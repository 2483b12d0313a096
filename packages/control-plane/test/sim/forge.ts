/** The git server and its hooks: people push, the forge reports each push, and repeats a report until it is accepted. */
import { DomainError } from '../../src/domain/errors.ts';
import type { ControlPlane } from './front.ts';
import type { Life, World } from './world.ts';

/** Returns a different text for each input, as long as a commit id. */
const shaOf = (text: string): string => Buffer.from(text).toString('hex').padEnd(40, '0').slice(-40);

export type Forge = {
  /** Pushes a commit to the branch of the project. */
  push(project: string): void;
  /** Returns the newest commit of the branch. */
  tip(project: string): string;
  /** Projects with a push, and their newest commit. */
  tips: ReadonlyMap<string, string>;
};

/** A forge gives up after so many tries; the faults are over by then. */
const MOST_TRIES = 200;

export function createForge(world: World, controlPlane: () => ControlPlane): Forge {
  const tips = new Map<string, string>();
  const life: Life = { name: 'forge', alive: true };
  let pushes = 0;
  let arrivals = 0;

  async function deliver(project: string, commit: string, number: number): Promise<void> {
    for (let tries = 1; tries <= MOST_TRIES; tries++) {
      try {
        await controlPlane().ask(life, async (api) => {
          // The network may bring a request twice.
          const delivery = { id: `delivery-${(arrivals += 1)}`, forge_id: `push-${number}`, event: 'push', branch: 'main', commit };
          const stored = await api.stores.hooks.receive(project, { ...delivery, verdict: null, reason: null }, world.now());
          // The project was deleted with its hook.
          if (stored === null) tips.delete(project);
          else api.changes.notify('work');
        });
        return;
      } catch (error) {
        if (error instanceof DomainError) return;
        await world.sleep(world.random.int(200, 3_000), life);
      }
    }
  }

  return {
    tips,
    tip: (project) => tips.get(project) ?? shaOf(`first ${project}`),
    push(project) {
      const commit = shaOf(`push ${(pushes += 1)}`);
      tips.set(project, commit);
      void deliver(project, commit, pushes);
    },
  };
}
