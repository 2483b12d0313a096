/**
 * The git server, its hooks and its API: people push, the forge reports each push and repeats a
 * report until it is accepted. Some reports arrive twice at once, some again after a while. It
 * receives commit statuses.
 */
import { createHash } from 'node:crypto';
import type { History } from '@berth/testbed/history';
import { DomainError } from '../../src/domain/platform/errors.ts';
import type { ForgeAnswer, ForgeRequest } from '../../src/domain/git/forge-api.ts';
import type { ProjectSettings } from '../../src/domain/platform/records.ts';
import { judge } from '../../src/flow/delivery.ts';
import type { ControlPlane } from './front.ts';
import type { Network } from './network.ts';
import { createRandom } from './random.ts';
import type { Life, World } from './world.ts';

const shaOf = (text: string): string => createHash('sha1').update(text).digest('hex');

/** Repository and branch. */
export type Place = Pick<ProjectSettings, 'git_url' | 'branch'>;
export const placeOf = ({ git_url, branch }: Place): string => `${git_url} ${branch}`;

export type Forge = {
  /** People push to this branch from now on. */
  use(project: string, place: Place): void;
  /**
   * Pushes a commit to the branch that people use; `isMisdirected`: to another branch, if there is
   * one.
   */
  push(project: string, isMisdirected?: boolean): void;
  /** Sets what berth.toml says in each later commit of the branch that people use; null: no file. */
  write(project: string, text: string | null): void;
  /** Returns berth.toml of a commit. */
  fileAt(commit: string): string | null;
  /** Returns the newest commit of the branch. */
  tip(place: Place): string;
  /** Returns the last push to the branch; undefined: none. */
  lastPush(place: Place): { commit: string; at: number } | undefined;
  /** Projects with a push. */
  pushed: ReadonlySet<string>;
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

export function createForge(
  world: World,
  network: Network,
  history: History,
  controlPlane: () => ControlPlane,
): Forge {
  /** The last push to each place. */
  const pushed = new Map<string, { commit: string; at: number }>();
  const places = new Map<string, Place[]>();
  /** berth.toml of each branch now, and of each commit. */
  const files = new Map<string, string | null>();
  const active = new Set<string>();
  const pushOf = new Map<string, string>();
  const life: Life = { name: 'forge', alive: true };
  const random = createRandom(world.random.int(1, 1e9));
  let pushes = 0;
  let arrivals = 0;

  /** `forge_id`: null if a person repeats the delivery at Berth. */
  async function deliver(
    project: string,
    { commit, branch }: { commit: string; branch: string },
    push: string,
    forge_id: string | null,
  ): Promise<void> {
    for (let tries = 1; tries <= MOST_TRIES; tries++) {
      try {
        await controlPlane().ask(life, async (api) => {
          // The network may bring a request twice.
          const id = `delivery-${(arrivals += 1)}`;
          pushOf.set(id, forge_id === null ? id : push);
          const refs = [{ kind: 'branch', name: branch, commit, deleted: false } as const];
          const { skip, ...judged } = judge(
            { event: 'push', refs },
            await api.stores.projects.get(project),
          );
          const delivery = {
            id,
            forge_id,
            ...judged,
            verdict: skip === null ? null : ('skipped' as const),
            reason: skip,
          };
          const stored = await api.stores.hooks.receive(project, delivery, world.now());
          // The project was deleted with its hook.
          if (stored === null) active.delete(project);
          else if (skip === null) api.changes.notify('work');
        });
        return;
      } catch (error) {
        if (error instanceof DomainError) return;
        await world.sleep(world.random.int(200, 3_000), life);
      }
    }
  }

  const forge: Forge = {
    pushed: active,
    up: true,
    tip: (place) => pushed.get(placeOf(place))?.commit ?? shaOf(`first of ${placeOf(place)}`),
    lastPush: (place) => pushed.get(placeOf(place)),
    write(project, text) {
      const [place] = places.get(project) ?? [];
      if (place !== undefined) files.set(placeOf(place), text);
    },
    fileAt: (commit) => files.get(commit) ?? null,
    use(project, place) {
      const others = (places.get(project) ?? []).filter((p) => placeOf(p) !== placeOf(place));
      places.set(project, [place, ...others]);
      history.record({ type: 'pushed', commit: forge.tip(place), place: placeOf(place) });
    },
    pushOf: (deliveryId) => pushOf.get(deliveryId) ?? null,
    push(project, isMisdirected = false) {
      const known = places.get(project) ?? [];
      const place = (isMisdirected ? known[1] : undefined) ?? known[0];
      if (place === undefined) return;
      const push = `push-${(pushes += 1)}`;
      const commit = shaOf(push);
      pushed.set(placeOf(place), { commit, at: world.now() });
      files.set(commit, files.get(placeOf(place)) ?? null);
      active.add(project);
      history.record({ type: 'pushed', commit, place: placeOf(place) });
      const again = (forge_id: string | null): void =>
        void deliver(project, { commit, branch: place.branch }, push, forge_id);
      again(push);
      if (random.chance(0.15)) again(push);
      if (random.chance(0.1)) world.after(random.int(500, 20_000), life, () => again(push));
      if (random.chance(0.05)) world.after(random.int(500, 20_000), life, () => again(null));
    },
    status(sender, { url, body }) {
      const commit = url.pathname.split('/').at(-1) ?? '';
      const { state, description, target_url } = JSON.parse(body) as {
        state: string;
        description: string;
        target_url: string;
      };
      const deployment = target_url.split('/').at(-1) ?? '';
      return new Promise((resolve) => {
        const end = (status: number, text: string): void =>
          resolve({ status, text, retryAfterMs: 0 });
        world.after(TIMEOUT_MS, sender, () => end(0, 'no answer'));
        const { lost, late } = network.weather;
        if (random.chance(lost)) return;
        const heard = !random.chance(lost);
        const delay = random.chance(late) ? random.int(50, TIMEOUT_MS - 1_000) : random.int(1, 400);
        // It arrives whether or not the sender still lives.
        world.after(delay, life, () => {
          const { up } = forge;
          if (up)
            history.record({ type: 'status', deployment, commit, state, text: description, heard });
          if (heard) world.after(random.int(1, 20), sender, () => end(up ? 201 : 503, ''));
        });
      });
    },
  };
  return forge;
}
