/**
 * People who scale projects and remove containers by hand while everything else happens, and
 * machines that are silent for longer than FAILOVER_AFTER. Only some runs have them. A source of chance of its own leaves the other
 * decisions of the seed as they are.
 */
import type { History } from '@berth/testbed/history';
import { isScaledToZero, type Process } from '@berth/wire/project';
import type { Agent } from './agent.ts';
import { DEVICE } from './engine.ts';
import type { ControlPlane } from './front.ts';
import type { Network } from './network.ts';
import type { Random } from './random.ts';
import type { Life, World } from './world.ts';

/** Time in which the containers of these projects drain, with one control plane. */
export const SCALED_DRAIN_S = 5;
const MAX_COUNT = 4;

export type Scaling = {
  /** Gives projects their first number of instances. */
  prepare(): Promise<void>;
  begin(forMs: number): void;
  end(): void;
  /** Most nodes take work again, so that there is room for every instance. */
  giveRoom(): Promise<void>;
};

export function createScaling(deps: {
  world: World;
  history: History;
  controlPlane: ControlPlane;
  network: Pick<Network, 'split'>;
  agents: readonly Agent[];
  projects: { keys(): Iterable<string> };
  drainSeconds: number;
  random: Random;
  /** Time after which a silent node counts as lost; null: no machine is silent for so long. */
  silentMs: number | null;
  /** Share of the acts in which machines become silent. */
  losses: number;
  /** Share of the scales that go to 0. */
  zeros: number;
  /** Decides which projects require devices; null: none does. */
  devices: Random | null;
  /** Decides how many workers projects have beside `web`; null: none. */
  workers: Random | null;
  /** Decides which containers of these machines a person removes by hand; null: none. */
  removals: { chance: Random; from: readonly Agent[] } | null;
}): Scaling {
  const { world, history, controlPlane, network, agents, projects, random, silentMs, zeros } = deps;
  const drain_ms = deps.drainSeconds * 1_000;
  const life: Life = { name: 'people who scale', alive: true };
  const heal: (() => void)[] = [];

  async function scale(project: string): Promise<void> {
    const count = zeros > 0 && random.chance(zeros) ? 0 : random.int(1, MAX_COUNT);
    history.record({ type: 'scaling', project, count, drain_ms });
    if (count === 0) history.record({ type: 'stopping', project });
    await controlPlane.ask(life, async ({ stores, driver }) => {
      const processes = [{ name: 'web', count }, ...workersOf(deps.workers)];
      const before = await stores.projects.get(project);
      await stores.projects.patch(project, { processes }, world.now());
      if (count > 0 && before.stopped_at !== null && isScaledToZero(before))
        await driver.startFromZero(project);
      // A control plane that dies here leaves the rest to its loop.
      if (random.chance(0.2)) return;
      const running = (await stores.projects.runningDeployments([project])).get(project);
      if (running !== undefined) await driver.advance(running, { type: 'scaled' });
    });
  }

  const requireDevice = (project: string): Promise<unknown> =>
    controlPlane.ask(life, ({ stores }) =>
      stores.projects.patch(project, { requires: { devices: { [DEVICE]: 1 } } }, world.now()),
    );

  function forAWhile(ms: number, undo: () => void): void {
    let isOver = false;
    const once = (): void => {
      if (isOver) return;
      isOver = true;
      undo();
    };
    heal.push(once);
    world.after(ms, life, once);
  }

  /** The machine is cut off, its agent is dead, or its power is off. */
  function silence(agent: Agent, ms: number): void {
    const how = random.next();
    if (how < 0.45) {
      network.split.add(agent.hostname);
      forAWhile(ms, () => network.split.delete(agent.hostname));
    } else if (how < 0.75) {
      agent.kill();
      forAWhile(ms, () => agent.start());
    } else {
      if (agent.engine.isOff()) return;
      agent.kill();
      agent.engine.cutPower();
      forAWhile(ms, () => {
        agent.engine.powerOn();
        agent.start();
      });
    }
  }

  function loseMachines(): void {
    if (silentMs === null) return;
    const machines = agents.filter(({ role }) => role === 'deploy');
    const number = random.chance(0.2) ? random.int(1, machines.length) : 1;
    for (let n = 0; n < number; n++) {
      const agent = random.maybe(machines);
      // Often it returns just when its instances move.
      const ms = silentMs + random.int(-2_000, random.chance(0.5) ? 6_000 : 30_000);
      if (agent !== undefined) silence(agent, ms);
    }
  }

  /** A person removes a container with `docker rm -f`, now and then the same one twice. */
  function removeByHand(chance: Random, from: readonly Agent[]): void {
    const up = from.filter(({ role, engine }) => role === 'deploy' && engine.up);
    const all = up.flatMap(({ engine }) =>
      engine.list().flatMap((c) => (c.running && c.stays ? [{ engine, id: c.id }] : [])),
    );
    const one = chance.maybe(all);
    if (one !== undefined) one.engine.remove(one.id, 'hand');
  }

  return {
    async prepare() {
      for (const project of projects.keys()) {
        if (deps.devices?.chance(0.6) === true) await requireDevice(project).catch(ignoreErrors);
        if (random.chance(0.7)) await scale(project).catch(ignoreErrors);
      }
    },
    begin(forMs) {
      for (let t = random.int(0, 5_000); t < forMs; t += random.int(2_000, 9_000))
        world.after(t, life, () => {
          if (random.chance(deps.losses)) return loseMachines();
          const project = random.maybe([...projects.keys()]);
          if (project !== undefined) scale(project).catch(ignoreErrors);
        });
      const { removals } = deps;
      if (removals === null) return;
      const { chance, from } = removals;
      for (let t = chance.int(0, 20_000); t < forMs; t += chance.int(5_000, 40_000))
        world.after(t, life, () => removeByHand(chance, from));
    },
    end() {
      life.alive = false;
      for (const undo of heal) undo();
    },
    async giveRoom() {
      const rest: Life = { name: 'people who give room', alive: true };
      for (let tries = 0; tries < 5; tries++)
        try {
          return await controlPlane.ask(rest, async ({ stores, changes }) => {
            for (const node of await stores.nodes.all('deploy')) {
              if (node.deleting_at !== null || node.schedulable || random.chance(0.2)) continue;
              await stores.nodes.setDrain(node.id, null, node.drain);
              await stores.nodes.setSchedulable(node.id, true);
            }
            changes.notify('work');
          });
        } catch (error) {
          ignoreErrors(error);
        }
    },
  };
}

const REPLACE = ['rolling', 'recreate', null] as const;

/** A process without HTTP, now and then none. */
const workersOf = (chance: Random | null): Process[] =>
  chance === null || chance.chance(0.2)
    ? []
    : [{ name: 'worker', count: chance.int(0, 3), replace: chance.pick(REPLACE) }];

/** Refused changes and lost answers. */
function ignoreErrors(error: unknown): void {
  if (!(error instanceof Error)) throw error;
}
