/**
 * People who change their minds: they drain a node with volumes, take the drain back while it
 * copies, and drain again; delete or drain the node that receives; change the settings of projects;
 * start stopped containers by hand. Only some runs have them. A source of chance of its own leaves
 * the other decisions of the seed as they are.
 */
import type { Happening, History } from '@berth/testbed/history';
import { isTerminal } from '@berth/wire/vocabulary';
import { newDrain } from '../../src/flow/drain.ts';
import type { Agent } from './agent.ts';
import type { Endpoints } from './control-plane.ts';
import type { ControlPlane } from './front.ts';
import type { Random } from './random.ts';
import type { Life, World } from './world.ts';

export type Restless = {
  begin(forMs: number): void;
  heard(event: Happening): void;
  end(): void;
};

export function createRestless(deps: {
  world: World;
  history: History;
  controlPlane: ControlPlane;
  agents: readonly Agent[];
  projects: ReadonlyMap<string, string>;
  random: Random;
  deploy: (project: string) => Promise<void>;
}): Restless {
  const { world, history, controlPlane, agents, projects, random } = deps;
  const life: Life = { name: 'restless people', alive: true };
  const ask = (what: (api: Endpoints) => Promise<unknown>): void => {
    controlPlane.ask(life, what).catch((error: unknown) => {
      if (!(error instanceof Error)) throw error;
    });
  };
  const drain = async ({ stores, changes }: Endpoints, id: string): Promise<void> => {
    const node = await stores.nodes.get(id);
    if (node.deleting_at !== null) return;
    await stores.nodes.setSchedulable(id, false);
    await stores.nodes.setDrain(id, newDrain(world.now()), node.drain);
    changes.notify('work');
  };
  const uncordon = async ({ stores, driver, changes }: Endpoints, id: string): Promise<void> => {
    await stores.nodes.setSchedulable(id, true);
    await driver.reviewMoves();
    changes.notify('work');
  };

  /** Interferes with a move that is under way. */
  async function interfere(api: Endpoints, project: string): Promise<void> {
    const copies = await api.stores.volumes.ofProject(project);
    const copy = copies.find((c) => c.state === 'incoming');
    const source = copies.find((c) => c.id === copy?.source);
    if (copy === undefined || source === undefined) return;
    const what = random.next();
    if (what < 0.6) {
      await uncordon(api, source.node_id);
      world.after(random.int(2_000, 15_000), life, () =>
        ask((later) => drain(later, source.node_id)),
      );
    } else if (what < 0.75) await drain(api, copy.node_id);
    else if (what < 0.9) {
      history.record({ type: 'deleting', what: 'node', id: copy.node_id });
      await api.driver.deleteNode(copy.node_id, random.chance(0.3));
    } else await changeSettings(api, project);
  }

  async function changeSettings({ stores }: Endpoints, project: string): Promise<void> {
    const name = projects.get(project) ?? project;
    const domain_prefix = random.pick([name, `${name}-2`]);
    const record = await stores.projects.get(project);
    const more = { name: 'more', mount_path: '/more' };
    const volumes =
      record.volumes.length === 0
        ? record.volumes
        : [...record.volumes.slice(0, 1), ...(random.chance(0.5) ? [more] : [])];
    await stores.projects.patch(project, { domain_prefix, volumes }, world.now());
  }

  async function act(api: Endpoints): Promise<void> {
    const [moving] = await api.stores.volumes.received();
    if (moving !== undefined) return interfere(api, moving);
    // The first project has a volume.
    const [first] = projects.keys();
    const project = random.chance(0.8) ? first : random.maybe([...projects.keys()]);
    if (project === undefined) return;
    if (random.chance(0.2)) return changeSettings(api, project);
    const all = await api.stores.nodes.all('deploy');
    if (random.chance(0.3))
      for (const node of all)
        if (!node.schedulable && node.deleting_at === null) await uncordon(api, node.id);
    const running = (await api.stores.projects.runningDeployments([project])).get(project);
    const current = (await api.stores.volumes.ofProject(project)).find(
      (c) => c.state === 'current',
    );
    if (running !== undefined && current !== undefined) return drain(api, current.node_id);
    const [newest] = (
      await api.stores.deployments.list({ project_id: project }, { limit: 1, cursor: null })
    ).items;
    if (newest === undefined || isTerminal(newest.status)) await deps.deploy(project);
  }

  /** Somebody starts a container that Berth has just stopped, and often stops it again. */
  function startByHand(id: string): void {
    const engine = agents.find(
      (a) => a.engine.up && a.engine.list().some((c) => c.id === id),
    )?.engine;
    const container = engine?.list().find((c) => c.id === id);
    if (
      engine === undefined ||
      container === undefined ||
      container.running ||
      engine.disk.mountOf(id) === null
    )
      return;
    if (!engine.disk.startsByHand(id, container.project, container.deployment)) return;
    engine.start(id, 'hand');
    if (random.chance(0.5))
      world.after(random.int(500, 15_000), life, () => {
        if (engine.up) engine.stop(id, 'hand');
      });
  }

  return {
    begin(forMs) {
      for (let t = 0; t < forMs; t += random.int(500, 2_500)) world.after(t, life, () => ask(act));
    },
    heard(event) {
      if (
        event.type !== 'container' ||
        event.change !== 'stopped' ||
        event.cause !== 'task' ||
        !life.alive
      )
        return;
      if (random.chance(0.3))
        world.after(random.int(500, 8_000), life, () => startByHand(event.container));
    },
    end: () => void (life.alive = false),
  };
}
