/**
 * A control plane of a simulated run: the real flow, driver, stores, loops and routing. Only the
 * wiring is here, as in app.ts and api/routes, with three differences: it uses the world's clock,
 * every call to a store waits for its turn, and it can die or freeze before or after any call. A
 * restart creates everything again on the same database.
 */
import { silentLogger } from '@berth/kit/log';
import type { PolicySource } from '../../src/domain/identity/policy.ts';
import type { NodeRegister } from '@berth/wire/node';
import type { TaskReport } from '@berth/wire/task';
import type { TaskState } from '@berth/wire/vocabulary';
import type { History } from '@berth/testbed/history';
import { type Changes, createChanges, type Notifier } from '../../src/domain/platform/changes.ts';
import type {
  BuiltConfig,
  ConfigSource,
  ReachVerdict,
} from '../../src/domain/routes/configuration.ts';
import type { AgentProof, NodeSecret } from '../../src/domain/nodes/agent-identity.ts';
import { createFailoverWatch, type FailoverWatch } from '../../src/domain/nodes/failover-watch.ts';
import { DomainError } from '../../src/domain/platform/errors.ts';
import { DEFAULT_LIMITS, type Limits } from '../../src/domain/deployments/facts.ts';
import type { ForgeAnswer, ForgeRequest } from '../../src/domain/git/forge-api.ts';
import type { Plan } from '../../src/domain/deployments/plan.ts';
import type { NodeRecord, TaskRecord } from '../../src/domain/platform/records.ts';
import type { Claim } from '../../src/domain/deployments/task-store.ts';
import type { NewRun } from '../../src/domain/runs/run-store.ts';
import type { AllStores } from '../../src/store/open.ts';
import type { VolumeWork } from '../../src/domain/data/volume-store.ts';
import { createUptimeClock, type UptimeClock } from '../../src/domain/platform/uptime.ts';
import { type CacheIndex, createCacheIndex } from '../../src/domain/nodes/cache-index.ts';
import { createDriver, type Driver } from '../../src/flow/driver.ts';
import type { StatusSettings } from '../../src/loops/settings.ts';
import { LOOPS } from '../../src/loops/index.ts';
import { createConfigSource } from '../../src/routing/config-source.ts';
import { createPolicySource } from '../../src/routing/policy-source.ts';
import { StoreError } from '../../src/store/engine/errors.ts';
import type { Hold, SimDatabase } from './database.ts';
import type { Moment } from './gate.ts';
import { type JobEndpoints, jobEndpoints } from './job-endpoints.ts';
import type { Plant } from './plants.ts';
import { createRandom } from './random.ts';
import type { Life, World } from './world.ts';

/** Seconds instead of minutes: shorter deadlines let a run meet more of them. */
/** Maximum time in ms between the read of the silent nodes and the event of the failover loop. */
const DECIDED_MS = 1_000;

export const LIMITS: Limits = {
  claimMs: 12_000,
  leaseMs: 6_000,
  queueMs: 60_000,
  buildMs: 60_000,
  deployMs: 40_000,
  retireMs: 40_000,
  lookMs: 20_000,
  routeMs: 15_000,
  offlineMs: 20_000,
  // The agents of the simulator send no beats yet.
  failoverMs: null,
  returnMs: 25_000,
  probeSeconds: 5,
  maxLosses: 3,
  maxAttempts: 5,
  weights: DEFAULT_LIMITS.weights,
  memoryOvercommit: DEFAULT_LIMITS.memoryOvercommit,
};
const LOG = silentLogger();
const PLATFORM = { registryAddr: 'registry:5000', authServiceUrl: null, reservedPrefixes: [] };
const ROUTING = { baseDomain: 'sim.test', authServiceUrl: null, acmeResolver: 'letsencrypt' };
/**
 * Loops run this much less often than in production: an empty run finds nothing and costs as much
 * as a full one.
 */
const PACE = 4;
const PERIOD_MS = 1_000;
const BEAT_MS = 600;
/** Longer than an answer takes plus the time in which a proxy applies it. */
const SETTLE_MS = 1_000;
/**
 * Much shorter than in production: a decision that still needs the history would fail here. Not
 * shorter than the offline time, because retention forgets nodes that were silent for so long, and
 * with them the owner of a name.
 */
const KEEP = { deployments: 1, ms: LIMITS.offlineMs + 1_000, logBytes: 200 };
const TOKEN = { username: null, token: 'token', apiUrl: null };
const LOST_NOTIFICATIONS = 0.3;
/** Codes of the errors after the connection to the database was lost. */
const CUT: readonly string[] = ['unreachable', 'unknown_outcome'];

export type OwnSecret = { node_id: string; hash: string };
export type Registered = NodeRecord & { secret?: OwnSecret; volumes?: VolumeWork };

/** The endpoints of the API that others use. */
export type Endpoints = {
  stores: AllStores;
  driver: Driver;
  changes: Changes;
  source: ConfigSource;
  /** `shown`: the secret of an agent that asks for a node secret; null: AGENT_SECRET is not set. */
  register(body: NodeRegister, shown?: { secret: OwnSecret | null } | null): Promise<Registered>;
  tasks(nodeId: string): Promise<TaskRecord[]>;
  start(taskId: string): Promise<Claim>;
  renew(
    taskId: string,
    token: string,
  ): Promise<{ cancel_requested: boolean; lease_expires_at: number }>;
  complete(
    taskId: string,
    token: string | null,
    report: TaskReport,
  ): Promise<{ status: TaskState }>;
  config(): BuiltConfig;
  jobs: JobEndpoints;
};
export type ControlPlaneProcess = {
  /** Returns null while it is down or frozen. */
  api(): Endpoints | null;
  /** Starts it and cancels every planned death. */
  start(): void;
  /** Dies at the n-th call to a store from now, before or after the call. */
  dieAtCall(n: number, moment: Moment): void;
  /**
   * Dies at the n-th message to the database from now, in the middle of an operation. Returns false
   * when there is no wire.
   */
  dieOnWire(n: number, moment: Moment): boolean;
  /** Loses its connections to the database. Returns false when there are none. */
  loseConnections(): boolean;
  /** Sends kill -9 now. */
  kill(): void;
  /** Stops it for `ms` and continues it (SIGSTOP, SIGCONT). */
  freeze(ms: number): void;
  /** Moves its machine's clock. */
  jump(ms: number): void;
  /** The time by its machine's clock. */
  wall(): number;
  /** Wakes held requests for the topic; the listener ends with the process. */
  on(topic: Parameters<Changes['on']>[0], listener: () => void): void;
  /** Reports an error that has no row in the error table. */
  surprised(error: unknown): void;
};

/** A forge, as the sender of commit statuses sees it. */
type StatusForge = { status(sender: Life, request: ForgeRequest): Promise<ForgeAnswer> };

/** `died` ends the wait for calls in progress. */
type Process = Life & { died: Promise<void>; bury: () => void };

export function createControlPlane(deps: {
  name: string;
  world: World;
  database: SimDatabase;
  history: History;
  plant: Plant;
  /**
   * null: no probe addresses are set, and a fetched configuration counts as live after SETTLE_MS.
   */
  probe: ((hash: string) => boolean) | null;
  /** Whether requests of every proxy reach this address. */
  reaches: (hostIp: string) => boolean;
  /** Where commit statuses go; null: the projects have no git token. */
  forge: StatusForge | null;
  /** Time in ms after which the instances of a silent node move; null: never. */
  failoverMs: number | null;
  /** When each node was last heard by any control plane. */
  heard: Map<string, number>;
}): ControlPlaneProcess {
  const { name, world, database, history, plant, heard } = deps;
  let life = process(false);
  let hold: Hold | null = null;
  let api: Endpoints | null = null;
  let death: { calls: number; moment: Moment } | null = null;
  let frozenUntil = 0;
  let skew = 0;
  const wall = (): number => world.now() + skew;
  let frozenAt = 0;
  /** The clock of a frozen process stops, although a timer may still fire here. */
  const monotonic = (): number => (frozenUntil > world.now() ? frozenAt : world.now());
  let wasCut = false;
  let ids = 0;
  /**
   * A separate source of chance: the server decides when a message arrives, which must not change
   * other random numbers.
   */
  const notifierChance = createRandom(world.random.int(1, 1e9));
  let servesSince = 0;
  const kept: { topic: Parameters<Changes['on']>[0]; listener: () => void }[] = [];

  function process(alive: boolean): Process {
    let bury = (): void => {};
    const died = new Promise<void>((resolve) => {
      bury = resolve;
    });
    return { name, alive, died, bury };
  }

  function die(): void {
    life.alive = false;
    life.bury();
    hold?.kill();
    [hold, api, death] = [null, null, null];
    tellServing();
  }

  let isServing = false;
  function tellServing(): void {
    const up = api !== null && frozenUntil <= world.now();
    if (up === isServing) return;
    isServing = up;
    history.record({ type: 'serving', name, up });
  }

  function start(): void {
    death = null;
    frozenUntil = 0;
    tellServing();
    hold?.wire?.spare();
    if (life.alive) return;
    const mine = process(true);
    life = mine;
    begin(mine).catch((error: unknown) => {
      surprised(error);
      if (mine.alive) die();
    });
  }

  async function begin(mine: Process): Promise<void> {
    const opened = await world.during(() => database.open(wall));
    if (!mine.alive) return opened.kill();
    hold = opened;
    const { notifier } = opened.stores;
    const stores = recorded(plant.stores(withTurns(opened.stores, mine), world), mine);
    const changes = createChanges(notifier === null ? null : withFaults(notifier, mine));
    const now = wall;
    const newId = (): string => `${name}-${++ids}`;
    const uptime = await createUptimeClock({
      store: stores.uptime,
      monotonic,
      wall: now,
      leaseMs: LIMITS.leaseMs,
    });
    const pause = (attempt: number): Promise<void> =>
      world.sleep(world.random.int(1, 2 ** Math.min(attempt + 1, 7)), mine);
    const cacheIndex = createCacheIndex();
    const failover = plant.watch(
      createFailoverWatch({
        uptime,
        nodes: stores.nodes,
        limits: { ...LIMITS, failoverMs: deps.failoverMs },
        now,
      }),
    );
    const driverDeps = {
      stores,
      changes,
      limits: LIMITS,
      platform: PLATFORM,
      now,
      uptime,
      pause,
      newId,
      cacheIndex,
      overdue: failover.overdue,
      takenAddresses: failover.taken,
    };
    const driver = plant.driver(withFailovers(createDriver(driverDeps)), stores, world);
    servesSince = monotonic();
    const source = plant.source(
      createConfigSource({
        routes: stores.routes,
        changes,
        settings: ROUTING,
        now: monotonic,
        log: LOG,
      }),
    );
    api = endpoints(stores, driver, changes, source, uptime);
    tellServing();
    for (const { topic, listener } of kept) changes.on(topic, listener);
    await source.refresh();
    const policy = createPolicySource({
      store: stores.policy,
      changes,
      settings: { ...ROUTING, domainQuarantineMs: 0 },
      now,
      log: LOG,
    });
    runLoops(mine, { stores, driver, changes, source, policy, uptime, cacheIndex, failover });
  }

  const silentFor = (nodeId: string): number =>
    monotonic() - Math.max(heard.get(nodeId) ?? 0, servesSince);

  /**
   * Returns whether this process can know that the node became silent within the last hour. After a
   * restart, a node that has never listed its containers is known only by the machine's clock, and
   * after a jump of that clock by hours, it seems to be silent for longer.
   */
  const isDated = ({ id, observed_at }: NodeRecord): boolean =>
    Math.abs(skew) < 3_600_000 || observed_at !== null || (heard.get(id) ?? 0) >= servesSince;

  /**
   * Records each move of the instances of a silent node. A node that became silent right after the
   * loop had read the silent ones does not count.
   */
  function withFailovers(driver: Driver): Driver {
    return {
      ...driver,
      async advance(id, event) {
        const { failoverMs } = deps;
        if (event.type === 'node_lost' && failoverMs !== null) {
          const nodes = await world.during(() => database.onlooker().nodes.all('deploy'));
          const silent = nodes.filter(
            (node) => silentFor(node.id) >= failoverMs + DECIDED_MS && isDated(node),
          ).length;
          const { node_id: node } = event;
          history.record({ type: 'failover', node, silent, nodes: nodes.length });
        }
        return driver.advance(id, event);
      },
    };
  }

  /** A loop logs an error of one deployment and goes on with the others: it must be an expected one. */
  const loopLog = Object.assign(silentLogger(), {
    error: (fields: { err?: unknown }) => {
      if (fields.err !== undefined) surprised(fields.err);
    },
  });

  /**
   * Runs loops like kit/loop: with a period, a wake that is not lost during a run, and errors that
   * end only the run.
   */
  function runLoops(
    mine: Process,
    made: {
      stores: AllStores;
      driver: Driver;
      changes: Changes;
      source: ConfigSource;
      policy: PolicySource;
      uptime: UptimeClock;
      cacheIndex: CacheIndex;
      failover: FailoverWatch;
    },
  ): void {
    for (const declaration of LOOPS) {
      // They change nothing about deployments.
      if (declaration.name === 'problems' || declaration.name === 'notifications') continue;
      let signal = new AbortController();
      const { probe: answers } = deps;
      const probe =
        answers === null
          ? null
          : (hash: string): Promise<boolean> => Promise.resolve(plant.probe(answers(hash)));
      const source: ConfigSource = {
        ...made.source,
        current() {
          // The route confirmer probes once: it must not wait for a real clock and probe again. The
          // next period is soon enough.
          if (declaration.name !== 'instance-drains') signal.abort();
          return made.source.current();
        },
      };
      const loop = declaration.make({
        ...made.stores,
        ...made,
        source,
        limits: LIMITS,
        probe,
        reach:
          probe === null
            ? null
            : ({ host_ip }) => Promise.resolve(verdictOf(deps.reaches(host_ip))),
        settleMs: SETTLE_MS,
        scans: null,
        statuses:
          deps.forge === null
            ? null
            : {
                send: sendTo(deps.forge, mine),
                tokenOf: () => Promise.resolve(TOKEN),
                publicUrl: 'https://berth.test',
              },
        presence: { arePeopleHere: () => false },
        keep: KEEP,
        backupSchedule: null,
        clean: { keepReleases: 10, intervalMs: null },
        registryAddr: () => 'registry:5000',
        now: wall,
        monotonic,
        log: loopLog,
      });
      // The real loop pauses by the real clock between its steps, 1 s in total.
      const run =
        declaration.name === 'deployment-retention' ? () => clean(made.stores, mine) : loop;
      let running = false;
      let woken = false;
      let timer: Life = { name: 'timer', alive: false };
      const begin = async (): Promise<void> => {
        running = true;
        woken = false;
        signal = new AbortController();
        await run(signal.signal).catch(surprised);
        running = false;
        const period = Math.max(declaration.periodMs, PERIOD_MS);
        // The clock of every deadline ticks as in production: a slower tick would count as a gap.
        const next =
          declaration.name === 'uptime' ? BEAT_MS : world.random.int(period, period * PACE);
        plan(woken ? 5 : next);
      };
      const plan = (ms: number): void => {
        timer.alive = false;
        const own: Life = { name: declaration.name, alive: true };
        timer = own;
        world.after(ms, mine, () => {
          if (own.alive) void begin();
        });
      };
      const wake = (): void => {
        if (!mine.alive) return;
        woken = true;
        if (!running) plan(5);
      };
      for (const topic of declaration.wokenBy) made.changes.on(topic, wake);
      void begin();
    }
  }

  /** A request leaves only while this process runs. */
  const sendTo =
    (forge: StatusForge, mine: Process): StatusSettings['send'] =>
    async (request) => {
      while (frozenUntil > world.now())
        await world.sleep(Math.min(200, frozenUntil - world.now()), mine);
      return mine.alive ? forge.status(mine, request) : new Promise(() => undefined);
    };

  /**
   * Its steps are no store calls: they end with the process, whose database is closed under them.
   */
  async function clean(stores: AllStores, mine: Life): Promise<void> {
    try {
      for await (const _step of await stores.retention.begin(KEEP, world.now))
        if (!mine.alive) return;
    } catch (error) {
      if (mine.alive) throw error;
    }
  }

  function surprised(error: unknown): void {
    // A race with a deletion or another decision has a row in the error table; the loop logs it and
    // tries again.
    if (error instanceof DomainError) return;
    // The caller gets `internal`; a loop tries again.
    if (wasCut && error instanceof StoreError && CUT.includes(error.code)) return;
    history.record({
      type: 'internal_error',
      message: String(error instanceof Error ? error.stack : error),
    });
  }

  /**
   * Lets every method of every store wait for its turn; each may be the last call of this control
   * plane.
   */
  function withTurns(stores: AllStores, mine: Process): AllStores {
    const never = new Promise<never>(() => {});
    const thawed = async (): Promise<void> => {
      // In pieces, because it may be continued sooner.
      while (frozenUntil > world.now())
        await world.sleep(Math.min(200, frozenUntil - world.now()), mine);
    };
    const wrap = (call: () => Promise<unknown>) => async (): Promise<unknown> => {
      await world.turn(mine);
      await thawed();
      const last = death !== null && --death.calls <= 0 ? death.moment : null;
      if (last === 'before') die();
      if (!mine.alive) return never;
      try {
        return await world.during(() => Promise.race([call(), mine.died]));
      } finally {
        if (last === 'after' && mine.alive) die();
        await (mine.alive ? thawed() : never);
      }
    };
    return eachMethod(stores, (call) => wrap(call)());
  }

  /** Delays or loses messages of the other control plane, which is allowed. */
  function withFaults(notifier: Notifier, mine: Process): Notifier {
    return {
      send: (topics) => {
        if (mine.alive) notifier.send(topics);
      },
      subscribe: (listener) =>
        notifier.subscribe((topics) => {
          if (!notifierChance.chance(LOST_NOTIFICATIONS))
            world.after(notifierChance.int(1, 200), mine, () => listener(topics));
        }),
    };
  }

  function recorded(stores: AllStores, mine: Life): AllStores {
    const commit =
      (write: typeof stores.flow.commit): typeof stores.flow.commit =>
      async (plan) => {
        const lost = plan.changeTasks.flatMap((change) =>
          'end' in change && change.end === 'lost' ? [change.id] : [],
        );
        const tasks = await world.during(() =>
          Promise.all(lost.map((id) => database.onlooker().tasks.get(id))),
        );
        // The clock in the database is one tick behind.
        const at = (await world.during(() => database.onlooker().uptime.read(0))) + 2 * BEAT_MS;
        const result = await write(plan);
        if (result === 'committed' && mine.alive) tellMoves(plan);
        if (result === 'committed' && mine.alive)
          for (const task of tasks) {
            const why =
              task.lease_expires_at === null
                ? 'queue'
                : at > task.wall_deadline_at
                  ? 'wall'
                  : 'lease';
            history.record({ type: 'taken_away', task: task.id, lease: task.lease_token, why });
          }
        return result;
      };
    return {
      ...stores,
      ...withRuns(stores, mine),
      flow: { ...stores.flow, commit: commit(stores.flow.commit) },
    };
  }

  /** Records runs before they are written, and each lease that a run loses. */
  function withRuns({ jobs, runs }: AllStores, mine: Life): Pick<AllStores, 'jobs' | 'runs'> {
    const tell = (run: NewRun, not: string | null): void => {
      const { id, project_id: project, job, scheduled_for, retries } = run;
      history.record({ type: 'run_planned', run: id, project, job, scheduled_for, retries, not });
    };
    return {
      jobs: {
        ...jobs,
        due(job, times, planned, now) {
          for (const run of planned.runs) tell(run, run.not?.status ?? null);
          return jobs.due(job, times, planned, now);
        },
        begin(run, overlap, now) {
          tell(run, null);
          return jobs.begin(run, overlap, now);
        },
      },
      runs: {
        ...runs,
        create(run, now) {
          tell(run, null);
          return runs.create(run, now);
        },
        async loseTask(task, why, now, offerUntil) {
          const isLost = await runs.loseTask(task, why, now, offerUntil);
          if (isLost && mine.alive)
            history.record({ type: 'taken_away', task: task.id, lease: task.lease_token, why });
          return isLost;
        },
      },
    };
  }

  function tellMoves({
    createDeployment,
    changeDeployments: deployments,
    project,
    volumes,
  }: Plan): void {
    const moved = (deployment: string, to: string, code: string | null): void =>
      history.record({ type: 'moved', deployment, to, code });
    if (createDeployment !== null) moved(createDeployment.id, createDeployment.status, null);
    for (const { id, set } of deployments) {
      if (set.status !== undefined) moved(id, set.status, set.error?.code ?? null);
      if (typeof set.route_published_at === 'number') moved(id, 'published', null);
    }
    for (const { id, state, source } of volumes)
      if (state === 'current' && source !== null)
        history.record({ type: 'switched', project: project.id, copy: id });
  }

  return {
    api: () => (frozenUntil > world.now() ? null : api),
    start,
    dieAtCall(calls, moment) {
      death = { calls, moment };
    },
    dieOnWire(n, moment) {
      const mine = life;
      hold?.wire?.killAt(n, moment, () => {
        if (mine.alive) die();
      });
      return hold !== null && hold.wire !== null;
    },
    loseConnections() {
      if (hold === null || hold.wire === null) return false;
      wasCut = true;
      history.record({ type: 'cut', name });
      hold.wire.drop();
      return true;
    },
    kill() {
      if (life.alive) die();
    },
    freeze(ms) {
      if (frozenUntil <= world.now()) frozenAt = world.now();
      frozenUntil = world.now() + ms;
      tellServing();
      world.after(ms, { name: 'thaw', alive: true }, tellServing);
    },
    jump(ms) {
      skew += ms;
    },
    wall,
    on(topic, listener) {
      kept.push({ topic, listener });
      api?.changes.on(topic, listener);
    },
    surprised,
  };

  /** The endpoints of api/routes/agent.ts and traefik.ts, without HTTP. */
  function endpoints(
    stores: AllStores,
    driver: Driver,
    changes: Changes,
    source: ConfigSource,
    uptime: UptimeClock,
  ): Endpoints {
    const now = wall;
    return {
      stores,
      driver,
      changes,
      source,
      async register(body, shown = null) {
        let given: OwnSecret | null = null;
        const newSecret = (node_id: string): NodeSecret => {
          given = { node_id, hash: `${name}-secret-${++ids}` };
          return { text: given.hash, hash: given.hash };
        };
        const secret = shown?.secret ?? null;
        const proof: AgentProof =
          shown === null
            ? { kind: 'open' }
            : secret === null
              ? { kind: 'shared', fingerprint: '' }
              : { kind: 'node', ...secret };
        const entry = {
          proof,
          requireSecrets: false,
          address: '',
          offlineMs: LIMITS.offlineMs,
          newSecret: shown === null ? null : newSecret,
        };
        const at = uptime.estimate();
        const { node, before, routesMoved } = await stores.nodes.register(body, now(), entry, at);
        heard.set(node.id, monotonic());
        stores.nodes.heard(node.id, uptime.estimate().at);
        if (
          before === null ||
          now() - before.last_seen_at > LIMITS.offlineMs ||
          before.agent_version !== node.agent_version
        )
          changes.notify('work');
        if (routesMoved === true || (before !== null && before.host_ip !== node.host_ip))
          changes.notify('routes');
        await driver.observed(node, at.at).catch(surprised);
        // The product compares only reports that differ from the one before
        // (api/volume-reports.ts).
        const volumes =
          body.volumes === undefined || body.role === 'builder'
            ? undefined
            : await stores.volumes.report(node, body.volumes, now(), body.removed_volumes);
        return {
          ...node,
          ...(given === null ? {} : { secret: given }),
          ...(volumes === undefined ? {} : { volumes }),
        };
      },
      async tasks(nodeId) {
        heard.set(nodeId, monotonic());
        const { at } = uptime.estimate();
        // As a beat does (api/routes/agent.ts): this process may not have the row of the node.
        if (!stores.nodes.heard(nodeId, at) && database.controlPlanes > 1)
          await stores.nodes.heardOnce(nodeId, at);
        return stores.tasks.openFor(nodeId, now());
      },
      async start(id) {
        const lease = {
          token: `${name}-lease-${++ids}`,
          expires_at: (await uptime.now()).at + LIMITS.leaseMs,
        };
        const claim = await stores.tasks.claim(id, lease, now(), LIMITS.maxAttempts);
        return { ...claim, lease_expires_at: now() + LIMITS.leaseMs };
      },
      async renew(id, token) {
        const { cancel_requested } = await stores.tasks.renew(
          id,
          token,
          (await uptime.now()).at + LIMITS.leaseMs,
          now(),
        );
        const lease_expires_at = now() + LIMITS.leaseMs;
        return { cancel_requested, lease_expires_at };
      },
      complete: (id, token, report) => driver.report(id, token, report),
      config: () => source.current(),
      jobs: jobEndpoints({ ...stores, limits: LIMITS, uptime, changes, now }),
    };
  }
}

/** Wraps every call of the stores with `around`. */
export function eachMethod(
  stores: AllStores,
  around: (call: () => Promise<unknown>, noun: string, method: string) => Promise<unknown>,
): AllStores {
  const wrapped = Object.entries(stores).map(([noun, store]) => {
    if (typeof store !== 'object' || store === null) return [noun, store];
    const methods = Object.entries(
      store as Record<string, (...args: unknown[]) => Promise<unknown>>,
    ).map(([name, method]) => [
      name,
      (...args: unknown[]) => around(() => method.apply(store, args), noun, name),
    ]);
    return [noun, Object.fromEntries(methods)];
  });
  return Object.fromEntries(wrapped) as AllStores;
}

const verdictOf = (reached: boolean): ReachVerdict =>
  reached ? { kind: 'reached' } : { kind: 'unreachable', proxy: 'https://proxy', saw: 'no answer' };
