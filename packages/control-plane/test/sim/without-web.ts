/**
 * People who take the process `web` from projects and bring it back, by a change of the project, by
 * berth.toml and by a rollback, while everything else happens. Only some runs have them. A source of
 * chance of its own leaves the other decisions of the seed as they are.
 */
import type { History } from '@berth/testbed/history';
import { whyOnlyOne } from '@berth/wire/can';
import { hasWeb, isScaledToZero, type Process } from '@berth/wire/project';
import type { ProjectRecord } from '../../src/domain/platform/records.ts';
import { scaledAfter } from '../../src/domain/projects/processes.ts';
import { newDrain } from '../../src/flow/drain.ts';
import type { Endpoints } from './control-plane.ts';
import type { ControlPlane } from './front.ts';
import type { Forge } from './forge.ts';
import type { People } from './people.ts';
import type { Random } from './random.ts';
import type { Life, World } from './world.ts';

export type WithoutWeb = {
  /** Projects whose processes these people leave alone. */
  others: { keys(): Iterable<string> };
  prepare(): Promise<void>;
  begin(forMs: number): void;
  end(): void;
};

const REPLACE = ['rolling', 'recreate'] as const;
const COMMAND = ['node', 'work.js'];

export function createWithoutWeb(deps: {
  world: World;
  history: History;
  controlPlane: ControlPlane;
  people: Pick<People, 'projects' | 'deploy' | 'halt' | 'restart' | 'rollback' | 'start'>;
  drainSeconds: number;
  forge: Pick<Forge, 'write' | 'push'>;
  random: Random;
}): WithoutWeb {
  const { world, history, controlPlane, people, forge, random } = deps;
  const { projects } = people;
  const drain_ms = deps.drainSeconds * 1_000;
  const life: Life = { name: 'people who take web away', alive: true };
  /** The projects whose processes change: none of them writes. */
  const own = new Set<string>();
  const heal: (() => void)[] = [];
  const ask = <T>(what: (api: Endpoints) => T | Promise<T>): Promise<T> =>
    controlPlane.ask(life, what);

  /** `bot` never has the count 0. */
  function workers(): Process[] {
    const bot = { name: 'bot', command: COMMAND, count: random.int(1, 2) };
    const worker = { name: 'worker', command: COMMAND, count: random.int(0, 3) };
    const names = random.pick([[bot], [bot], [worker], [worker, bot], [bot, worker]]);
    return names.map((process) => ({ ...process, replace: random.pick(REPLACE) }));
  }

  function someProcesses(): Process[] {
    if (random.chance(0.55)) return workers();
    const web = { name: 'web', count: random.chance(0.08) ? 0 : random.int(1, 2) };
    return [web, ...(random.chance(0.6) ? workers() : [])];
  }

  /** As the API does (api/routes/projects.ts). */
  async function set(
    project: string,
    change: (present: ProjectRecord) => Pick<ProjectRecord, 'processes' | 'scaled'>,
  ): Promise<void> {
    await ask(async ({ stores, driver }) => {
      const present = await stores.projects.get(project);
      const { processes, scaled } = change(present);
      for (const { name: process, count = 1 } of processes)
        if (process !== 'web') history.record({ type: 'counting', project, process, count });
      const counts = Object.entries(scaled);
      for (const [process, count] of counts)
        if (process !== 'web') history.record({ type: 'counting', project, process, count });
      const count = scaled['web'] ?? processes.find(({ name }) => name === 'web')?.count ?? 1;
      if (count > 1) history.record({ type: 'scaling', project, count, drain_ms });
      if (isScaledToZero({ processes }) || scaled['web'] === 0)
        history.record({ type: 'stopping', project, at_zero: true });
      const after = await stores.projects.patch(project, { processes, scaled }, world.now());
      if (
        isScaledToZero(present) &&
        !isScaledToZero(after) &&
        hasWeb(after) &&
        after.stopped_at !== null
      )
        await driver.startFromZero(project);
      // A control plane that dies here leaves the rest to its loop.
      if (random.chance(0.2)) return;
      const running = (await stores.projects.runningDeployments([project])).get(project);
      if (running !== undefined) await driver.advance(running, { type: 'scaled' });
    });
  }

  const change = (project: string): Promise<void> => {
    const processes = someProcesses();
    return set(project, ({ scaled }) => ({
      processes,
      scaled: scaledAfter({ scaled }, processes),
    }));
  };

  const scale = (project: string): Promise<void> => {
    const counts: Record<string, number> = { bot: random.int(1, 3), worker: random.int(0, 3) };
    return set(project, ({ processes, scaled }) => {
      const listed = processes.map((one) => ({
        ...one,
        count: counts[one.name] ?? one.count ?? 1,
      }));
      const given = listed.flatMap(({ name }) =>
        name === 'web' ? [] : [[name, counts[name] ?? 1]],
      );
      return { processes: listed, scaled: { ...scaled, ...Object.fromEntries(given) } };
    });
  };

  /** The next commits have this file. The counts in it are first values. */
  function write(project: string): void {
    const lines = random.chance(0.25)
      ? null
      : [
          ...(random.chance(0.4) ? ['[processes.web]', 'count = 1'] : []),
          ...workers().flatMap(({ name, replace }) => [
            `[processes.${name}]`,
            `command = ${JSON.stringify(COMMAND)}`,
            `replace = "${replace}"`,
          ]),
        ];
    forge.write(project, lines === null ? null : `${lines.join('\n')}\n`);
    if (random.chance(0.7)) forge.push(project);
  }

  /** Goes back to a release that has `web` if the one that runs has none, or the other way round. */
  async function cross(project: string): Promise<void> {
    const release = await ask(async ({ stores }) => {
      const id = (await stores.projects.runningDeployments([project])).get(project);
      if (id === undefined) return undefined;
      const running = await stores.deployments.get(id);
      const { items } = await stores.deployments.list(
        { project_id: project },
        { limit: 50, cursor: null },
      );
      const all = await stores.deployments.getMany(items.map((d) => d.id));
      return random.maybe(
        all.filter((d) => d.image_tag !== null && hasWeb(d.settings) !== hasWeb(running.settings)),
      );
    });
    if (release !== undefined) await people.rollback(project, release.id);
  }

  /** Drains the node of a process, and takes the drain back. */
  async function drain(project: string): Promise<void> {
    const node = await ask(async ({ stores, changes }) => {
      const id = (await stores.projects.runningDeployments([project])).get(project);
      if (id === undefined) return null;
      const rows = await stores.instances.ofDeployments([id]);
      const nodes = rows.flatMap(({ node_id }) => (node_id === null ? [] : [node_id]));
      const at = random.maybe(nodes);
      if (at === undefined) return null;
      const record = await stores.nodes.get(at);
      if (record.deleting_at !== null) return null;
      await stores.nodes.setSchedulable(at, false);
      await stores.nodes.setDrain(at, newDrain(world.now()), record.drain);
      changes.notify('work');
      return at;
    });
    if (node === null) return;
    let isBack = false;
    const back = (): void => {
      if (isBack) return;
      isBack = true;
      const rest: Life = { name: 'people who take a drain back', alive: true };
      controlPlane
        .ask(rest, async ({ stores, driver, changes }) => {
          await stores.nodes.setSchedulable(node, true);
          await driver.reviewMoves();
          changes.notify('work');
        })
        .catch(ignoreErrors);
    };
    heal.push(back);
    world.after(random.int(300, 9_000), life, back);
  }

  const rename = (project: string): Promise<unknown> => {
    const name = projects.get(project) ?? project;
    const domain_prefix = random.pick([name, `${name}-2`]);
    return ask(({ stores }) => stores.projects.patch(project, { domain_prefix }, world.now()));
  };

  function act(): void {
    const project = random.maybe([...own].filter((id) => projects.has(id)));
    if (project === undefined) return;
    const what = random.next();
    const doing = ((): Promise<unknown> | null => {
      if (what < 0.26)
        return change(project).then(() => (random.chance(0.7) ? people.deploy(project) : null));
      if (what < 0.4) {
        write(project);
        return null;
      }
      if (what < 0.54) return cross(project);
      if (what < 0.68) return scale(project);
      if (what < 0.76) return people.deploy(project);
      if (what < 0.8) return people.halt(project);
      if (what < 0.87) return people.start(project);
      if (what < 0.9) return people.restart(project);
      if (what < 0.96) return drain(project);
      return rename(project);
    })();
    doing?.catch(ignoreErrors);
  }

  return {
    others: { keys: () => [...projects.keys()].filter((id) => !own.has(id)) },
    async prepare() {
      for (const project of projects.keys())
        try {
          const record = await ask(({ stores }) => stores.projects.get(project));
          // It must keep `web` (docs/processes.md).
          if (whyOnlyOne(record) !== null || !random.chance(0.85)) continue;
          own.add(project);
          if (random.chance(0.7)) await change(project);
          void people.deploy(project).catch(ignoreErrors);
        } catch (error) {
          ignoreErrors(error);
        }
    },
    begin(forMs) {
      for (let t = random.int(0, 3_000); t < forMs; t += random.int(1_000, 5_000))
        world.after(t, life, act);
    },
    end() {
      life.alive = false;
      for (const undo of heal) undo();
    },
  };
}

/** Refused changes and lost answers. */
function ignoreErrors(error: unknown): void {
  if (!(error instanceof Error)) throw error;
}
