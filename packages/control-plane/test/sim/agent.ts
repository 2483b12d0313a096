/**
 * Our agent, as packages/agent does it, on simulated time: registers with its observations, polls
 * its tasks, claims, renews, works, repeats its report until it is answered, and removes its result
 * when its lease is lost. A killed agent forgets everything; what it started keeps running.
 */
import { LABELS } from '@berth/wire/vocabulary';
import type { History } from '@berth/testbed/history';
import { BEAT, type CachedDataset, type NodeDisk } from '@berth/wire/node';
import { CAN_DEVICES, CAN_RUN_DEVICES } from '@berth/wire/machine';
import { CAN_RUN } from '@berth/wire/run-payload';
import {
  CAN_CONFIG_FILE,
  CAN_INSTANCES,
  CAN_PROCESSES,
  type RetirePayload,
  type TaskReport,
} from '@berth/wire/task';
import { CAN_MOVE_VOLUMES, CAN_VOLUMES } from '@berth/wire/volume';
import { LOOK_CAPABILITY } from '@berth/wire/look';
import { DomainError } from '../../src/domain/platform/errors.ts';
import type { TaskRecord } from '../../src/domain/platform/records.ts';
import { NODE_SECRET } from '../../src/domain/nodes/agent-identity.ts';
import type { OwnSecret, Registered } from './control-plane.ts';
import type { Forge } from './forge.ts';
import type { ControlPlane } from './front.ts';
import { type Container, DEVICE, type Engine } from './engine.ts';
import { EngineError } from './engine-error.ts';
import { type Content, contentOf, digestOf, type Moving } from './disk.ts';
import { createRandom, type Random } from './random.ts';
import type { CommandContainer } from './commands.ts';
import { runCommand, sweepRuns } from './run-command.ts';
import type { Life, World } from './world.ts';

export type AgentDeps = {
  world: World;
  history: History;
  controlPlane: ControlPlane;
  hostname: string;
  role: 'builder' | 'deploy';
  engine: Engine;
  /**
   * Whether it chooses the ports of its containers. Agents of the previous version let the engine
   * choose.
   */
  keepsPort: boolean;
  /** Whether it can run instances beside the first one. */
  runsInstances: boolean;
  /** Number of its machine's devices. */
  devices: number;
  /** Error of its clock, in ms. */
  skewMs: number;
  /** Whether it asks for a node secret. */
  hasOwnSecret?: boolean;
  moving: Moving;
  /** Decides how commands behave; null: it cannot run any. */
  commandChance?: Random | null;
  /** A planted bug: the marks of commands are gone after a restart. */
  forgetsMarks?: boolean;
  /** Whether a builder reads berth.toml. */
  readsFiles?: boolean;
  /** The git server. */
  forge: Pick<Forge, 'tip' | 'fileAt'>;
};
export type Agent = {
  hostname: string;
  role: 'builder' | 'deploy';
  engine: Engine;
  /** Time of its last registration; 0 before. */
  knownAt(): number;
  life(): Life;
  start(): void;
  kill(): void;
  /** Stops it for `ms` and continues it (SIGSTOP, SIGCONT). */
  freeze(ms: number): void;
  /** Sends no registration for `ms`, as if each got lost; its other requests pass. */
  holdReports(ms: number): void;
  /** Gives the machine another hostname and restarts its agent. */
  rename(hostname: string): void;
};

type Stop = 'lost' | 'cancelled';
type Run = { task: TaskRecord; attempt: number; stop: Stop | null };
type Product = { report: TaskReport; discard: () => void; accepted?: () => void };
const failed = (code: string): Product => ({
  report: { status: 'failed', result: { error: { code, message: code } } },
  discard() {},
});
/** An engine whose disk is not mounted has no images. */
const diskOf = (isOut: boolean): NodeDisk => {
  const image = {
    name: 'registry:5000/old:1',
    bytes: 1e6,
    created_at: new Date(0).toISOString(),
    kept: false,
  };
  const evictable = { build_cache: 0, images: isOut ? [] : [image], own_disk: null };
  return {
    datasets: 0,
    images: isOut ? 0 : 1e9,
    build_cache: 0,
    other: 0,
    free: 1e9,
    total: 4e9,
    evictable,
  };
};
/** Returns the instance that a deploy task starts; null: the first one. */
const instanceOf = ({ kind, payload }: TaskRecord): string | null =>
  kind === 'deploy' ? ((payload as TaskRecord<'deploy'>['payload']).instance?.id ?? null) : null;
/** Returns the process without HTTP that a deploy task starts; null: it starts none. */
function processOf({ kind, payload }: TaskRecord): string | null {
  if (kind !== 'deploy') return null;
  const { settle_seconds, instance } = payload as TaskRecord<'deploy'>['payload'];
  return settle_seconds === undefined ? null : (instance?.process ?? null);
}
/** As packages/agent/src/tasks/retire.ts. */
const isRemoved = ({ deployment, instance }: Container, { remove }: RetirePayload): boolean =>
  remove.some(
    (r) =>
      r.deployment_id === deployment && (r.instance_id === undefined || r.instance_id === instance),
  );
const isOver = (error: unknown): boolean => error instanceof DomainError && error.code !== 'busy';

export function createAgent(deps: AgentDeps): Agent {
  const { world, history, controlPlane, engine, keepsPort } = deps;
  const { random } = world;
  const own = createRandom(random.int(1, 1e9));
  /** Agents of the previous version do not report their engine. */
  const tellsEngine = own.chance(0.5);
  /** Nor what is on their disk, nor which copies of volumes they have deleted. */
  const [tellsDisk, tellsRemoved] = [own.chance(0.5), own.chance(0.5)];
  const devices = Array.from({ length: deps.devices }, (_, i) => `${i}`);
  const looks = deps.role === 'builder' && own.chance(0.8);
  const dead: Life = { name: deps.hostname, alive: false };
  let life = dead;
  let frozenUntil = 0;
  let silentUntil = 0;
  let hostname = deps.hostname;
  let boots = 0;
  /**
   * Ids under which this disk worked, as packages/agent/src/link/node-ids.ts keeps them. They
   * outlive the process.
   */
  const nodeIds = new Set<string>();
  let knownAt = 0;
  /** The node secret, which is on disk too. */
  let secret: OwnSecret | null = null;
  /** The cached datasets, which are on disk too. */
  let cached: CachedDataset[] = [];

  function start(): void {
    if (life.alive || engine.isOff()) return;
    life = { name: deps.hostname, alive: true };
    live(life).catch((error: unknown) =>
      history.record({ type: 'internal_error', message: `${deps.hostname}: ${String(error)}` }),
    );
  }

  async function live(mine: Life): Promise<void> {
    let nodeId: string | null = null;
    const boot_id = `${engine.address}-${own.int(1, 1e9)}-${++boots}`;
    const runs = new Map<string, Run>();
    const ended = new Map<string, number>();
    const locks = new Map<string, Promise<void>>();
    const sleep = async (ms: number): Promise<void> => {
      await world.sleep(ms, mine);
      while (frozenUntil > world.now()) await world.sleep(frozenUntil - world.now(), mine);
    };
    const ask: ControlPlane['ask'] extends (caller: Life, what: infer W) => unknown
      ? (what: W) => Promise<unknown>
      : never = (what) => controlPlane.ask(mine, what);

    /** Repeats a request until it is answered with success or an error. */
    async function untilAnswered<T>(what: Parameters<typeof ask>[0]): Promise<T> {
      for (;;) {
        try {
          return (await ask(what)) as T;
        } catch (error) {
          if (isOver(error)) throw error;
          await sleep(random.int(300, 2_000));
        }
      }
    }

    const { commandChance = null } = deps;
    const commandDeps =
      commandChance === null || deps.role === 'builder'
        ? null
        : {
            commands:
              deps.forgetsMarks === true
                ? { ...engine.commands, marks: new Set<string>() }
                : engine.commands,
            chance: commandChance,
            now: world.now,
            sleep,
            isOwn: (node: string) => nodeIds.has(node),
          };
    const has = (dataset_id: string, version: number | null, bytes: number): void => {
      if (
        version === null ||
        cached.some((c) => c.dataset_id === dataset_id && c.version === version)
      )
        return;
      cached = [
        ...cached,
        { dataset_id, version, bytes, last_used_at: new Date(world.now()).toISOString() },
      ];
    };

    let lastAnswerAt: string | null = null;
    const mineOnly = (): Container[] => engine.list().filter((c) => nodeIds.has(c.node));
    async function register(): Promise<void> {
      const answeredAt = lastAnswerAt;
      let containers: Container[] | null = null;
      let ofRuns: CommandContainer[] = [];
      try {
        containers = nodeId === null ? null : mineOnly();
        if (commandDeps !== null)
          ofRuns = engine.commands
            .list()
            .filter((c) => nodeIds.has(c.node) && c.devices.length > 0);
      } catch {
        // The engine does not answer: the registration has no container list.
      }
      // A process without HTTP has no address.
      const serving = (containers ?? []).filter((c) => c.running && c.process === null);
      for (const c of serving)
        history.record({
          type: 'observing',
          node: c.node,
          project: c.project,
          deployment: c.deployment,
          address: `${engine.address}:${c.port}`,
        });
      const body = {
        hostname,
        boot_id,
        role: deps.role,
        capabilities: [
          ...(deps.hasOwnSecret === true ? [NODE_SECRET] : []),
          ...(looks ? [LOOK_CAPABILITY] : []),
          ...(deps.role === 'builder' && deps.readsFiles === true ? [CAN_CONFIG_FILE] : []),
          ...(deps.role === 'deploy' ? [CAN_VOLUMES, CAN_MOVE_VOLUMES] : []),
          ...(deps.role === 'deploy' && deps.runsInstances
            ? [CAN_INSTANCES, CAN_PROCESSES, BEAT]
            : []),
          ...(devices.length === 0 ? [] : [CAN_DEVICES]),
          ...(commandDeps === null ? [] : [CAN_RUN]),
          ...(commandDeps === null || devices.length === 0 ? [] : [CAN_RUN_DEVICES]),
        ],
        volumes: engine.disk.reported(),
        ...(tellsRemoved ? { removed_volumes: engine.disk.removed() } : {}),
        ...(tellsDisk ? { disk: diskOf(engine.disk.isOut()) } : {}),
        host_ip: engine.address,
        max_storage: 1e9,
        max_builds: 2,
        last_answer_at: answeredAt,
        agent_version: 'sim',
        ...(devices.length === 0 ? {} : { devices: { [DEVICE]: devices } }),
        ...(tellsEngine
          ? { engine: { ok: engine.up, version: null, error: engine.up ? null : 'no answer' } }
          : {}),
        cached: engine.disk.isOut() ? [] : cached,
        free_storage: 1e9,
        ...(containers === null
          ? {}
          : {
              containers: [
                ...ofRuns.map(reportedRun),
                ...containers.map((c) => ({
                  id: c.id,
                  name: c.name,
                  labels: {
                    [LABELS.project]: c.project,
                    [LABELS.deployment]: c.deployment,
                    [LABELS.node]: c.node,
                    ...(c.instance === null ? {} : { [LABELS.instance]: c.instance }),
                    ...(c.process === null ? {} : { [LABELS.process]: c.process }),
                    ...(c.devices.length === 0 ? {} : { [LABELS.devices]: c.devices.join(',') }),
                  },
                  host_port: c.running && c.process === null ? c.port : null,
                  ...(keepsPort ? { port_fixed: c.keepsPort } : {}),
                  state: c.running ? 'running' : 'exited',
                  started_at: new Date(c.startedAt).toISOString(),
                })),
              ],
            }),
      };
      const shown = deps.hasOwnSecret === true ? { secret } : null;
      const node = (await ask((api) => api.register(body, shown))) as Registered;
      if (node.volumes !== undefined && containers !== null) {
        const mounted = containers;
        engine.disk.work(node.volumes, (copy) =>
          mounted.some((c) => engine.disk.mountOf(c.id) === copy),
        );
      }
      secret = node.secret ?? secret;
      nodeId = node.id;
      nodeIds.add(node.id);
      knownAt = world.now();
      const listed = new Set((containers ?? []).flatMap((c) => (c.running ? [c.id] : [])));
      if (engine.up)
        for (const c of engine.list())
          if (c.running && listed.has(c.id)) engine.disk.writes(c.id, c.deployment);
      for (const c of serving)
        history.record({
          type: 'told',
          project: c.project,
          address: `${body.host_ip}:${c.port}`,
        });
      lastAnswerAt = new Date(node.last_seen_at).toISOString();
    }

    async function registering(): Promise<void> {
      for (;;) {
        while (silentUntil > world.now()) await sleep(silentUntil - world.now());
        await register().catch((error: unknown) => {
          if (error instanceof DomainError && error.code === 'node_doubled') nodeId = null;
          // The node was deleted: it registers as a new one.
          if (error instanceof DomainError && error.code === 'agent_secret')
            [nodeId, secret] = [null, null];
        });
        await sleep(nodeId === null ? 500 : random.int(4_000, 8_000));
      }
    }

    /** The held request: wakes at every change of the node, and polls from time to time. */
    let awake = true;
    let wake = (): void => {};
    async function polling(): Promise<void> {
      let watched: string | null = null;
      for (;;) {
        if (nodeId === null) {
          await sleep(200);
          continue;
        }
        const id: string = nodeId;
        if (watched !== id) {
          watched = id;
          controlPlane.on(`node:${id}`, () => wake());
        }
        awake = false;
        try {
          const askedAt = world.now();
          compare((await ask((api) => api.tasks(id))) as TaskRecord[], askedAt);
        } catch (error) {
          if (error instanceof DomainError && error.code === 'not_found')
            await register().catch(() => undefined);
        }
        if (!awake) {
          let woken = false;
          await new Promise<void>((resolve) => {
            const go = (): void => {
              if (!woken && mine.alive) {
                woken = true;
                resolve();
              }
            };
            wake = () => {
              awake = true;
              // A separate source of chance: the order in which nodes are woken depends on their
              // ids, which no seed decides.
              world.after(1 + 19 * own.next(), mine, go);
            };
            world.after(random.int(2_000, 6_000), mine, go);
          });
          await sleep(0);
        }
      }
    }

    function compare(tasks: readonly TaskRecord[], askedAt: number): void {
      const byId = new Map(tasks.map((t) => [t.id, t]));
      for (const [id, run] of runs) {
        const task = byId.get(id);
        if (task === undefined) run.stop ??= 'lost';
        else if (task.cancel_requested_at !== null) run.stop ??= 'cancelled';
      }
      for (const task of tasks) {
        if (runs.has(task.id) || (ended.get(task.id) ?? -1) >= askedAt) continue;
        const run: Run = {
          task,
          attempt: 0,
          stop: task.cancel_requested_at === null ? null : 'cancelled',
        };
        runs.set(task.id, run);
        void attempt(run)
          .catch((error: unknown) => {
            if (!isOver(error)) throw error;
          })
          .finally(() => {
            runs.delete(task.id);
            ended.set(task.id, world.now() + 1_000);
          });
      }
      if (commandDeps === null) return;
      const runOf = ({ kind, payload }: TaskRecord): string | null =>
        kind === 'run' ? (payload as TaskRecord<'run'>['payload']).run_id : null;
      const open = [...tasks, ...[...runs.values()].map(({ task }) => task)].map(runOf);
      sweepRuns(commandDeps, (run) => open.includes(run));
    }

    async function attempt(run: Run): Promise<void> {
      const { task } = run;
      const claim = await untilAnswered<{
        attempt: number;
        lease_token: string;
        lease_expires_at: number;
        sent: number;
      }>(async (api) => {
        const sent = world.now();
        return { ...(await api.start(task.id)), sent };
      });
      const lease = claim.lease_token;
      run.attempt = claim.attempt;
      history.record({
        type: 'claimed',
        task: task.id,
        attempt: claim.attempt,
        lease,
        sent: claim.sent,
      });
      let working = true;
      const renewing = async (): Promise<void> => {
        let expires = claim.lease_expires_at;
        while (working) {
          // Uses a clock that may be wrong, like the real agent: renews after a third of the
          // apparent remaining time, within bounds.
          const left = expires - (world.now() + deps.skewMs);
          await sleep(Math.min(3_000, Math.max(700, left / 3)));
          if (!working) return;
          const sent = world.now();
          try {
            const answer = (await ask((api) => api.renew(task.id, lease))) as {
              cancel_requested: boolean;
              lease_expires_at: number;
            };
            history.record({ type: 'renewed', task: task.id, lease, sent });
            expires = answer.lease_expires_at;
            if (answer.cancel_requested) run.stop ??= 'cancelled';
          } catch (error) {
            if (isOver(error)) {
              run.stop = 'lost';
              return;
            }
          }
        }
      };
      void renewing();
      try {
        let product = await perform(run);
        if (run.stop === 'lost') return product.discard();
        if (run.stop === 'cancelled' && product.report.status === 'completed') {
          product.discard();
          product = failed('cancelled');
        }
        await deliver(task, lease, product);
      } finally {
        working = false;
      }
    }

    async function deliver(task: TaskRecord, lease: string, product: Product): Promise<void> {
      const { report } = product;
      const about = {
        task: task.id,
        kind: task.kind,
        deployment: task.deployment_id ?? '',
        lease,
        status: report.status,
      };
      const address =
        typeof report.host_port === 'number' ? `${engine.address}:${report.host_port}` : null;
      const process = processOf(task);
      history.record({
        type: 'reporting',
        ...about,
        project: task.project_id ?? '',
        address,
        ...(process === null ? {} : { process }),
      });
      try {
        const sent = world.now();
        await untilAnswered((api) => api.complete(task.id, lease, report));
        history.record({ type: 'reported', ...about, content: JSON.stringify(report), sent });
        product.accepted?.();
      } catch (error) {
        product.discard();
        throw error;
      }
    }

    async function perform(run: Run): Promise<Product> {
      const { task } = run;
      const unlock = await hold(
        task.kind === 'retire'
          ? `retire ${task.project_id}`
          : task.kind === 'run'
            ? `run ${(task.payload as TaskRecord<'run'>['payload']).run_id}`
            : `deployment ${task.deployment_id}${instanceOf(task) ?? ''}`,
      );
      try {
        if (run.stop !== null) return failed('cancelled');
        if (task.kind === 'build') return await build(run);
        if (task.kind === 'deploy') return await deploy(run);
        if (task.kind === 'sync') return await sync(run);
        if (task.kind === 'look') return await look(run);
        if (task.kind === 'move') return await move(run);
        if (task.kind === 'run' && commandDeps !== null) return await runCommand(commandDeps, run);
        return await retire(run);
      } catch (error) {
        if (error instanceof EngineError) return failed('engine_unavailable');
        return failed(error instanceof Error ? error.name : 'failed');
      } finally {
        unlock();
      }
    }

    async function hold(name: string): Promise<() => void> {
      const earlier = locks.get(name) ?? Promise.resolve();
      let unlock = (): void => {};
      locks.set(
        name,
        new Promise((resolve) => {
          unlock = resolve;
        }),
      );
      await earlier;
      return unlock;
    }

    /** Works in pieces, so that it can be stopped. */
    async function work(run: Run, ms: number): Promise<boolean> {
      const end = world.now() + ms;
      while (world.now() < end) {
        if (run.stop !== null) return false;
        await sleep(Math.min(1_000, end - world.now()));
      }
      return run.stop === null;
    }

    async function build(run: Run): Promise<Product> {
      const task = run.task as TaskRecord<'build'>;
      engine.list();
      // A hung task ends by its wall-clock deadline.
      const long = random.chance(0.03) ? 120_000 : random.int(300, 6_000);
      if (!(await work(run, long))) return failed('cancelled');
      if (random.chance(0.08)) return failed('build_failed');
      const sha = task.payload.commit ?? deps.forge.tip(task.payload);
      const text = task.payload.config_file === undefined ? null : deps.forge.fileAt(sha);
      return {
        report: {
          status: 'completed',
          result: null,
          image_tag: `${task.payload.image_repository}:${sha}`,
          commit: sha,
          ...(text === null ? {} : { config_file: { file: 'berth.toml', text } }),
        },
        discard() {},
      };
    }

    async function look(run: Run): Promise<Product> {
      const { payload } = run.task as TaskRecord<'look'>;
      if (!(await work(run, random.int(50, 1_500)))) return failed('cancelled');
      if (random.chance(0.1)) return failed(random.pick(['git_unreachable', 'git_timeout']));
      if ('repository' in payload) return failed('task_failed');
      const commit = deps.forge.tip(payload);
      // The answer of the git server may be old when it arrives.
      if (!(await work(run, random.int(0, 1_000)))) return failed('cancelled');
      const result = { skip_mark: null, changes: [] } as NonNullable<TaskReport['result']>;
      return { report: { status: 'completed', result, commit }, discard() {} };
    }

    async function deploy(run: Run): Promise<Product> {
      const task = run.task as TaskRecord<'deploy'>;
      const { payload } = task;
      const holder = { task: task.id, attempt: run.attempt };
      const holds = (c: Container): boolean =>
        c.holder.task === holder.task && c.holder.attempt === holder.attempt;
      // A container that a later attempt adopted is left alone: this agent is about to learn that
      // it lost its lease.
      const own = mineOnly().filter(
        (c) =>
          c.deployment === task.deployment_id &&
          c.instance === instanceOf(task) &&
          (c.holder.task !== task.id || c.holder.attempt <= run.attempt),
      );
      // One with another copy of the volumes is started again, as by the real agent
      // (packages/agent/src/tasks/attempt-container.ts).
      let container = own.find(
        (c) => c.running && engine.disk.mountOf(c.id) === (payload.volumes?.copy ?? null),
      );
      for (const c of own) if (c.id !== container?.id) engine.remove(c.id, 'task');
      if (container !== undefined) engine.takeOver(container.id, holder);
      if (container === undefined && !(await work(run, random.int(100, 2_000))))
        return failed('cancelled');
      // Stop-first: every other container of the project on this node stops before this one starts.
      const others =
        payload.replace === 'recreate'
          ? mineOnly().filter(
              (c) => c.project === payload.project_id && c.deployment !== task.deployment_id,
            )
          : [];
      for (const c of others) engine.stop(c.id, 'task', true);
      const copy =
        payload.volumes === undefined
          ? undefined
          : engine.disk.mount(payload.project_id, payload.volumes);
      const isNew = container === undefined;
      if (isNew && copy === null) {
        if (run.stop !== 'lost') startServed(others, payload);
        return failed('volume_missing');
      }
      container ??= engine.run(
        {
          name: payload.container_name,
          project: payload.project_id,
          deployment: task.deployment_id ?? '',
          generation: payload.generation,
          instance: instanceOf(task),
          process: processOf(task),
          node: task.node_id,
          holder,
          keepsPort,
          alone: payload.replace === 'recreate',
          devices: payload.devices ?? [],
        },
        'task',
      );
      const { id } = container;
      if (isNew && copy !== undefined && copy !== null)
        engine.disk.starts(id, container.deployment, copy);
      const undo = (): void => {
        // When the engine does not answer now, a later sweep removes the container.
        if (engine.up && engine.list().some((c) => c.id === id && holds(c)))
          engine.remove(id, 'task');
      };
      const healthy = (await work(run, random.int(100, 3_000))) && !random.chance(0.1);
      const now = engine.list().find((c) => c.id === id);
      if (!healthy || now === undefined || !now.running) {
        undo();
        if (run.stop !== 'lost') startServed(others, payload);
        return failed(run.stop === null ? 'container_exited' : 'cancelled');
      }
      engine.keepUp(id);
      for (const d of payload.datasets)
        if (d.mode === 'dependency') has(d.dataset_id, d.version, d.bytes);
      const datasets = payload.datasets.map((d) => ({
        dataset_id: d.dataset_id,
        version: d.version,
      }));
      return {
        report: {
          status: 'completed',
          result: null,
          ...(now.process === null ? { host_port: now.port } : {}),
          container_id: id,
          datasets,
        },
        discard: undo,
      };
    }

    /** Starts all containers of the version that served (agent/tasks/recreate.ts). */
    function startServed(
      others: readonly Container[],
      { replaces }: TaskRecord<'deploy'>['payload'],
    ): void {
      for (const c of others) if (c.deployment === replaces) startAgain(c);
    }

    function startAgain(container: Container): void {
      engine.start(container.id);
      engine.disk.starts(container.id, container.deployment);
    }

    /**
     * Both ends of a move, as packages/agent/src/tasks/move.ts: the sender refuses while a
     * container of the project runs.
     */
    async function move(run: Run): Promise<Product> {
      const { payload } = run.task as TaskRecord<'move'>;
      const { project_id: project, copy, to } = payload;
      const done = (content: Content): Product => {
        const files = content.entries.length;
        const result: Record<string, unknown> = { digest: digestOf(content), files, bytes: files };
        return { report: { status: 'completed', result }, discard() {} };
      };
      if (payload.role === 'send') {
        const source = engine.disk.find(project, copy);
        if (source === null || mineOnly().some((c) => c.project === project && c.running))
          return failed('volume_failed');
        if (!(await work(run, random.int(100, 2_000)))) return failed('cancelled');
        deps.moving.set(to, contentOf(source));
        if (!(await work(run, random.int(0, 1_000)))) return failed('cancelled');
        return done(source);
      }
      const arrived = engine.disk.find(project, to);
      if (arrived !== null) return done(arrived);
      for (let waited = 0; !deps.moving.has(to); waited += 1) {
        if (waited > 30) return failed('volume_failed');
        if (!(await work(run, 500))) return failed('cancelled');
      }
      const content = contentOf(deps.moving.get(to) ?? { entries: [], counts: {} });
      if (!(await work(run, random.int(100, 2_000)))) return failed('cancelled');
      if (random.chance(0.1)) return failed('disk_full');
      if (engine.disk.isOut()) return failed('volume_failed');
      engine.disk.receive({ copy: to, project, ...content });
      return done(content);
    }

    /** Completes a prewarm: the node has the copy when it reports so. */
    async function sync(run: Run): Promise<Product> {
      const { dataset } = (run.task as TaskRecord<'sync'>).payload;
      if (!(await work(run, random.int(200, 4_000)))) return failed('cancelled');
      has(dataset.dataset_id, dataset.version, dataset.bytes);
      return { report: { status: 'completed', result: null }, discard() {} };
    }

    async function retire(run: Run): Promise<Product> {
      const { payload } = run.task as TaskRecord<'retire'>;
      const ours = (): Container[] => mineOnly().filter((c) => c.project === payload.project_id);
      const old = ours().filter((c) => isRemoved(c, payload));
      if (old.some((c) => c.running)) await work(run, payload.drain_seconds * 1_000);
      if (run.stop !== null) return failed('cancelled');
      for (const c of old) engine.stop(c.id, 'task');
      for (const { deployment_id, instance_id } of payload.stop ?? [])
        for (const c of ours())
          if (
            c.deployment === deployment_id &&
            (instance_id === undefined || instance_id === c.instance)
          )
            engine.stop(c.id, 'task', true);
      await sleep(random.int(10, 500));
      for (const c of old) engine.remove(c.id, 'task');
      if (typeof payload.start === 'string') {
        const again = ours().filter((c) => c.deployment === payload.start);
        // The engine may lack resources for a moment: the control plane must repeat the task.
        if (again.length === 0 || random.chance(0.3)) return failed('container_start_failed');
        for (const c of again) startAgain(c);
      }
      const keep =
        payload.keep === null
          ? undefined
          : ours().find((c) => c.deployment === payload.keep?.deployment_id && c.instance === null);
      if (keep !== undefined && payload.keep !== null) engine.rename(keep.id, payload.keep.name);
      for (const { deployment_id, instance_id, name } of payload.keep_instances ?? []) {
        const named = ours().find(
          (c) => c.deployment === deployment_id && c.instance === instance_id,
        );
        if (named !== undefined) engine.rename(named.id, name);
      }
      return { report: { status: 'completed', result: null }, discard() {} };
    }

    void registering();
    await polling();
  }

  return {
    hostname: deps.hostname,
    role: deps.role,
    engine,
    knownAt: () => knownAt,
    life: () => life,
    start,
    kill() {
      life.alive = false;
      life = dead;
    },
    rename(next) {
      life.alive = false;
      life = dead;
      hostname = next;
      start();
    },
    freeze(ms) {
      frozenUntil = world.now() + ms;
    },
    holdReports(ms) {
      silentUntil = world.now() + ms;
    },
  };
}

/** The container of a run in a registration (packages/agent/src/link/registration.ts). */
const reportedRun = ({ id, run, node, devices, startedAt, exitCode }: CommandContainer) => ({
  id,
  name: `run-${run}`,
  labels: {
    [LABELS.run]: run,
    [LABELS.run_node]: node,
    [LABELS.devices]: devices.join(','),
  },
  host_port: null,
  state: stateOf(startedAt, exitCode),
});

function stateOf(startedAt: number | null, exitCode: number | null): string {
  if (startedAt === null) return 'created';
  return exitCode === null ? 'running' : 'exited';
}
