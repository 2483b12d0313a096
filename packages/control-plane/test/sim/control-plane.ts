/**
 * The control plane of a simulated run: the real flow, driver, stores, loops and routing. Only what wires them is here, as
 * app.ts and api/routes do it, with three differences: the clock is the world's, every call to a store waits for its turn,
 * and it can die before or after any of them. A restart makes everything anew on the same database.
 */
import { silentLogger } from '@berth/kit/log';
import type { NodeRegister } from '@berth/wire/node';
import type { TaskReport } from '@berth/wire/task';
import type { TaskState } from '@berth/wire/vocabulary';
import type { History } from '@berth/testbed/history';
import { type Changes, createChanges } from '../../src/domain/changes.ts';
import type { BuiltConfig, ConfigSource } from '../../src/domain/configuration.ts';
import { DomainError } from '../../src/domain/errors.ts';
import type { Limits } from '../../src/domain/facts.ts';
import type { NodeRecord, TaskRecord } from '../../src/domain/records.ts';
import type { Claim, Stores } from '../../src/domain/stores.ts';
import { createDriver, type Driver } from '../../src/flow/drive.ts';
import type { LoopDeps } from '../../src/loops/deps.ts';
import { LOOPS } from '../../src/loops/index.ts';
import { createConfigSource } from '../../src/routing/config-source.ts';
import type { Network } from './network.ts';
import type { Plant } from './plants.ts';
import type { Life, World } from './world.ts';

/** Everything in seconds rather than minutes: the shorter the deadlines, the more of them a run meets. */
export const LIMITS: Limits = {
  claimMs: 12_000,
  leaseMs: 6_000,
  queueMs: 60_000,
  buildMs: 60_000,
  deployMs: 40_000,
  retireMs: 40_000,
  routeMs: 15_000,
  offlineMs: 20_000,
  probeSeconds: 5,
  maxLosses: 3,
  maxAttempts: 5,
};
const PLATFORM = { registryAddr: 'registry:5000', authServiceUrl: null };
const ROUTING = { baseDomain: 'sim.test', authServiceUrl: null, acmeResolver: 'letsencrypt' };
/** Loops run this much less often than in production: an empty run of one finds nothing and costs as much as a full one. */
const PACE = 4;
const PERIOD_MS = 1_000;

/** What others may ask of it, as the API offers it. */
export type Endpoints = {
  stores: Stores;
  driver: Driver;
  changes: Changes;
  source: ConfigSource;
  register(body: NodeRegister): Promise<NodeRecord>;
  tasks(nodeId: string): Promise<TaskRecord[]>;
  start(taskId: string): Promise<Claim>;
  renew(taskId: string, token: string): Promise<{ cancel_requested: boolean; lease_expires_at: number }>;
  complete(taskId: string, token: string | null, report: TaskReport): Promise<{ status: TaskState }>;
  config(): BuiltConfig;
};
export type ControlPlane = {
  /** Asks over the network. */
  ask<T>(caller: Life, what: (api: Endpoints) => T | Promise<T>): Promise<T>;
  /** Dies at the n-th call to a store from now, before or after it is done. */
  dieAtCall(n: number, moment: 'before' | 'after'): void;
  start(): void;
  isUp(): boolean;
  /** Wakes who holds a request for the topic; the listener goes when the control plane does. */
  on(topic: Parameters<Changes['on']>[0], listener: () => void): void;
};

export function createControlPlane(deps: {
  world: World;
  network: Network;
  stores: Stores;
  history: History;
  plant: Plant;
  probe: (hash: string) => boolean;
}): ControlPlane {
  const { world, network, history, plant } = deps;
  let life: Life = { name: 'control-plane', alive: false };
  let api: Endpoints | null = null;
  let death: { calls: number; moment: 'before' | 'after' } | null = null;
  let ids = 0;
  const kept: { topic: Parameters<Changes['on']>[0]; listener: () => void }[] = [];

  function die(): void {
    life.alive = false;
    api = null;
    death = null;
  }

  function start(): void {
    death = null;
    if (api !== null) return;
    const mine: Life = { name: 'control-plane', alive: true };
    life = mine;
    const stores = recorded(plant.stores(inTurn(deps.stores, mine), world), mine);
    const changes = createChanges();
    const { now } = world;
    const newId = (): string => `id-${++ids}`;
    const driver = plant.driver(createDriver({ stores, changes, limits: LIMITS, platform: PLATFORM, now, newId }), stores, world);
    const source = createConfigSource({ routes: stores.routes, changes, settings: ROUTING, now, log: silentLogger() });
    api = endpoints(stores, driver, changes, source);
    for (const { topic, listener } of kept) changes.on(topic, listener);
    const begin = async (): Promise<void> => {
      await source.refresh();
      runLoops(mine, { stores, driver, changes, source });
    };
    begin().catch(surprised);
  }

  /** As kit/loop does it: a period, a wake that is not lost while it runs, and an error ends a run, not the loop. */
  function runLoops(mine: Life, made: Pick<LoopDeps, 'stores' | 'driver' | 'changes' | 'source'>): void {
    for (const declaration of LOOPS) {
      let signal = new AbortController();
      const probe = (hash: string): Promise<boolean> => Promise.resolve(plant.probe(deps.probe(hash)));
      const source: ConfigSource = {
        ...made.source,
        current() {
          // The route confirmer asks once: it must not wait for a real clock and ask again. The next period is soon enough.
          signal.abort();
          return made.source.current();
        },
      };
      const run = declaration.make({ ...made, source, limits: LIMITS, probe, settleMs: 0, now: world.now, log: silentLogger() });
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
        plan(woken ? 5 : world.random.int(period, period * PACE));
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

  function surprised(error: unknown): void {
    // A race with a deletion or another decision has an error of the table; it is logged, and looked at again.
    if (error instanceof DomainError) return;
    history.record({ type: 'internal_error', message: String(error instanceof Error ? error.stack : error) });
  }

  /** Every method of every store: waits for its turn, and may be the last thing this control plane does. */
  function inTurn(stores: Stores, mine: Life): Stores {
    const never = new Promise<never>(() => {});
    const wrap = (call: () => Promise<unknown>) => async (): Promise<unknown> => {
      await world.turn(mine);
      const last = death !== null && --death.calls <= 0 ? death.moment : null;
      if (last === 'before') die();
      if (!mine.alive) return never;
      const result = await world.during(call).finally(() => {
        if (last === 'after' && mine.alive) die();
      });
      return mine.alive ? result : never;
    };
    return eachMethod(stores, (call) => wrap(call)());
  }

  function recorded(stores: Stores, mine: Life): Stores {
    const commit =
      (write: typeof stores.flow.commit): typeof stores.flow.commit =>
      async (plan) => {
        const lost = plan.tasks.flatMap((change) => ('end' in change && change.end === 'lost' ? [change.id] : []));
        const tasks = await Promise.all(lost.map((id) => deps.stores.tasks.get(id)));
        const at = world.now();
        const result = await write(plan);
        if (result === 'committed' && mine.alive)
          for (const task of tasks) {
            const why = task.lease_expires_at === null ? 'queue' : at > task.wall_deadline_at ? 'wall' : 'lease';
            history.record({ type: 'taken_away', task: task.id, lease: task.lease_token, why });
          }
        return result;
      };
    return { ...stores, flow: { ...stores.flow, commit: commit(stores.flow.commit) } };
  }

  return {
    start,
    isUp: () => api !== null,
    dieAtCall(calls, moment) {
      death = { calls, moment };
    },
    on(topic, listener) {
      kept.push({ topic, listener });
      api?.changes.on(topic, listener);
    },
    ask(caller, what) {
      return network.ask(caller, (reply) => {
        // Nobody listens there: the connection is refused at once, which is as good as no answer.
        if (api === null) return;
        Promise.resolve(api)
          .then(what)
          .then(
            (value) => reply({ ok: true, value }),
            (error: unknown) => {
              surprised(error);
              reply({ ok: false, error: error instanceof Error ? error : new Error(String(error)) });
            },
          )
          .catch(surprised);
      });
    },
  };

  /** api/routes/agent.ts and traefik.ts, without HTTP. */
  function endpoints(stores: Stores, driver: Driver, changes: Changes, source: ConfigSource): Endpoints {
    const { now } = world;
    return {
      stores,
      driver,
      changes,
      source,
      async register(body) {
        const { node, before } = await stores.nodes.register(body, now());
        if (before === null || now() - before.last_seen_at > LIMITS.offlineMs || before.agent_version !== node.agent_version)
          changes.notify('work');
        if (before !== null && before.host_ip !== node.host_ip) changes.notify('routes');
        await driver.observed(node).catch(surprised);
        return node;
      },
      tasks: (nodeId) => stores.tasks.openFor(nodeId, now()),
      start: (id) => stores.tasks.claim(id, { token: `lease-${++ids}`, expires_at: now() + LIMITS.leaseMs }, now(), LIMITS.maxAttempts),
      async renew(id, token) {
        const lease_expires_at = now() + LIMITS.leaseMs;
        const { cancel_requested } = await stores.tasks.renew(id, token, lease_expires_at, now());
        return { cancel_requested, lease_expires_at };
      },
      complete: (id, token, report) => driver.report(id, token, report),
      config: () => source.current(),
    };
  }
}

/** The same stores with `around` about every call. */
export function eachMethod(
  stores: Stores,
  around: (call: () => Promise<unknown>, noun: string, method: string) => Promise<unknown>,
): Stores {
  const wrapped = Object.entries(stores).map(([noun, store]) => {
    if (typeof store !== 'object' || store === null) return [noun, store];
    const methods = Object.entries(store as Record<string, (...args: unknown[]) => Promise<unknown>>).map(([name, method]) => [
      name,
      (...args: unknown[]) => around(() => method.apply(store, args), noun, name),
    ]);
    return [noun, Object.fromEntries(methods)];
  });
  return Object.fromEntries(wrapped) as Stores;
}
