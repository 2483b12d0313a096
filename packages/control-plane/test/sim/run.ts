/**
 * One seeded run: a small platform starts, users use it while faults happen, then the faults stop
 * and it must become idle. Returns the verdict of the checker (packages/testbed/src/invariants.ts)
 * on its history.
 */
import type { Happening, HistoryEvent } from '@berth/testbed/history';
import { check, type Violation } from '@berth/testbed/invariants';
import { hasWeb } from '@berth/wire/project';
import { CAN_INSTANCES } from '@berth/wire/task';
import { isSettled, isTerminal, LABELS } from '@berth/wire/vocabulary';
import { type InstanceRecord, isWeb } from '../../src/domain/deployments/instance.ts';
import { countFor } from '../../src/domain/deployments/instance-count.ts';
import { countIn, workersIn } from '../../src/domain/projects/processes.ts';
import { DomainError } from '../../src/domain/platform/errors.ts';
import type { StatusRecord } from '../../src/domain/git/commit-statuses.ts';
import { awaitsContainer } from '../../src/domain/deployments/wait-reason.ts';
import type {
  DeploymentRecord,
  NodeRecord,
  ProjectRecord,
} from '../../src/domain/platform/records.ts';
import type { AllStores } from '../../src/store/open.ts';
import { currentCopy, isStopFirst } from '../../src/domain/data/volumes.ts';
import { needsDevices } from '../../src/domain/nodes/room.ts';
import { presentLosses } from '../../src/flow/instances.ts';
import { isStoppedFirst } from '../../src/flow/single-writer.ts';
import { isAtRest } from '../../src/flow/stop.ts';
import { type Agent, createAgent } from './agent.ts';
import { createContractAgent } from './contract-agent.ts';
import { type Changing, createChanging } from './changing.ts';
import { createControlPlane, LIMITS } from './control-plane.ts';
import { inMemory, type SimDatabase } from './database.ts';
import type { Moving } from './disk.ts';
import { createEngine } from './engine.ts';
import { createFaults, type Faults, type Heir } from './faults.ts';
import { createForge, type Forge, placeOf } from './forge.ts';
import { createJobs, type Jobs, zoneOf } from './jobs.ts';
import { createFront } from './front.ts';
import { createNetwork } from './network.ts';
import { createPeople } from './people.ts';
import { type PlantName, PLANTS } from './plants.ts';
import { createProxy, type Proxy } from './proxy.ts';
import { createRandom, type Random } from './random.ts';
import { createScaling, SCALED_DRAIN_S, type Scaling } from './scaling.ts';
import { createRestless, type Restless } from './restless.ts';
import { createWithoutWeb, type WithoutWeb } from './without-web.ts';
import { createWorld, type Life } from './world.ts';

export type RunOptions = {
  seed: number;
  plant?: PlantName;
  chaosMs?: number;
  /** Creates the database, which also sets the number of control planes. */
  database?: (now: () => number, random: Random) => Promise<SimDatabase>;
  /**
   * Weight of the fault that moves a stop-first project before its node's next list; the others
   * have 1 to 6.
   */
  unseenMoves?: number;
  /**
   * Share of projects that are stopped after the faults; the node of every second one is drained.
   * Default: 0.2.
   */
  quietStops?: number;
  /** Share of runs in which commit statuses are sent. */
  withStatuses?: number;
  /**
   * Share of the acts of people that go back to the release before, in addition to the usual ones.
   * Default: 0.
   */
  rollbacks?: number;
  /**
   * Share of runs with four projects on one or two nodes whose engines restart often. Default: 0.2.
   */
  crowded?: number;
  /** Whether people change their minds (restless.ts). Default: every second seed. */
  restless?: boolean;
  /** Share of runs in which people change settings (changing.ts). Default: 0.4. */
  changes?: number;
  /** Share of runs in which projects have several instances (scaling.ts). Default: 0.4. */
  scales?: number;
  /** Share of the acts of scaling in which machines become silent. Default: 0.3. */
  losses?: number;
  /** Share of the scales that go to 0. Default: 0.1. */
  zeros?: number;
  /** Drain time in s of the projects of scaled runs, with one control plane. Default: 5. */
  scaledDrainSeconds?: number;
  /** Share of the scaled runs in which projects require devices. Default: 0.3. */
  devices?: number;
  /** Share of the scaled runs in which projects have workers. Default: 0.4. */
  workers?: number;
  /**
   * Share of runs in which people take `web` from projects and bring it back (without-web.ts); these
   * runs are scaled. Default: 0.
   */
  withoutWeb?: number;
  /** Share of runs with jobs, runs and release commands (jobs.ts). Default: 0. */
  jobs?: number;
  /**
   * Whether the fault that gives the port of a stopped version to another project is likely: four
   * projects on one or two nodes whose engines choose all ports, and the first project is
   * stop-first. Otherwise it is rare.
   */
  takesPorts?: boolean;
  trace?: (event: HistoryEvent) => void;
};
export type RunResult = {
  seed: number;
  violations: Violation[];
  history: HistoryEvent[];
  steps: number;
  deployments: number;
  simulatedMs: number;
};

type Wanted = {
  project: string;
  deployment: string;
  count: number;
  /** A node can take them. */
  isAble: boolean;
  /** So many serve. */
  isThere: boolean;
  /** An instance of `web` waits for its next try. */
  isPaused: boolean;
  /** The counts of the processes without HTTP, and whether a worker must wait. */
  workers: { name: string; count: number; isPaused: boolean }[];
};

/** Returns how many workers the version should have. One that writes has at most one of each. */
const workersOf = (
  d: DeploymentRecord,
  project: ProjectRecord,
): { name: string; count: number }[] =>
  workersIn(d.settings).map((process) => {
    const count = countIn(project, process, d);
    return { name: process.name, count: isStopFirst(d.settings) ? Math.min(1, count) : count };
  });
const rowsOf = (rows: readonly InstanceRecord[], name: string): number =>
  rows.filter(({ process }) => process === name).length;
const upOf = (rows: readonly InstanceRecord[], name: string): number =>
  rows.filter(({ process, state }) => process === name && state === 'serving').length;

const newestReport = (nodes: readonly NodeRecord[]): number =>
  Math.max(...nodes.map((node) => node.last_seen_at));
/** Returns the ids of the silent nodes, by the control plane's clock, which can be wrong. */
function silentNodes(nodes: readonly NodeRecord[]): ReadonlySet<string> {
  const newest = newestReport(nodes);
  return new Set(
    nodes.filter((node) => newest - node.last_seen_at >= LIMITS.offlineMs).map(({ id }) => id),
  );
}

const START = 1_790_000_000_000;
/**
 * A proxy that changes to another control plane may get a configuration that is 10 s old there
 * (docs/adr/0008), and keeps it until the answer to its next poll: the old version must stay that
 * long.
 */
const DRAIN_OF_SEVERAL_S = 15;
/** A message arrives at the latest after this time. */
const LATEST_MS = 9_100;
/**
 * Idle checks, 9 s apart: two, and enough for a renamed machine's old node to count as offline and
 * its containers to move.
 */
const IDLE_CHECKS = 2 + Math.ceil((LIMITS.offlineMs + 10_000) / 9_000);
/** Time in which the loops handle every time of a job that has passed. */
const JOBS_REST_MS = 45_000;
/**
 * Time after the last fault: every deadline that may have to pass, one after the other, and a
 * margin.
 */
const REST_MS = 3 * LIMITS.queueMs + 2 * LIMITS.buildMs + 2 * LIMITS.deployMs + LIMITS.retireMs;

export async function run({
  seed,
  plant = 'none',
  chaosMs = 25_000,
  database: make = inMemory,
  unseenMoves = 3,
  quietStops = 0.2,
  withStatuses,
  rollbacks = 0,
  crowded = 0.2,
  restless: isRestless = seed % 2 === 0,
  changes = 0.4,
  takesPorts = false,
  scales = 0.4,
  losses = 0.3,
  zeros = 0.1,
  scaledDrainSeconds = SCALED_DRAIN_S,
  devices = 0.3,
  workers = 0.4,
  jobs: withJobs = 0,
  withoutWeb: withoutWebShare = 0,
  trace,
}: RunOptions): Promise<RunResult> {
  const random = createRandom(seed);
  const jobChance = createRandom(seed + 7_000_003);
  const hasJobs = jobChance.chance(withJobs);
  const zone = zoneOf(jobChance);
  /** In some runs, the clock of the zone changes within the first minutes. */
  const beforeChange = Date.parse(jobChance.pick(zone.changes)) - jobChance.int(0, 120_000);
  const start = hasJobs && jobChance.chance(0.5) ? beforeChange : START;
  const world = createWorld(random, start);
  const events: HistoryEvent[] = [];
  let faults: Faults | null = null;
  let restless: Restless | null = null;
  let changing: Changing | null = null;
  let scaling: Scaling | null = null;
  let jobs: Jobs | null = null;
  let withoutWeb: WithoutWeb | null = null;
  const scaleChance = createRandom(seed + 3_000_003);
  const history = {
    record(happening: Happening): void {
      const event: HistoryEvent = { at: world.now(), ...happening };
      events.push(event);
      trace?.(event);
      faults?.heard(event);
      restless?.heard(event);
    },
  };
  const database = await make(world.now, createRandom(random.int(1, 1e9)));
  world.atOnce(database.callsAtOnce);
  const webChance = createRandom(seed + 8_000_003);
  const isWithoutWeb = webChance.chance(withoutWebShare);
  const isScaled = scaleChance.chance(isWithoutWeb ? 1 : scales);
  const deviceChance = createRandom(seed + 4_000_003);
  const removalChance = createRandom(seed + 5_000_003);
  const workerChance = createRandom(seed + 6_000_003);
  const hasWorkers = isScaled && workerChance.chance(workers);
  const hasDevices = isScaled && deviceChance.chance(devices);
  /** Shorter or longer than the offline time. */
  const failoverMs = isScaled ? scaleChance.pick([12_000, 30_000]) : null;
  try {
    const deadlines = {
      queue: LIMITS.queueMs,
      route: LIMITS.routeMs,
      build: LIMITS.buildMs,
      deploy: LIMITS.deployMs,
      slack: LIMITS.leaseMs / 4 + 1,
    };
    history.record({ type: 'began', lease_ms: LIMITS.leaseMs, deadlines });
    const network = createNetwork(world);
    const proxies: Proxy[] = [];
    const answers = (hash: string): boolean =>
      proxies.every((p) => !network.split.has(p.name) && p.answers(hash));
    const reaches = (hostIp: string): boolean => proxies.every((p) => !p.shutOut.has(hostIp));
    // Without probe addresses, only the fetches of a proxy are known: enough for a single proxy
    // without faults.
    const settling = random.chance(takesPorts ? 0 : 0.15);
    const probe = settling ? null : answers;
    if (settling) network.sound.add('proxy-1');
    // Its control planes exist after it.
    const forge: Forge = createForge(world, network, history, () => controlPlane);
    const hasTokens = random.chance(withStatuses ?? (database.controlPlanes > 1 ? 0.6 : 0.25));
    const heard = new Map<string, number>();
    const controlPlanes = Array.from({ length: database.controlPlanes }, (_, i) =>
      createControlPlane({
        name: `cp${i + 1}`,
        world,
        database,
        history,
        plant: PLANTS[plant],
        probe,
        reaches,
        forge: hasTokens ? forge : null,
        failoverMs,
        heard,
      }),
    );
    const controlPlane = createFront(world, network, controlPlanes);
    const people = createPeople(world, history, controlPlane, forge, {
      mayDeleteNodes: () => !isDoubled || doubling === 'late',
      rollbacks,
    });
    const idOf = (name: string): string => [...names].find(([, n]) => n === name)?.[0] ?? name;
    const names = new Map<string, string>();
    for (let i = 0; i < (settling ? 1 : random.int(1, 2)); i++)
      proxies.push(createProxy(world, history, controlPlane.staying(), `proxy-${i + 1}`, idOf));
    /**
     * Two machines with one hostname. `own`: each node has a node secret, which the other machine
     * lacks. `late`: the first may be cut off for longer than the offline time, so that the second
     * gets the name.
     */
    const doubled = random.pick(['none', 'none', 'none', 'open', 'own', 'late', 'late'] as const);
    const doubling = isRestless || takesPorts ? 'none' : doubled;
    const isDoubled = doubling !== 'none';
    const moving: Moving = new Map();
    const agents: Agent[] = [];
    const contractOnly = new Set<Agent>();
    const twins: Agent[] = [];
    const doubles: Agent[] = [];
    let heir: Heir | null = null;
    const isCrowded = random.chance(takesPorts ? 1 : crowded);
    const { loosePorts, forgetsMarks } = PLANTS[plant];
    const add = (
      hostname: string,
      role: 'builder' | 'deploy',
      contract: boolean,
      i: number,
    ): void => {
      const engine = createEngine(
        world,
        history,
        hostname,
        `10.0.${role === 'builder' ? 1 : 2}.${i}`,
        loosePorts,
      );
      const skewMs = random.chance(0.3) ? random.pick([-3_600_000, 3_600_000, -5_000, 5_000]) : 0;
      const keepsPort = random.chance(takesPorts ? 0 : isCrowded ? 0.5 : 0.75);
      const parts = {
        keepsPort,
        moving,
        world,
        history,
        controlPlane,
        hostname,
        role,
        engine,
        skewMs,
        hasOwnSecret: doubling === 'own',
        runsInstances: scaleChance.chance(0.85),
        devices: hasDevices && role === 'deploy' ? deviceChance.int(1, 3) : 0,
        forge,
        forgetsMarks,
        readsFiles: isWithoutWeb,
        commandChance: hasJobs ? createRandom(jobChance.int(1, 1e9)) : null,
      };
      const agent = (contract ? createContractAgent : createAgent)(parts);
      agents.push(agent);
      if (contract) contractOnly.add(agent);
      if (!contract && role === 'builder') twins.push(createAgent(parts));
      if (hostname === 'node-1' && !isDoubled && random.chance(0.3)) {
        const next = createEngine(
          world,
          history,
          `heir-of-${hostname}`,
          engine.address,
          loosePorts,
        );
        const machine = createAgent({ ...parts, hostname: `${hostname}-new`, engine: next });
        heir = { machine, old: agents.at(-1) as Agent, nextAddress: '10.0.5.1' };
      }
      if (!contract && isDoubled) {
        if (doubling !== 'late') network.sound.add(hostname);
        const other = createEngine(
          world,
          history,
          `double-of-${hostname}`,
          `10.0.${role === 'builder' ? 3 : 4}.${i}`,
          loosePorts,
        );
        doubles.push(createAgent({ ...parts, engine: other }));
      }
    };
    for (let i = 1; i <= random.int(1, 2); i++)
      add(`builder-${i}`, 'builder', i > 1 && random.chance(0.2), i);
    let nodes = 0;
    for (let i = random.int(1, isCrowded ? 2 : 3); i > 0; i--)
      add(`node-${++nodes}`, 'deploy', nodes > 1 && random.chance(0.15), nodes);
    // A move needs two nodes, and a third one for a change of mind.
    while (isRestless && nodes < 3) add(`node-${++nodes}`, 'deploy', false, nodes);
    const fewest = isScaled ? scaleChance.pick([1, 2, 3, 3, 4]) : 0;
    while (nodes < fewest) add(`node-${++nodes}`, 'deploy', false, nodes);

    for (const one of [...controlPlanes, ...agents, ...proxies]) one.start();
    const drainOfOne = isScaled ? scaledDrainSeconds : 1;
    const drainSeconds = controlPlanes.length > 1 ? DRAIN_OF_SEVERAL_S : drainOfOne;
    // A control plane answers when it has read its clock from the database.
    await world.run(start + 100);
    const ready = people.createProjects(
      ['shop', 'blog', 'wiki', 'docs'].slice(0, isCrowded ? 4 : random.int(1, 4)),
      {
        drainSeconds,
        hasTokens,
        hasVolume: isRestless || takesPorts,
      },
    );
    await world.run(start + 3_000);
    await ready;
    for (const [id, name] of people.projects) names.set(id, name);
    if (isWithoutWeb) {
      withoutWeb = createWithoutWeb({
        world,
        history,
        controlPlane,
        people,
        drainSeconds,
        forge,
        random: webChance,
      });
      let isPrepared = false;
      void withoutWeb.prepare().then(() => (isPrepared = true));
      await world.run(world.now() + 20_000, () => isPrepared);
    }
    if (isScaled) {
      scaling = createScaling({
        world,
        history,
        controlPlane,
        network,
        agents,
        projects: withoutWeb === null ? people.projects : withoutWeb.others,
        drainSeconds,
        random: scaleChance,
        silentMs: isDoubled ? null : failoverMs,
        losses,
        zeros,
        devices: hasDevices ? deviceChance : null,
        workers: hasWorkers ? workerChance : null,
        // A contract-only agent does not report what is missing.
        removals: removalChance.chance(0.5)
          ? { chance: removalChance, from: agents.filter((one) => !contractOnly.has(one)) }
          : null,
      });
      let isPrepared = false;
      void scaling.prepare().then(() => (isPrepared = true));
      await world.run(world.now() + 20_000, () => isPrepared);
    }

    if (hasJobs) {
      jobs = createJobs({
        world,
        history,
        controlPlane,
        agents: agents.filter((one) => !contractOnly.has(one) && one.role === 'deploy'),
        projects: people.projects,
        zone,
        controlPlanes,
        deploy: people.deploy,
        random: jobChance,
        devices: hasDevices ? createRandom(seed + 9_000_003) : null,
        isGentle: isDoubled,
      });
      let isPrepared = false;
      void jobs.prepare().then(() => (isPrepared = true));
      await world.run(world.now() + 20_000, () => isPrepared);
    }

    const script: Life = { name: 'script', alive: true };
    const looking = (ms: number): void => {
      const again = (): void =>
        world.after(
          random.int(ms / 2, ms),
          script,
          () =>
            void people
              .readAll()
              .catch(() => undefined)
              .finally(again),
        );
      again();
    };
    looking(6_000);
    const begun = createFaults({
      world,
      network,
      history,
      controlPlanes,
      agents,
      twins,
      doubles,
      heir,
      engineRestarts: isCrowded && !takesPorts ? 20 : 2,
      isDoubled,
      mayTakeOver: doubling === 'late',
      drain: people.drain,
      stop: people.stop,
      restart: people.restart,
      takenPorts: takesPorts ? 60 : isCrowded ? 3 : 1,
      proxies: settling ? [] : proxies,
      unseenMoves,
      forge: hasTokens ? forge : null,
    });
    // It also hears what it missed: which projects are stop-first.
    for (const event of events) begun.heard(event);
    faults = begun;
    // Long enough for a machine to be silent for the offline time, and to come back.
    const usualMs =
      doubling === 'late' || isRestless ? 4 * chaosMs : isCrowded ? 2 * chaosMs : chaosMs;
    const stormMs = isScaled || hasJobs ? Math.max(usualMs, 3 * chaosMs) : usualMs;
    // Later, only people who change their minds disturb a move.
    begun.begin(isRestless ? chaosMs : stormMs);
    if (isRestless) {
      const chance = createRandom(seed + 1_000_003);
      restless = createRestless({
        world,
        history,
        controlPlane,
        agents,
        projects: people.projects,
        random: chance,
        deploy: people.deploy,
      });
      restless.begin(stormMs);
    }
    const chance = createRandom(seed + 2_000_003);
    if (chance.chance(changes)) {
      changing = createChanging({
        world,
        history,
        controlPlane,
        projects: people.projects,
        forge,
        random: chance,
        deploy: people.deploy,
      });
      // Its last message arrives before the last pushes.
      changing.begin(stormMs - LATEST_MS);
    }
    scaling?.begin(stormMs);
    withoutWeb?.begin(stormMs);
    jobs?.begin(stormMs);
    const absenceMs = !isDoubled && random.chance(0.2) ? random.int(10_000, 100_000) : 0;
    if (absenceMs > 0) begun.absence(random.int(0, stormMs), absenceMs);
    if (isCrowded) for (const id of people.projects.keys()) void people.deploy(id);
    // Sometimes several users act at the same moment: then decisions overlap.
    for (let t = 0; t < stormMs; t += random.int(300, 3_000) * (isRestless || isScaled ? 6 : 1))
      for (let i = random.chance(0.3) ? 3 : 1; i > 0; i--)
        world.after(t + random.int(0, 15), script, people.act);
    await world.run(world.now() + stormMs + absenceMs);
    begun.end();
    restless?.end();
    scaling?.end();
    withoutWeb?.end();
    jobs?.end();
    void scaling?.giveRoom();
    for (const id of people.projects.keys()) if (random.chance(quietStops)) people.stopQuietly(id);
    // Pushes that no fault and no person disturbs.
    const quiet = new Set<string>();
    for (const id of people.projects.keys())
      for (let n = random.int(0, 3); n > 0; n--) {
        quiet.add(id);
        forge.push(id);
      }

    const isBusy = async (): Promise<boolean> => {
      const stores = database.onlooker();
      const [open, nodes] = [await stores.deployments.inProgress(), await stores.nodes.all()];
      for (const node of nodes) if (await hasOpenTask(stores, node.id, world.now())) return true;
      if (hasJobs && (await stores.runs.open()).length > 0) return true;
      if (isScaled && (await hasLeftover(stores, nodes))) return true;
      if (isScaled && (await wanted(stores)).some((one) => one.isAble && !one.isThere)) return true;
      return (
        open.length > 0 ||
        (await stores.hooks.waiting()).length > 0 ||
        (await stores.commitStatuses.countWaiting()).count > 0
      );
    };
    /** A lost removal of a container is tried again after a while, and longer each time. */
    const hasLeftover = async (
      stores: AllStores,
      nodes: Awaited<ReturnType<AllStores['nodes']['all']>>,
    ): Promise<boolean> => {
      const listed = nodes.flatMap(({ containers }) =>
        containers.flatMap(({ labels }) => labels[LABELS.deployment] ?? []),
      );
      const known = await stores.deployments.getMany([...new Set(listed)]);
      return known.some(({ status, retry }) => isTerminal(status) && retry !== null);
    };
    const settle = async (): Promise<void> => {
      // The end is unknown in advance: check every 9 s, and allow several more rounds of
      // registrations.
      const end = world.now() + REST_MS;
      for (let idleChecks = 0; idleChecks < IDLE_CHECKS && world.now() < end; ) {
        await world.run(world.now() + 9_000);
        idleChecks = (await isBusy()) ? 0 : idleChecks + 1;
      }
    };
    if (jobs !== null) await restJobs(jobs);
    await settle();
    const known = await database.onlooker().deployments.getMany([...people.deployments.keys()]);
    if (known.some((d) => isStoppedFirst(d) && !isAtRest(d))) {
      void people.deleteRenamed().catch(() => undefined);
      await settle();
    }
    let isAnswered = false;
    void people.readAll().then(() => {
      isAnswered = true;
    });
    await world.run(world.now() + 3_000, () => isAnswered);
    if (!isAnswered)
      history.record({
        type: 'internal_error',
        message: 'the control plane does not answer at the end',
      });
    await measure();
    history.record({ type: 'ended' });
    return {
      seed,
      violations: check(events),
      history: events,
      steps: world.steps(),
      deployments: people.deployments.size,
      simulatedMs: world.now() - start,
    };

    /** Waits until all times have been handled, and disables all jobs. */
    async function restJobs({ rest }: Jobs): Promise<void> {
      const clock = Math.max(...controlPlanes.map((one) => one.wall()));
      await world.run(world.now() + JOBS_REST_MS);
      history.record({ type: 'job_clock', clock });
      let isResting = false;
      void rest().then(() => (isResting = true));
      await world.run(world.now() + 20_000, () => isResting);
    }

    async function measureRuns(stores: AllStores, project: string): Promise<void> {
      const { items } = await stores.runs.list(project, {}, { limit: 1_000, cursor: null });
      for (const { id: run, job, scheduled_for, status, reason } of items)
        history.record({ type: 'run_listed', run, project, job, scheduled_for, status, reason });
    }

    /** Returns whether a person removed the container, and it is not created again yet. */
    function isMissing(d: DeploymentRecord): boolean {
      return (
        awaitsContainer(d) || d.health?.detail?.startsWith('its container is missing') === true
      );
    }

    /**
     * Returns whether the version waits for a node whose state is unknown, for example a machine that
     * was renamed before its first list. A person must bring it back or delete it.
     */
    function mayWrite(d: DeploymentRecord): boolean {
      return /has not confirmed that it stopped/.test(d.waiting ?? '');
    }

    /** Returns how many instances each running project wants, and whether they serve. */
    async function wanted(stores: AllStores): Promise<Wanted[]> {
      // A deletion can get lost with its control plane. People forget the project anyway.
      const scaled = events.flatMap((e) => (e.type === 'scaling' ? [e.project] : []));
      const ids = new Set([...people.projects.keys(), ...scaled]);
      const projects = await stores.projects.getMany([...ids]);
      const running = await stores.projects.runningDeployments(projects.map(({ id }) => id));
      const nodes = await stores.nodes.all('deploy');
      const silent = silentNodes(nodes);
      const isAble = nodes.some(
        (node) =>
          node.schedulable &&
          node.deleting_at === null &&
          node.capabilities?.includes(CAN_INSTANCES) === true &&
          !silent.has(node.id),
      );
      const all: Wanted[] = [];
      for (const project of projects) {
        const id = running.get(project.id);
        if (id === undefined || project.stopped_at !== null || project.deleting_at !== null)
          continue;
        const d = await stores.deployments.get(id);
        const rows = await stores.instances.ofDeployments([id]);
        const others = rows.filter(isWeb);
        const count = isStopFirst(d.settings) ? 1 : countFor(d, project);
        const isWebThere =
          !hasWeb(d.settings) ||
          (d.lost_since === null &&
            !isMissing(d) &&
            others.length === count - 1 &&
            others.every(({ state }) => state === 'serving'));
        const isThere =
          isWebThere &&
          workersOf(d, project).every(
            ({ name, count: most }) => upOf(rows, name) === most && rowsOf(rows, name) === most,
          );
        // Other projects can have all devices.
        // A version that writes waits for its node. A machine that was renamed is another node.
        const home = nodes.find((node) => node.id === d.node_id);
        // It followed its container, but nothing proves that its old node is the same machine.
        const waits =
          isStopFirst(d.settings) && (mayWrite(d) || home === undefined || silent.has(home.id));
        // A contract-only agent reports no containers. One that started the version of an ended
        // deployment removed the container that serves, and nothing says so.
        const isReplaced = events.some(
          (e) =>
            e.type === 'container' &&
            e.change === 'stopped' &&
            e.cause === 'contract' &&
            e.deployment === id,
        );
        const canHave = isAble && !waits && !isReplaced && !needsDevices(d.settings);
        const isPaused = (process: string): boolean =>
          rows.some(
            (row) =>
              row.process === process &&
              row.state === 'waiting' &&
              presentLosses(row, newestReport(nodes)).length > 0,
          );
        all.push({
          project: project.id,
          deployment: id,
          count,
          isAble: canHave,
          isThere,
          isPaused: isPaused('web'),
          workers: workersOf(d, project).map((one) => ({
            ...one,
            // All processes of a version that writes run on one node. Its agent can be an older one,
            // and a cordoned node takes nothing new.
            isPaused:
              isPaused(one.name) ||
              (isStopFirst(d.settings) &&
                (home?.schedulable !== true ||
                  home.capabilities?.includes(CAN_INSTANCES) !== true)),
          })),
        });
      }
      return all;
    }

    async function measure(): Promise<void> {
      const stores = database.onlooker();
      if (isScaled)
        for (const { project, deployment, count, workers, ...one } of await wanted(stores)) {
          const isAble = one.isAble && !one.isPaused;
          history.record({ type: 'wants', project, deployment, count, isAble });
          for (const { name: process, count: most, isPaused } of workers)
            history.record({
              type: 'wants_workers',
              project,
              deployment,
              process,
              count: most,
              isAble: one.isAble && !isPaused,
            });
        }
      const known = await stores.deployments.getMany([...people.deployments.keys()]);
      const nodes = await stores.nodes.all('deploy');
      const silent = silentNodes(nodes);
      const stories = await stores.deployments.events(known.map((d) => d.id));
      for (const d of known) {
        const story = stories.get(d.id) ?? [];
        const kinds: Record<string, number> = {};
        for (const e of story) kinds[e.kind] = (kinds[e.kind] ?? 0) + 1;
        history.record({ type: 'story', deployment: d.id, kinds });
        history.record({
          type: 'gauge',
          name: `lines in the story of ${d.id}`,
          value: story.length,
          bound: 200,
        });
        // A version that was stopped for a failed one must serve again. Not if its data is on another
        // node now: then a newer version must be deployed.
        const data =
          d.settings.volumes.length === 0
            ? null
            : currentCopy(await stores.volumes.ofProject(d.project_id));
        const isStopped =
          isStoppedFirst(d) &&
          !isAtRest(d) &&
          (data === null || data.node_id === d.node_id) &&
          !(mayWrite(d) && silent.has(d.node_id ?? ''));
        history.record({
          type: 'gauge',
          name: `${d.id} is still stopped`,
          value: isStopped ? 1 : 0,
          bound: 0,
        });
        if (!isSettled(d.status)) continue;
        history.record({
          type: 'gauge',
          name: `losses of ${d.id}`,
          value: d.losses.length,
          bound: LIMITS.maxLosses,
        });
      }
      // The deletion of a project may wait for a node that does not come back.
      for (const project of await stores.projects.getMany([...forge.pushed]))
        if (project.deleting_at === null) await measurePushes(stores, project);
      for (const project of await stores.projects.getMany([...people.projects.keys()]))
        await measureReleases(stores, project);
      if (hasJobs)
        for (const project of await stores.projects.getMany([...people.projects.keys()]))
          if (project.deleting_at === null) await measureRuns(stores, project.id);
      for (const node of await stores.nodes.all()) {
        const open = (await stores.tasks.openFor(node.id, world.now())).length;
        history.record({
          type: 'gauge',
          name: `open tasks of ${node.hostname} at rest`,
          value: open,
          bound: 0,
        });
        if (node.drain === null || node.drain.finished_at === null) continue;
        const left = (await stores.volumes.onNode(node.id)).filter(
          (c) => c.state === 'current' && c.names.length > 0,
        );
        history.record({ type: 'drained', node: node.hostname, left: left.map((c) => c.project) });
      }
    }
    /**
     * Records the deployments of a project as their list shows them, and the copy of its volume
     * that counts.
     */
    async function measureReleases(
      stores: AllStores,
      { id: project, volumes, deleting_at }: ProjectRecord,
    ): Promise<void> {
      if (deleting_at !== null) return;
      const { items } = await stores.deployments.list(
        { project_id: project },
        { limit: 200, cursor: null },
      );
      for (const d of await stores.deployments.getMany(items.map(({ id }) => id)))
        history.record({
          type: 'listed',
          project,
          deployment: d.id,
          generation: d.generation,
          state: d.status,
          trigger: people.goesBack.has(d.id) ? 'older' : d.trigger,
          of: d.rollback_of,
          image: d.image_tag,
          commit: d.commit ?? d.requested_commit,
          place: placeOf(d.settings),
          alone: d.settings.replace === 'recreate',
        });
      if (volumes.length === 0) return;
      const current = currentCopy(await stores.volumes.ofProject(project));
      const disks = [...agents, ...doubles, ...(heir === null ? [] : [heir.machine])].map(
        ({ engine }) => engine.disk,
      );
      const found =
        current === null
          ? null
          : disks.map((disk) => disk.find(project, current.id)).find((copy) => copy !== null);
      history.record({
        type: 'kept',
        project,
        copy: current?.id ?? null,
        entries: found?.entries ?? null,
        counts: found?.counts ?? null,
      });
    }
    /**
     * Records what each push caused, and whether the last pushed commit was deployed, by its id or
     * without a look.
     */
    async function measurePushes(stores: AllStores, settings: ProjectRecord): Promise<void> {
      const project = settings.id;
      const tip = forge.tip(settings);
      const { items } = await stores.deployments.list(
        { project_id: project },
        { limit: 200, cursor: null },
      );
      for (const d of items) {
        const by = d.created_by;
        const push = by?.kind === 'hook' && by.id !== null ? forge.pushOf(by.id) : null;
        if (push !== null) history.record({ type: 'caused', push, deployment: d.id });
      }
      // Without a commit: it failed before its build, which would have taken the tip. A person may
      // have asked after the push.
      const sincePush = items.slice(0, items.findIndex((d) => d.trigger === 'hook') + 1);
      const ofTip = items.filter(
        (d) =>
          (d.commit ?? d.requested_commit) === tip ||
          ((d.commit ?? d.requested_commit) === null && sincePush.includes(d)),
      );
      // A person may have cancelled it or rolled back, with a request that was sent long before.
      const newest = ofTip[0];
      const isLater = (d: (typeof items)[number]): boolean =>
        newest !== undefined && d.generation > newest.generation && d.trigger !== 'hook';
      const isUp =
        ofTip.some((d) => ['running', 'failed', 'cancelled'].includes(d.status)) ||
        items.some(isLater);
      // Only people start a stopped project.
      const given = (
        await stores.hooks.deliveries(project, { limit: 200, cursor: null })
      ).items.filter((e) => e.commit === tip);

      const isSkipped = given.some(
        (e) => e.verdict === 'skipped' && e.reason?.startsWith('the project is stopped') === true,
      );
      const deployed = isSkipped || (newest !== undefined && (isUp || !quiet.has(project)));
      // A push before a change of the settings may have been skipped.
      const pushedAt = forge.lastPush(settings)?.at ?? 0;
      const isDue =
        settings.deploy_on_push &&
        pushedAt > (changing?.changedAt(project) ?? -LATEST_MS) + LATEST_MS;
      if (isDue) history.record({ type: 'tip', project, commit: tip, deployed });
      const last = new Map<string, StatusRecord>();
      // Berth drops what waits for a repository that the project does not have any more.
      const records = await stores.deployments.getMany(items.map(({ id }) => id));
      const dropped = new Set(
        records.flatMap((d) => (d.settings.git_url === settings.git_url ? [] : [d.commit])),
      );
      for (const d of items) {
        const status = await stores.commitStatuses.ofDeployment(d.id);
        if (status !== null && status.seq > (last.get(status.commit)?.seq ?? 0))
          last.set(status.commit, status);
      }
      for (const { deployment_id, commit, state, error } of last.values())
        if (error === null && !dropped.has(commit))
          history.record({ type: 'status_due', deployment: deployment_id, commit, state });
    }
  } finally {
    await database.close();
  }
}

/** A control plane may delete the node after it was listed. */
async function hasOpenTask(stores: AllStores, nodeId: string, now: number): Promise<boolean> {
  try {
    return (await stores.tasks.openFor(nodeId, now)).length > 0;
  } catch (error) {
    if (error instanceof DomainError && error.code === 'not_found') return false;
    throw error;
  }
}
