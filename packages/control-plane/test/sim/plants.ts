/**
 * Bugs planted at the seams, to prove that the checker finds them (plants.slow.test.ts). Each is a
 * mistake that a change of the control plane could make; `none` is the unchanged control plane.
 */
import { hasWeb, type Process } from '@berth/wire/project';
import type { DeploymentState } from '@berth/wire/vocabulary';
import { isTerminal } from '@berth/wire/vocabulary';
import type { BuiltConfig, ConfigSource } from '../../src/domain/routes/configuration.ts';
import type { DeploymentRecord } from '../../src/domain/platform/records.ts';
import type { Plan } from '../../src/domain/deployments/plan.ts';
import type { MoveWitness } from '../../src/domain/data/volume-copy.ts';
import type { AllStores } from '../../src/store/open.ts';
import type { Driver } from '../../src/flow/driver.ts';
import { instanceOfTask } from '../../src/flow/instances.ts';
import type { FailoverWatch } from '../../src/domain/nodes/failover-watch.ts';
import type { World } from './world.ts';

export type Plant = {
  stores(stores: AllStores, world: World): AllStores;
  driver(driver: Driver, stores: AllStores, world: World): Driver;
  probe(live: boolean): boolean;
  source(source: ConfigSource): ConfigSource;
  /** Whether the engine chooses the ports of every container. */
  loosePorts: boolean;
  /** Whether agents forget at a restart which commands might have started. */
  forgetsMarks: boolean;
  watch(watch: FailoverWatch): FailoverWatch;
};

/** As in control-plane.ts, which imports from here. */
const OFFLINE_MS = 20_000;

const NONE: Plant = {
  stores: (stores) => stores,
  driver: (driver) => driver,
  probe: (live) => live,
  source: (source) => source,
  loosePorts: false,
  forgetsMarks: false,
  watch: (watch) => watch,
};

type FactsOf = Awaited<ReturnType<AllStores['flow']['facts']>>;
/** Decides with other facts than those that the database has. */
const withFacts = (stores: AllStores, change: (facts: FactsOf) => FactsOf): AllStores => ({
  ...stores,
  flow: {
    ...stores.flow,
    facts: async (projectId, datasetIds) => change(await stores.flow.facts(projectId, datasetIds)),
  },
});

export const PLANTS = {
  none: NONE,

  /** Accepts every report, whatever lease it has. */
  'lease check off': {
    ...NONE,
    driver: (driver, stores) => ({
      ...driver,
      async report(id, _token, report) {
        const task = await stores.tasks.get(id);
        return driver.report(id, task.lease_token, report);
      },
    }),
  },

  /**
   * Removes the old version as soon as the route is written, before any proxy was seen to serve it.
   */
  'retire before route': { ...NONE, probe: () => true },

  /** Lets the engine choose the ports of all containers, so a restart exchanges them. */
  'ports of the engine': { ...NONE, loosePorts: true },

  /** Publishes two projects with one address. */
  'two projects at one address': {
    ...NONE,
    stores: (stores) => ({
      ...stores,
      routes: {
        ...stores.routes,
        all: async () =>
          (await stores.routes.all()).map((r) => ({
            ...r,
            host_ip: `${r.host_ip}${APART}${r.project_name}`,
          })),
      },
    }),
    source: (source) => ({ ...source, current: () => together(source.current()) }),
  },

  /**
   * When a deployment fails, leads its host back to the version before as it was, whoever has that
   * address now.
   */
  'restored route unchecked': {
    ...NONE,
    stores: (stores) => ({
      ...stores,
      flow: {
        ...stores.flow,
        async commit(plan) {
          const isEnd = plan.changeDeployments.some(
            ({ set }) => set.status === 'failed' || set.status === 'cancelled',
          );
          if (!isEnd || plan.route === null || 'set' in plan.route) return stores.flow.commit(plan);
          const { live, nodes } = await stores.flow.facts(plan.project.id);
          const old = live.find((d) => d.status === 'running');
          const node = nodes.find(({ id }) => id === old?.node_id);
          if (old === undefined || node === undefined || old.host_port === null)
            return stores.flow.commit(plan);
          const { host_port, project_id } = old;
          const at = { node_id: node.id, host_ip: node.host_ip, host_port, published_at: plan.now };
          const set = {
            project_id,
            deployment_id: old.id,
            domain_prefix: old.settings.domain_prefix,
            ...at,
          };
          return stores.flow.commit({ ...plan, route: { set } });
        },
      },
    }),
  },

  /** Deploys the branch that a project had when a control plane first read it. */
  'branch read once': {
    ...NONE,
    stores: (stores) => {
      const first = new Map<string, { branch: string; git_url: string }>();
      return withFacts(stores, (facts) => {
        const { branch, git_url } = first.get(facts.project.id) ?? facts.project;
        first.set(facts.project.id, { branch, git_url });
        return { ...facts, project: { ...facts.project, branch, git_url } };
      });
    },
  },

  /** Starts a new version beside the old one if the old one allows it. */
  'replace of the old version': {
    ...NONE,
    stores: (stores) =>
      withFacts(stores, (facts) => {
        const replace = facts.live.find((d) => d.status === 'running')?.settings.replace;
        if (replace === undefined) return facts;
        const live = facts.live.map((d) =>
          d.status === 'built' ? { ...d, settings: { ...d.settings, replace } } : d,
        );
        return { ...facts, live };
      }),
  },

  /** Forgets a copy of a volume when its node reports without it. */
  'missing volume given up': {
    ...NONE,
    stores: (stores) =>
      withFacts(stores, (facts) => ({
        ...facts,
        volumes: facts.volumes.filter((copy) => (copy.missing_since ?? null) === null),
      })),
  },

  /** Uses a copy of a volume as it was proven, whatever has written to one of the two since. */
  'proof of an older copy': {
    ...NONE,
    stores: (stores) => ({
      ...stores,
      flow: {
        ...stores.flow,
        async facts(projectId, datasetIds) {
          const facts = await stores.flow.facts(projectId, datasetIds);
          const listed = (nodeId: string): MoveWitness['containers'] =>
            Object.fromEntries(
              facts.nodes
                .filter((node) => node.id === nodeId)
                .flatMap(({ containers }) =>
                  containers.map((c) => [c.id ?? c.name, c.started_at ?? null]),
                ),
            );
          const volumes = facts.volumes?.map((copy) =>
            copy.seen === null
              ? copy
              : { ...copy, seen: { ...copy.seen, containers: listed(copy.node_id) } },
          );
          return volumes === undefined ? facts : { ...facts, volumes };
        },
        async commit(plan) {
          const copies =
            plan.volumes.length === 0 ? [] : await stores.volumes.ofProject(plan.project.id);
          const proven = copies.find((copy) => copy.state === 'incoming' && copy.digest !== null);
          if (
            proven === undefined ||
            !plan.volumes.some((copy) => copy.id === proven.id && copy.state === 'deleting')
          )
            return stores.flow.commit(plan);
          const volumes = plan.volumes.filter(
            (copy) => copy.id !== proven.id && copy.id !== proven.source,
          );
          return stores.flow.commit({
            ...plan,
            volumes,
            storyLines: plan.storyLines.filter((line) => line.kind !== 'volumes'),
          });
        },
      },
    }),
  },

  /** Commits a plan although the project has changed since the plan was made. */
  'lost compare-and-set': {
    ...NONE,
    stores: (stores) => ({
      ...stores,
      flow: {
        ...stores.flow,
        async commit(plan) {
          const { flow_version } = await stores.projects.get(plan.project.id);
          const present = await stores.deployments.getMany(plan.changeDeployments.map((c) => c.id));
          const deployments = plan.changeDeployments
            .map((change) => ({
              ...change,
              from: present.find((d) => d.id === change.id)?.status ?? change.from,
            }))
            .filter((change) => !isTerminal(change.from) || change.set.status === undefined);
          return stores.flow.commit({
            ...plan,
            project: { ...plan.project, flow_version },
            changeDeployments: deployments,
          });
        },
      },
    }),
  },

  /** Gives a second claim the lease that the first one holds. */
  'double claim': {
    ...NONE,
    stores: (stores) => ({
      ...stores,
      tasks: {
        ...stores.tasks,
        async claim(id, lease, now, maxAttempts) {
          const task = await stores.tasks.get(id);
          if (
            task.status === 'running' &&
            task.lease_token !== null &&
            task.lease_expires_at !== null
          )
            return {
              attempt: task.attempt,
              lease_token: task.lease_token,
              lease_expires_at: task.lease_expires_at,
            };
          return stores.tasks.claim(id, lease, now, maxAttempts);
        },
      },
    }),
  },

  /** Starts a version that must be alone without a check of the other nodes. */
  'second writer': {
    ...NONE,
    stores: (stores) => ({
      ...stores,
      flow: {
        ...stores.flow,
        async facts(projectId) {
          const facts = await stores.flow.facts(projectId);
          return {
            ...facts,
            endedWork: [],
            nodes: facts.nodes.map((node) => ({ ...node, containers: [] })),
          };
        },
      },
    }),
  },

  /**
   * Refuses neither of two machines with one hostname: the node belongs to the one that registered
   * last.
   */
  'two machines with one hostname': {
    ...NONE,
    stores: (stores) => ({
      ...stores,
      nodes: {
        ...stores.nodes,
        register({ boot_id: _boot, ...input }, at, entry) {
          return stores.nodes.register(
            input,
            at,
            entry === undefined ? entry : { ...entry, proof: { kind: 'open' } },
          );
        },
      },
    }),
  },

  /**
   * When the first of two machines with one hostname was silent, gives the second one its node, not
   * only its name.
   */
  'a node handed over': {
    ...NONE,
    stores: (stores) => ({
      ...stores,
      nodes: {
        ...stores.nodes,
        async register(input, at, entry, uptime) {
          const nodes = await stores.nodes.all(input.role);
          const node = nodes.find((n) => n.hostname === input.hostname);
          const isOther =
            node !== undefined && node.host_ip !== input.host_ip && node.boot_id !== input.boot_id;
          if (isOther && !node.has_secret && at - node.last_seen_at >= OFFLINE_MS)
            await stores.nodes.resetSecret(node.id, at);
          return stores.nodes.register(input, at, entry, uptime);
        },
      },
    }),
  },

  /** Uses the machine's clock for deadlines: time in which no control plane served counts too. */
  'deadlines by the machine’s clock': {
    ...NONE,
    stores: (stores, world) => {
      const clock = (): Promise<number> => Promise.resolve(world.now());
      return { ...stores, uptime: { read: clock, raise: clock } };
    },
  },

  /**
   * Compares lists of containers with the ends of tasks by the machine's clock, which may have been
   * set back between them.
   */
  'lists by the machine’s clock': {
    ...NONE,
    stores: (stores, world) => {
      const { lists, nodes, ends, unreported } = machineTimes(world);
      const commit = async (plan: Plan): ReturnType<AllStores['flow']['commit']> => {
        const answer = await stores.flow.commit(plan);
        for (const change of answer === 'committed' ? plan.changeTasks : []) {
          if (!('end' in change)) continue;
          const key = `${plan.project.id} ${nodes.get(change.id)}`;
          ends.set(key, plan.now);
          if (change.report === undefined && change.attempt > 0) unreported.set(key, plan.now);
        }
        return answer;
      };
      return {
        ...stores,
        nodes: {
          ...stores.nodes,
          async register(input, at, entry, uptime) {
            const registered = await stores.nodes.register(input, at, entry, uptime);
            if (input.containers !== undefined) lists.set(registered.node.id, at);
            return registered;
          },
        },
        flow: {
          ...stores.flow,
          commit,
          async facts(projectId, datasetIds) {
            const facts = await stores.flow.facts(projectId, datasetIds);
            for (const task of facts.tasks) nodes.set(task.id, task.node_id);
            /** Before every time by the uptime clock, since a later time counts as never. */
            const past = (at: number | null, machine: number | undefined): number | null =>
              at === null ? null : (machine ?? at) - LONG_MS;
            return {
              ...facts,
              nodes: facts.nodes.map((node) => ({
                ...node,
                observed_at: past(node.observed_at, lists.get(node.id)),
              })),
              endedWork: facts.endedWork.map((work) => {
                const key = `${projectId} ${work.node_id}`;
                const end = ends.get(key);
                return {
                  node_id: work.node_id,
                  ended_at: past(work.ended_at, end) ?? 0,
                  claimed_at: past(work.claimed_at, end),
                  unreported_at: past(work.unreported_at, unreported.get(key)),
                };
              }),
            };
          },
        },
      };
    },
  },

  /** A look covers the pushes that arrived after it began. */
  'look covers later pushes': {
    ...NONE,
    stores: (stores) => ({
      ...stores,
      hooks: {
        ...stores.hooks,
        async pushes(projectId) {
          const found = await stores.hooks.pushes(projectId);
          return found === null
            ? null
            : { ...found, hook: { ...found.hook, look_upto: found.waiting.at(-1)?.seq ?? 0 } };
        },
      },
    }),
  },

  /** Takes a delivery that the forge repeats for a new one. */
  'repeated delivery accepted': {
    ...NONE,
    stores: (stores) => ({
      ...stores,
      hooks: {
        ...stores.hooks,
        receive: (project, delivery, now) =>
          stores.hooks.receive(project, { ...delivery, forge_id: null }, now),
      },
    }),
  },

  /** A repeated delivery takes the verdict of the first one away. */
  'verdict replaced': {
    ...NONE,
    stores: (stores, world) => {
      const replaced = repeatedIds(world);
      return {
        ...stores,
        hooks: {
          ...stores.hooks,
          async receive(project, delivery, now) {
            const stored = await stores.hooks.receive(project, delivery, now);
            if (delivery.forge_id !== null && stored?.forge_id === null)
              replaced.add(delivery.forge_id);
            return stored;
          },
          async deliveries(project, page) {
            const { items, next } = await stores.hooks.deliveries(project, page);
            const isReplaced = (id: string | null): boolean => id !== null && replaced.has(id);
            return {
              items: items.map((d) =>
                isReplaced(d.forge_id) ? { ...d, verdict: 'skipped', deployment_id: null } : d,
              ),
              next,
            };
          },
        },
      };
    },
  },

  /** Counts a commit status as sent although the forge did not accept it. */
  'refused status counts as sent': {
    ...NONE,
    stores: (stores, world) => ({
      ...stores,
      commitStatuses: {
        ...stores.commitStatuses,
        retry: (claim) => stores.commitStatuses.sent(claim, world.now()),
      },
    }),
  },

  /** Forgets that the forge has accepted a commit status. */
  'sent status forgotten': {
    ...NONE,
    stores: (stores) => ({
      ...stores,
      commitStatuses: { ...stores.commitStatuses, sent: () => Promise.resolve(true) },
    }),
  },

  /** Writes that a project is stopped, and lets its container run. */
  'stop only in the database': {
    ...NONE,
    stores: (stores) =>
      withCommit(stores, (plan) => ({
        ...plan,
        createTasks: plan.createTasks.filter(
          (task) => task.kind !== 'retire' || task.payload.stop?.some(isOfStop) !== true,
        ),
      })),
  },

  /** Keeps the route of a stopped project. */
  'stop without its page': {
    ...NONE,
    stores: (stores) =>
      withCommit(stores, ({ route, ...plan }) => ({
        ...plan,
        route: route !== null && 'set' in route && route.set.stopped === true ? null : route,
      })),
  },

  /** A stop leaves the deployments in progress alone. */
  'stop leaves deployments': {
    ...NONE,
    stores: (stores) =>
      withCommit(stores, (plan) =>
        plan.stopped === undefined || plan.stopped.at === null
          ? plan
          : {
              ...plan,
              changeTasks: [],
              changeDeployments: plan.changeDeployments.filter((c) => c.set.status !== 'cancelled'),
            },
      ),
  },

  /** Forgets that a person stopped the project: a scale up from 0 starts it. */
  'scale starts a stopped project': {
    ...NONE,
    stores: (stores) =>
      withFacts(stores, ({ project, ...facts }) => ({
        ...facts,
        project: { ...project, stopped_by_person: false },
      })),
  },

  /** Deploys the pushes of a stopped project, which starts it. */
  'push starts a stopped project': {
    ...NONE,
    driver: (driver, stores) => ({
      ...driver,
      async checkPushes(projectId) {
        const pushes = await stores.hooks.pushes(projectId);
        await driver.checkPushes(projectId);
        const { stopped_at, deleting_at } = await stores.projects.get(projectId);
        if (stopped_at === null || deleting_at !== null || (pushes?.waiting.length ?? 0) === 0)
          return;
        await driver.request({
          projectId,
          commit: null,
          note: null,
          rollbackOf: null,
          idempotency: null,
          trigger: 'hook',
        });
      },
    }),
  },

  /** A start and a restart take the release before the one that ran last. */
  'start of an older release': {
    ...NONE,
    driver: (driver, stores) => ({
      ...driver,
      async request(input) {
        if (input.trigger !== 'start' && input.trigger !== 'restart') return driver.request(input);
        const before = (await stores.deployments.ran(input.projectId))[1];
        return driver.request(before === undefined ? input : { ...input, rollbackOf: before.id });
      },
    }),
  },

  /**
   * A rollback without a target goes to whatever ran before, so two of them return to the same
   * version.
   */
  'rollbacks toggle': {
    ...NONE,
    driver: (driver, stores) => ({
      ...driver,
      async request(input) {
        if (typeof input.rollbackOf !== 'object' || input.rollbackOf?.find !== 'older')
          return driver.request(input);
        const before = (await stores.deployments.ran(input.projectId))[1];
        return driver.request(before === undefined ? input : { ...input, rollbackOf: before.id });
      },
    }),
  },

  /** A start does not know where the volumes of its project are. */
  'start forgets the volumes': {
    ...NONE,
    stores: (stores) =>
      withFacts(stores, (facts) =>
        facts.project.stopped_at === null ? facts : { ...facts, volumes: [] },
      ),
  },

  /** A drain ends when nothing runs on the node any more, whatever volumes are there. */
  'drain forgets stopped projects': {
    ...NONE,
    stores: (stores) => ({
      ...stores,
      volumes: { ...stores.volumes, onNode: () => Promise.resolve([]) },
    }),
  },

  /**
   * After a move of the volumes, the old copy still counts, although requests write to the new one.
   */
  'moved volume does not count': {
    ...NONE,
    stores: (stores) =>
      withCommit(stores, (plan) =>
        plan.volumes.some((copy) => copy.state === 'left') ? { ...plan, volumes: [] } : plan,
      ),
  },

  /** Starts nothing after a scale, and nothing after a loss. */
  'count stored only': {
    ...NONE,
    driver: (driver, stores) => ({
      ...driver,
      advance: (id, event) =>
        event.type === 'scaled' ? stores.deployments.get(id) : driver.advance(id, event),
    }),
  },

  /** Lists the instances of the version before beside those of the new one. */
  'servers of two versions': {
    ...NONE,
    stores: (stores) => ({
      ...stores,
      flow: {
        ...stores.flow,
        async commit(plan) {
          if (plan.route === null || !('set' in plan.route)) return stores.flow.commit(plan);
          const { set } = plan.route;
          const { route: before } = await stores.flow.facts(plan.project.id);
          if (before === null || before.deployment_id === set.deployment_id)
            return stores.flow.commit(plan);
          const servers = [...(set.servers ?? []), ...(before.servers ?? [])];
          return stores.flow.commit({ ...plan, route: { set: { ...set, servers } } });
        },
      },
    }),
  },

  /** Ends instances of the version that serves without a time for requests in flight. */
  'scale without a drain': {
    ...NONE,
    stores: (stores) =>
      withCommit(stores, (plan) => ({
        ...plan,
        createTasks: plan.createTasks.map((task) =>
          task.kind === 'retire' && task.payload.remove.some((r) => r.instance_id !== undefined)
            ? { ...task, payload: { ...task.payload, drain_seconds: 0 } }
            : task,
        ),
      })),
  },

  /** Moves the instances of silent nodes although most nodes are silent. */
  'failover without a brake': {
    ...NONE,
    watch: ({ silent, ...rest }) => ({
      ...rest,
      silent: async () => (await silent()).map((node) => ({ ...node, brake: null, isLost: true })),
    }),
  },

  /** Scales projects that write to volumes and datasets. */
  'writers are scaled': {
    ...NONE,
    stores: (stores) =>
      withFacts(stores, (facts) => ({
        ...facts,
        live: facts.live.map((d) =>
          d.status === 'running'
            ? { ...d, settings: { ...d.settings, volumes: [], datasets: [] } }
            : d,
        ),
      })),
  },

  /** Stores no leases of devices. */
  'devices without leases': {
    ...NONE,
    stores: (stores) => withCommit(stores, ({ takeDevices: _taken, ...plan }) => plan),
  },

  /** Stores no leases of the devices of runs. */
  'runs without leases': {
    ...NONE,
    stores: (stores) => ({
      ...stores,
      runs: {
        ...stores.runs,
        offer: (offer, now) => stores.runs.offer({ ...offer, takes: [] }, now),
      },
    }),
  },

  /** Overwrites a terminal state with a report that comes later. */
  'terminal state overwritten': {
    ...NONE,
    stores: (stores, world) => {
      const over = overwritten(world);
      const seen = (d: DeploymentRecord): DeploymentRecord => ({
        ...d,
        status: over.get(d.id) ?? d.status,
      });
      return {
        ...stores,
        deployments: {
          ...stores.deployments,
          get: async (id) => seen(await stores.deployments.get(id)),
          getMany: async (ids) => (await stores.deployments.getMany(ids)).map(seen),
        },
      };
    },
    driver: (driver, stores, world) => ({
      ...driver,
      async report(id, token, report) {
        try {
          return await driver.report(id, token, report);
        } catch (error) {
          const task = await stores.tasks.get(id);
          const state: DeploymentState = task.kind === 'build' ? 'built' : 'running';
          if (
            task.deployment_id !== null &&
            task.kind !== 'retire' &&
            isTerminal((await stores.deployments.get(task.deployment_id)).status)
          )
            overwritten(world).set(task.deployment_id, state);
          throw error;
        }
      },
    }),
  },

  /** Runs as many workers as a project had when a control plane first read it. */
  'workers counted once': {
    ...NONE,
    stores: (stores) => {
      const first = new Map<string, readonly Process[]>();
      return withFacts(stores, (facts) => {
        const { processes } = facts.project;
        const workers = first.get(facts.project.id) ?? processes.filter(isWorker);
        first.set(facts.project.id, workers);
        const all = [...processes.filter((one) => !isWorker(one)), ...workers];
        return { ...facts, project: { ...facts.project, processes: all } };
      });
    },
  },

  /** Agents keep the marks of started commands in memory only. */
  'marks in memory': { ...NONE, forgetsMarks: true },

  /** Records no time that was missed. */
  'missed times forgotten': {
    ...NONE,
    stores: (stores) => ({
      ...stores,
      jobs: {
        ...stores.jobs,
        due: (job, times, { runs, cancel }, now) =>
          stores.jobs.due(
            job,
            times,
            { runs: runs.filter(({ not }) => not?.status !== 'missed'), cancel },
            now,
          ),
      },
    }),
  },

  /** Starts the new version while its release command runs. */
  'release command not awaited': {
    ...NONE,
    stores: (stores) =>
      withFacts(stores, (facts) => {
        const releasing = facts.tasks.filter(({ kind }) => kind === 'run');
        const isReleasing = (id: string): boolean =>
          releasing.some(({ deployment_id }) => deployment_id === id);
        return {
          ...facts,
          tasks: facts.tasks.filter((task) => !releasing.includes(task)),
          live: facts.live.map((d) => (isReleasing(d.id) ? { ...d, release_done_at: 1 } : d)),
        };
      }),
  },

  /** Takes the page away when a version without `web` is live, as if it needed none. */
  'no page without web': {
    ...NONE,
    stores: (stores) =>
      withoutWebLive(stores, (plan, isSwitch) =>
        isSwitch ? { ...plan, route: { remove: { project_id: plan.project.id } } } : plan,
      ),
  },

  /** Leaves the container of `web` when a version without `web` takes over. */
  'web of the version before stays': {
    ...NONE,
    stores: (stores) =>
      withoutWebLive(stores, (plan) => ({
        ...plan,
        createTasks: plan.createTasks.filter(
          (task) =>
            task.kind !== 'retire' ||
            task.payload.remove.some((one) => one.instance_id !== undefined),
        ),
      })),
  },

  /** Publishes a version without `web` when the first of its processes has started. */
  'page before the processes': {
    ...NONE,
    stores: (stores, world) =>
      withFacts(stores, (facts) => {
        const reported = reportedInstances(world);
        const isEarly = (id: string): boolean =>
          facts.live.some(
            (d) =>
              d.id === id &&
              d.status === 'deploying' &&
              d.route_published_at === null &&
              !hasWeb(d.settings),
          );
        const instances = facts.instances?.map((one) =>
          one.state === 'starting' && !reported.has(one.id) && isEarly(one.deployment_id)
            ? { ...one, state: 'serving' as const }
            : one,
        );
        return instances === undefined ? facts : { ...facts, instances };
      }),
    driver: (driver, stores, world) => ({
      ...driver,
      async report(id, token, report) {
        const instance = instanceOfTask(await stores.tasks.get(id));
        if (instance !== null) reportedInstances(world).add(instance);
        return driver.report(id, token, report);
      },
    }),
  },
} as const satisfies Record<string, Plant>;
export type PlantName = keyof typeof PLANTS;

const isWorker = ({ name }: Process): boolean => name !== 'web';

/** As in src/flow/stop.ts. */
const isOfStop = ({ reason }: { reason: string }): boolean => reason === 'the project is stopped';
const withCommit = (stores: AllStores, change: (plan: Plan) => Plan): AllStores => ({
  ...stores,
  flow: { ...stores.flow, commit: (plan) => stores.flow.commit(change(plan)) },
});

/** Changes the plans of projects whose version without `web` runs, or goes live by the plan. */
const withoutWebLive = (
  stores: AllStores,
  change: (plan: Plan, isSwitch: boolean) => Plan,
): AllStores => ({
  ...stores,
  flow: {
    ...stores.flow,
    async commit(plan) {
      const { live } = await stores.flow.facts(plan.project.id);
      const goesLive = ({ id }: DeploymentRecord): boolean =>
        plan.changeDeployments.some((c) => c.id === id && c.set.status === 'running');
      const runs = live.filter((d) => d.status === 'running' || goesLive(d));
      const isWithoutWeb = runs.some(
        (d) => !hasWeb(d.settings) && (goesLive(d) || runs.length < 2),
      );
      return stores.flow.commit(isWithoutWeb ? change(plan, runs.some(goesLive)) : plan);
    },
  },
});

/** Ends the address of a node, so that it is another one for each project. */
const APART = '.planted-';
function together({ bytes, deployments, ...config }: BuiltConfig): BuiltConfig {
  const targets = [...deployments].map(
    ([id, target]) => [id, { ...target, host_ip: target.host_ip.split(APART)[0] ?? '' }] as const,
  );
  return {
    ...config,
    bytes: bytes.replaceAll(/\.planted-[a-z]+(?=:)/g, ''),
    deployments: new Map(targets),
  };
}

const LONG_MS = 100 * 86_400_000;
type MachineTimes = Record<'lists' | 'ends' | 'unreported', Map<string, number>> & {
  nodes: Map<string, string>;
};
const timesByWorld = new WeakMap<World, MachineTimes>();
function machineTimes(world: World): MachineTimes {
  const times = timesByWorld.get(world) ?? {
    lists: new Map(),
    nodes: new Map(),
    ends: new Map(),
    unreported: new Map(),
  };
  timesByWorld.set(world, times);
  return times;
}

/** Instances of which an agent has reported the start. */
const reportedByWorld = new WeakMap<World, Set<string>>();
function reportedInstances(world: World): Set<string> {
  const ids = reportedByWorld.get(world) ?? new Set<string>();
  reportedByWorld.set(world, ids);
  return ids;
}

/** Ids of deliveries that the forge repeated. */
const repeatedByWorld = new WeakMap<World, Set<string>>();
function repeatedIds(world: World): Set<string> {
  const ids = repeatedByWorld.get(world) ?? new Set<string>();
  repeatedByWorld.set(world, ids);
  return ids;
}

/**
 * States by world, like a table of its database: they outlive restarts, and no other run sees them.
 */
const byWorld = new WeakMap<World, Map<string, DeploymentState>>();
function overwritten(world: World): Map<string, DeploymentState> {
  const map = byWorld.get(world) ?? new Map<string, DeploymentState>();
  byWorld.set(world, map);
  return map;
}
