/**
 * Users: request deployments, cancel, roll back, restart, stop, start, delete, cordon; and read the
 * results.
 */
import type { History } from '@berth/testbed/history';
import { hasWeb } from '@berth/wire/project';
import { isTerminal, LABELS } from '@berth/wire/vocabulary';
import { DomainError } from '../../src/domain/platform/errors.ts';
import type { DeploymentRecord, NodeRecord } from '../../src/domain/platform/records.ts';
import { replaceOf, workersIn } from '../../src/domain/projects/processes.ts';
import { newDrain } from '../../src/flow/drain.ts';
import type { NewDeployment } from '../../src/flow/driver.ts';
import { type Endpoints, LIMITS } from './control-plane.ts';
import { type Forge, placeOf } from './forge.ts';
import type { ControlPlane } from './front.ts';
import type { Life, World } from './world.ts';

export type People = {
  /** The projects that users know. */
  projects: Map<string, string>;
  deployments: Map<string, string>;
  act(): void;
  /** Requests a deployment of the branch. */
  deploy(project: string): Promise<void>;
  /** Restarts the project. */
  restart(project: string): Promise<void>;
  /** Deploys an earlier release again. */
  rollback(project: string, release: string): Promise<void>;
  /** Stops the project. */
  halt(project: string): Promise<void>;
  /** Starts a project that was stopped. */
  start(project: string): Promise<void>;
  /** Drains the deployment's node: it takes no work until the returned function is called. */
  drain(deployment: string): () => void;
  /** Stops the deployment's project. */
  stop(deployment: string): void;
  /** Stops a project after the faults, and some time later drains the node where it ran. */
  stopQuietly(project: string): void;
  /** Reads every deployment and project that users know. */
  readAll(): Promise<void>;
  /** Rollbacks that named no deployment. */
  goesBack: ReadonlySet<string>;
  deleteRenamed(): Promise<void>;
  /** `hasVolume`: the first project has a volume. */
  createProjects(
    names: readonly string[],
    how: { drainSeconds: number; hasTokens: boolean; hasVolume: boolean },
  ): Promise<void>;
};

/** How each process of a version without `web` is replaced. */
const replacesOf = ({ settings }: DeploymentRecord): Record<string, 'rolling' | 'recreate'> =>
  Object.fromEntries(workersIn(settings).map((process) => [process.name, replaceOf(process)]));

/**
 * `mayDeleteNodes`: false where a second machine is refused under a node's name until the run ends.
 * Deleting the node hands the name over, by design, and then the first machine would be refused.
 * `rollbacks`: RunOptions.
 */
export function createPeople(
  world: World,
  history: History,
  controlPlane: ControlPlane,
  forge: Forge,
  { mayDeleteNodes, rollbacks }: { mayDeleteNodes: () => boolean; rollbacks: number },
): People {
  const { random } = world;
  const life: Life = { name: 'people', alive: true };
  const projects = new Map<string, string>();
  const deployments = new Map<string, string>();
  const states = new Map<string, DeploymentRecord>();
  /** Includes projects whose deletion was requested, because the request may not have arrived. */
  const everKnown = new Set<string>();
  const deliveries = new Map<string, string>();
  /** Projects with a request for a stop. */
  const mayStop = new Set<string>();
  /** Rollbacks that named no deployment. */
  const goesBack = new Set<string>();
  let keys = 0;
  let dataset: string | null = null;
  const ask = <T>(what: (api: Endpoints) => T | Promise<T>): Promise<T> =>
    controlPlane.ask(life, what);

  /** Repeats a request whose answer was lost with its key, as a careful client does. */
  async function deploy(
    project: string,
    rollbackOf: NewDeployment['rollbackOf'],
    trigger?: 'restart' | 'start' | 'rollback',
  ): Promise<void> {
    const key = random.chance(0.7) ? `key-${++keys}` : null;
    const idempotency =
      key === null ? null : { key, bodyHash: JSON.stringify([rollbackOf, trigger]) };
    const request = `request-${++keys}`;
    history.record({ type: 'wanted', project, request });
    for (let tries = 0; tries < (key === null ? 1 : 4); tries++) {
      const sent = world.now();
      try {
        const { deployment } = await ask((api) =>
          api.driver.request({
            projectId: project,
            commit: null,
            note: null,
            rollbackOf,
            idempotency,
            ...(trigger === undefined ? {} : { trigger }),
          }),
        );
        deployments.set(deployment.id, project);
        if (typeof rollbackOf === 'object' && rollbackOf?.find === 'older')
          goesBack.add(deployment.id);
        // A key makes it one deployment, however often the message arrives.
        history.record({ type: 'answered', project, request, isOnce: key !== null });
        return history.record({ type: 'accepted', project, deployment: deployment.id, key, sent });
      } catch (error) {
        if (error instanceof DomainError)
          return history.record({ type: 'answered', project, request, isOnce: false });
        await world.sleep(random.int(100, 2_000), life);
      }
    }
  }

  async function stop(project: string): Promise<void> {
    mayStop.add(project);
    history.record({ type: 'stopping', project });
    for (let tries = 0; tries < 4; tries++) {
      const sent = world.now();
      try {
        const { stopped_at } = await ask((api) => api.driver.stop(project, 'a user'));
        if (stopped_at !== null) history.record({ type: 'stop_accepted', project, sent });
        return;
      } catch (error) {
        if (error instanceof DomainError) return;
        await world.sleep(random.int(100, 2_000), life);
      }
    }
  }

  /** Pushes once, or many times in a row. */
  async function push(project: string): Promise<void> {
    for (let n = random.chance(0.2) ? random.int(2, 20) : 1; n > 0; n--) {
      if (projects.has(project)) forge.push(project, random.chance(0.1));
      await world.sleep(random.int(0, 500), life);
    }
  }

  async function cancel(deployment: string): Promise<void> {
    const sent = world.now();
    await ask((api) => api.driver.advance(deployment, { type: 'cancel' }));
    history.record({ type: 'cancel_accepted', deployment, sent });
  }

  /** Records a changed scan as the monitor does; the caller may die at any step. */
  async function scan(id: string): Promise<void> {
    await ask(async ({ stores, driver, changes }) => {
      await stores.datasets.requestScan(id, { full: false, acceptLoss: false }, world.now());
      const claim = await stores.datasets.claimDue(
        `scan-${++keys}`,
        world.now(),
        world.now() + 5_000,
      );
      if (claim === null) return;
      const version = (claim.dataset.version ?? 0) + 1;
      const manifest_digest = `sha256:${String(version).padStart(64, '0')}`;
      const set = {
        status: 'ok' as const,
        problem: null,
        last_scanned_at: world.now(),
        next_scan_at: world.now() + 600_000,
      };
      await stores.datasets.finishScan(
        claim,
        { set, newVersion: { version, files: 1, bytes: 1e6 * version, manifest_digest } },
        world.now(),
      );
      changes.notify('datasets', 'work');
      await driver.datasetChanged(id);
    });
  }

  async function prewarm(api: Endpoints, dataset: string): Promise<void> {
    const node = random.maybe(await api.stores.nodes.all('deploy'));
    if (node !== undefined) await api.driver.prewarm(node.id, dataset);
  }

  async function deleteProject(id: string): Promise<void> {
    history.record({ type: 'deleting', what: 'project', id });
    projects.delete(id);
    await ask((api) => api.driver.deleteProject(id));
  }

  async function startDrain(api: Endpoints, node: NodeRecord): Promise<void> {
    await api.stores.nodes.setSchedulable(node.id, false);
    await api.stores.nodes.setDrain(node.id, newDrain(world.now()), node.drain);
    api.changes.notify('work');
  }

  async function nodes(api: Endpoints): Promise<void> {
    const node = random.maybe(await api.stores.nodes.all());
    if (node === undefined) return;
    const what = random.next();
    if (what < 0.25 && node.role === 'deploy') return startDrain(api, node);
    if (what < 0.8) {
      if (!node.schedulable) await api.stores.nodes.setDrain(node.id, null, node.drain);
      await api.stores.nodes.setSchedulable(node.id, !node.schedulable);
      return api.changes.notify('work');
    }
    if (!mayDeleteNodes()) return;
    history.record({ type: 'deleting', what: 'node', id: node.id });
    await api.driver.deleteNode(node.id, random.chance(0.4));
  }

  /**
   * Does what Berth asks an operator to do: deletes a silent node whose machine got another
   * hostname. Berth needs this only where the old node had never listed a container, so the list of
   * the new one proves nothing.
   */
  async function deleteRenamed(): Promise<void> {
    await ask(async (api) => {
      const all = await api.stores.nodes.all('deploy');
      const newest = Math.max(...all.map((n) => n.last_seen_at));
      for (const node of all) {
        const isSilent = newest - node.last_seen_at > LIMITS.offlineMs;
        const came = all.some(
          (other) =>
            other.id !== node.id && other.containers.some((c) => c.labels[LABELS.node] === node.id),
        );
        if (!isSilent || !came || node.containers.length > 0) continue;
        history.record({ type: 'deleting', what: 'node', id: node.id });
        await api.driver.deleteNode(node.id, true);
      }
    });
  }

  function act(): void {
    const project = random.maybe([...projects.keys()]);
    const known = [...states.values()];
    // Without more rollbacks the seed decides as before.
    const goesBackNow = rollbacks > 0 && random.chance(rollbacks);
    const what = random.next();
    const doing = ((): Promise<unknown> | null => {
      if (project === undefined) return null;
      if (goesBackNow) return deploy(project, { find: 'older' }, 'rollback');
      if (what < 0.22) return push(project);
      if (what < 0.42) return deploy(project, null);
      if (what < 0.46) return dataset === null ? deploy(project, null) : scan(dataset);
      if (what < 0.54) {
        const release = random.maybe(
          known.filter((d) => d.project_id === project && d.image_tag !== null),
        );
        return release === undefined ? null : deploy(project, release.id);
      }
      if (what < 0.58) return deploy(project, { find: 'older' }, 'rollback');
      if (what < 0.63) return deploy(project, { find: 'last' }, 'restart');
      if (what < 0.66) return stop(project);
      if (what < 0.74) return deploy(project, { find: 'last' }, 'start');
      if (what < 0.87) {
        const open = random.maybe(known.filter((d) => !isTerminal(d.status)));
        return open === undefined ? null : cancel(open.id);
      }
      if (what < 0.97) return ask(nodes);
      if (dataset !== null && random.chance(0.7))
        return random.chance(0.7) ? scan(dataset) : ask((api) => prewarm(api, dataset ?? ''));
      return projects.size > 1 ? deleteProject(project) : null;
    })();
    doing?.catch((error: unknown) => {
      if (!(error instanceof Error)) throw error;
    });
  }

  function drain(id: string): () => void {
    let node: string | null = null;
    const asking = ask(async (api) => {
      node = (await api.stores.deployments.get(id)).node_id;
      if (node === null) return;
      await api.stores.nodes.setSchedulable(node, false);
      await api.driver.redeploy(id, {
        id: api.driver.newId(),
        note: 'it has to move',
        trigger: 'drain',
      });
    });
    asking.catch(() => undefined);
    const end = (): void => {
      ask(async (api) => {
        if (node === null) return;
        await api.stores.nodes.setSchedulable(node, true);
        api.changes.notify('work');
      }).catch(() => undefined);
    };
    return end;
  }

  /** Records changes only, so that histories stay short. */
  async function readDeliveries(): Promise<void> {
    const sent = world.now();
    const seen = await ask(({ stores }) =>
      Promise.all(
        [...projects.keys()].map((id) => stores.hooks.deliveries(id, { limit: 200, cursor: null })),
      ),
    );
    for (const { id, project_id, verdict, deployment_id } of seen.flatMap((page) => page.items)) {
      const push = forge.pushOf(id);
      const now = `${verdict} ${deployment_id}`;
      if (push === null || deliveries.get(id) === now) continue;
      deliveries.set(id, now);
      history.record({
        type: 'delivery',
        project: project_id,
        id,
        push,
        verdict,
        deployment: deployment_id,
        sent,
      });
    }
  }

  return {
    projects,
    deployments,
    act,
    deploy: (project) => deploy(project, null),
    restart: (project) => deploy(project, { find: 'last' }, 'restart'),
    halt: stop,
    rollback: (project, release) => deploy(project, release, 'rollback'),
    start: (project) => deploy(project, { find: 'last' }, 'start'),
    drain,
    stop(id) {
      const project = deployments.get(id);
      if (project === undefined || !projects.has(project)) return;
      stop(project).catch((error: unknown) => {
        if (!(error instanceof Error)) throw error;
      });
    },
    stopQuietly(project) {
      const rest = async (): Promise<void> => {
        await stop(project);
        if (random.chance(0.5)) return;
        await world.sleep(random.int(0, 8_000), life);
        await ask(async (api) => {
          const id = (await api.stores.projects.runningDeployments([project])).get(project);
          const node = id === undefined ? null : (await api.stores.deployments.get(id)).node_id;
          if (node !== null) await startDrain(api, await api.stores.nodes.get(node));
        });
      };
      rest().catch((error: unknown) => {
        if (!(error instanceof Error)) throw error;
      });
    },
    goesBack,
    deleteRenamed,
    async readAll() {
      const sent = world.now();
      const seen = await ask(async ({ stores }) => {
        // Includes deployments of requests whose answer was lost, and those of pushes.
        const listed = await Promise.all(
          [...everKnown].map((id) =>
            stores.deployments.list({ project_id: id }, { limit: 200, cursor: null }),
          ),
        );
        for (const d of listed.flatMap((page) => page.items)) deployments.set(d.id, d.project_id);
        return stores.deployments.getMany([...deployments.keys()]);
      });
      await readDeliveries();
      const byId = new Map(seen.map((d) => [d.id, d]));
      for (const [id, project] of deployments) {
        const d = byId.get(id);
        if (d !== undefined) states.set(id, d);
        history.record({
          type: 'read',
          project,
          deployment: id,
          state: d?.status ?? 'missing',
          node: d?.node_id ?? null,
          ...(d === undefined || hasWeb(d.settings) ? {} : { without_web: replacesOf(d) }),
          sent,
        });
      }
      const asked = world.now();
      const stopped = await ask(({ stores }) => stores.projects.getMany([...projects.keys()]));
      for (const { id, stopped_at } of stopped)
        if (mayStop.has(id))
          history.record({
            type: 'project',
            project: id,
            stopped: stopped_at !== null,
            sent: asked,
          });
    },
    async createProjects(names, { drainSeconds: drain_seconds, hasTokens, hasVolume }) {
      if (random.chance(0.5)) {
        dataset = (
          await ask((api) =>
            api.stores.datasets.create({ name: 'maps', nfs_path: 'maps' }, world.now()),
          )
        ).id;
        if (random.chance(0.8)) await scan(dataset);
      }
      for (const name of names) {
        const input = {
          name,
          domain_prefix: name,
          git_url: `https://git.example/${name}.git`,
          drain_seconds,
          stop_grace_seconds: 1,
        };
        // A single writer of shared data: never two versions of it at once.
        const isData = hasVolume && name === names[0];
        const single = random.chance(0.35) || isData;
        const datasets =
          dataset === null || random.chance(0.3) || isData
            ? []
            : [
                {
                  dataset_id: dataset,
                  mode: single ? ('readwrite' as const) : ('dependency' as const),
                },
              ];
        const replace = single ? ('recreate' as const) : ('rolling' as const);
        const on_dataset_change = random.pick(['tell', 'redeploy'] as const);
        const volumes =
          single && datasets.length === 0 ? [{ name: 'data', mount_path: '/data' }] : [];
        const settings = { ...input, replace, datasets, volumes, on_dataset_change };
        const project = await ask((api) => api.stores.projects.create(settings, world.now()));
        await ask((api) =>
          api.stores.hooks.put(
            { project_id: project.id, forge: 'gitea', secret: 'sealed' },
            world.now(),
          ),
        );
        // The token is for another host than the repository, so builds do not need it.
        const token = {
          project_id: project.id,
          username: null,
          sealed: 'sealed',
          api_url: null,
          set_by: null,
          set_at: world.now(),
        };
        if (hasTokens)
          await ask((api) => api.stores.gitTokens.put({ ...token, host: 'other.example' }));
        if (single) history.record({ type: 'single_writer', project: project.id });
        projects.set(project.id, name);
        forge.use(project.id, project);
        history.record({
          type: 'changing',
          project: project.id,
          request: 'creation',
          place: placeOf(project),
        });
        everKnown.add(project.id);
      }
    },
  };
}
