/**
 * The git server, its hooks and its API: people push, the forge reports each push and repeats a report until it is accepted. Some reports
 * arrive twice at once, some again after a while. It receives commit statuses.
 */
import type { History } from '@berth/testbed/history';
import { DomainError } from '../../src/domain/errors.ts';
import type { ForgeAnswer, ForgeRequest } from '../../src/domain/forge-api.ts';
import type { ControlPlane } from './front.ts';
import type { Network } from './network.ts';
import { createRandom } from './random.ts';
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
  /** Returns the forge's id of a stored delivery. */
  pushOf(deliveryId: string): string | null;
  /** Sends a commit status from this process. */
  status(sender: Life, request: ForgeRequest): Promise<ForgeAnswer>;
  /** Whether it answers. */
  up: boolean;
};

/** A forge gives up after so many tries; the faults are over by then. */
const MOST_TRIES = 200;
/** As in src/forges/send-status.ts. */
const TIMEOUT_MS = 10_000;

export function createForge(world: World, network: Network, history: History, controlPlane: () => ControlPlane): Forge {
  const tips = new Map<string, string>();
  const pushOf = new Map<string, string>();
  const life: Life = { name: 'forge', alive: true };
  const random = createRandom(world.random.int(1, 1e9));
  let pushes = 0;
  let arrivals = 0;

  /** `forge_id`: null if a person repeats the delivery at Berth. */
  async function deliver(project: string, commit: string, push: string, forge_id: string | null): Promise<void> {
    for (let tries = 1; tries <= MOST_TRIES; tries++) {
      try {
        await controlPlane().ask(life, async (api) => {
          // The network may bring a request twice.
          const delivery = { id: `delivery-${(arrivals += 1)}`, forge_id, event: 'push', branch: 'main', commit };
          pushOf.set(delivery.id, forge_id === null ? delivery.id : push);
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

  const forge: Forge = {
    tips,
    up: true,
    tip: (project) => tips.get(project) ?? shaOf(`first ${project}`),
    pushOf: (deliveryId) => pushOf.get(deliveryId) ?? null,
    push(project) {
      const push = `push-${(pushes += 1)}`;
      const commit = shaOf(push);
      tips.set(project, commit);
      const again = (forge_id: string | null): void => void deliver(project, commit, push, forge_id);
      again(push);
      if (random.chance(0.15)) again(push);
      if (random.chance(0.1)) world.after(random.int(500, 20_000), life, () => again(push));
      if (random.chance(0.05)) world.after(random.int(500, 20_000), life, () => again(null));
    },
    status(sender, { url, body }) {
      const commit = url.pathname.split('/').at(-1) ?? '';
      const { state, description, target_url } = JSON.parse(body) as { state: string; description: string; target_url: string };
      const deployment = target_url.split('/').at(-1) ?? '';
      return new Promise((resolve) => {
        const end = (status: number, text: string): void => resolve({ status, text, retryAfterMs: 0 });
        world.after(TIMEOUT_MS, sender, () => end(0, 'no answer'));
        const { lost, late } = network.weather;
        if (random.chance(lost)) return;
        const heard = !random.chance(lost);
        const delay = random.chance(late) ? random.int(50, TIMEOUT_MS - 1_000) : random.int(1, 400);
        // It arrives whether or not the sender still lives.
        world.after(delay, life, () => {
          const { up } = forge;
          if (up) history.record({ type: 'status', deployment, commit, state, text: description, heard });
          if (heard) world.after(random.int(1, 20), sender, () => end(up ? 201 : 503, ''));
        });
      });
    },
  };
  return forge;
}
