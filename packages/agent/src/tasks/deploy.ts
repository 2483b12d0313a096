/**
 * deploy: bring one container up beside what serves now, and report its port only after it answered from outside.
 *
 *   take over or clear what an earlier attempt left -> bring its data -> pull by digest -> (recreate: stop the old ones) ->
 *   run -> read the port -> probe -> restart policy -> report
 *
 * Whatever fails: its last log lines are sent, it is removed, and what served before serves on (recreate: is started again).
 * It gets its restart policy last: until then an exit is an exit, with its code, and not a loop.
 *
 * An attempt removes only what it has (tasks/own.ts): a later one, of another agent too, may have gone on with its container.
 * Nothing of another deployment is ever removed here: that is the retire task's, once the new version is live.
 */
import { failPoint } from '@berth/kit/fail-point';
import { LABELS } from '@berth/wire/vocabulary';
import type { TaskOf } from '@berth/wire/task';
import type { Prepare, Prepared } from '../data/prepare.ts';
import { exitFailure, probeFailure } from '../diagnosis.ts';
import { type Images, repositoryOf } from '../images.ts';
import { listenersOf } from '../listening.ts';
import type { Locks } from '../locks.ts';
import type { Networks } from '../networks.ts';
import type { ListOurs } from '../node-ids.ts';
import { probe, type ProbeResult } from '../probe.ts';
import type { Container, Docker, Mount, RunSpec } from '../tools/docker.ts';
import { TaskFailure } from '../tools/failures.ts';
import { Stopped } from '../stopped.ts';
import { createOwn, type Own } from './own.ts';
import { type Handler, NO_DATASETS, type TaskContext } from './task.ts';

export type DeployDeps = {
  docker: Docker;
  ours: ListOurs;
  images: Images;
  locks: Locks;
  networks: Networks;
  /** Null on a node that takes no datasets. */
  prepare: Prepare | null;
  /** Where this node’s published ports answer. */
  hostIp: () => Promise<string>;
  publishIp: string | undefined;
  pullTimeoutMs: number;
  pidsLimit: number;
  /** Of projects that set no limit. */
  defaultMemory: number | undefined;
  logMaxSize: string;
  logMaxFiles: number;
};
type DeployTask = TaskOf<'deploy'>;

const LAST_LINES = 50;

export function createDeployHandler(deps: DeployDeps): Handler<'deploy'> {
  const { docker } = deps;

  type Up = { id: string; hostPort: number; datasets: Prepared['datasets'] };
  async function bringUp(task: DeployTask, deployment: string, context: TaskContext, own: Own): Promise<Up> {
    const { payload } = task;
    const { signal, say } = context;
    // A tag may mean another image by now; a digest cannot.
    const present = payload.image_digest !== null && docker.hasImage(payload.image, signal);
    const [adopted, hasImage] = await Promise.all([own.takeOver(), present]);
    const data = await dataOf(deps, task, deployment, context, adopted !== null);
    if (adopted === null && !hasImage) {
      say('pull', `pulling ${payload.image}`);
      await failPoint('pull.before');
      await docker.pull(payload.image, {
        signal,
        timeoutMs: deps.pullTimeoutMs,
        onLine: (text) => context.log({ stream: 'stdout', step: 'pull', text }),
      });
      await failPoint('pull.after');
    }
    const others = payload.replace === 'recreate' ? await othersOf(deps, task, deployment, context) : [];
    try {
      for (const old of others) {
        say('deploy', `stopping ${old.name} first: the project is replaced, not rolled over${keptAll(old, payload)}`);
        await docker.stop(old.id, payload.stop_grace_seconds, signal);
        await failPoint('recreate.stopped');
      }
      const id = adopted?.id ?? (await start(deps, task, deployment, data.mounts, context, own));
      const hostPort = await untilHealthy(deps, task, id, context);
      await failPoint('probe.after');
      await docker.restartAlways(id, signal);
      await failPoint('restart-policy.after');
      return { id, hostPort, datasets: data.datasets };
    } catch (error) {
      await undo(docker, own, putBack(others, payload), context).catch((e: unknown) =>
        say('deploy', `could not clear up: ${e instanceof Error ? e.message : String(e)}`),
      );
      throw error;
    }
  }

  return async (task, context) => {
    const { payload } = task;
    const deployment = task.deployment_id;
    if (deployment === null) throw new TaskFailure('task_failed', 'the task names no deployment');

    // Two tasks of one deployment at once can only be one that was lost and its successor: the first clears up, then the second begins.
    const unlock = await deps.locks.hold(`deployment ${deployment}`, context.signal);
    const release = deps.images.hold(payload.image);
    const letGo = deps.prepare?.hold(deployment);
    const keepNetwork = deps.networks.hold(payload.project_id);
    // After its container: what is mounted must not go from under one, whoever started it.
    const undoData = async (): Promise<void> => {
      if (deps.prepare === null) return;
      if ((await docker.list({ [LABELS.deployment]: deployment })).length === 0) await deps.prepare.undo(task, deployment, context.attempt);
    };
    try {
      const own = createOwn(docker, task, deployment, context);
      const { id, hostPort, datasets } = await bringUp(task, deployment, context, own);
      return {
        report: { status: 'completed', result: null, host_port: hostPort, container_id: id, datasets },
        discard: () => own.remove().then(undoData),
      };
    } catch (error) {
      await undoData().catch((e: unknown) => context.say('data', `could not clear up: ${e instanceof Error ? e.message : String(e)}`));
      throw error;
    } finally {
      letGo?.();
      keepNetwork();
      release();
      unlock();
      deps.images.cleanLater(repositoryOf(payload.image));
      deps.networks.cleanLater();
    }
  };
}

const NO_DATA: Prepared = { mounts: [], datasets: [] };
/** What the container will mount, brought here; of one that is gone on with, what it has mounted. */
async function dataOf(
  { prepare }: DeployDeps,
  task: DeployTask,
  deployment: string,
  context: TaskContext,
  adopted: boolean,
): Promise<Prepared> {
  if (task.payload.datasets.length === 0 && (prepare === null || adopted)) return NO_DATA;
  if (prepare === null) throw new TaskFailure('dataset_copy_failed', NO_DATASETS);
  if (!adopted) return prepare.mounts(task, deployment, context);
  return { mounts: [], datasets: await prepare.mounted(task, deployment, context.attempt) };
}

/** Removes what this attempt has and puts back what it stopped. */
async function undo(docker: Docker, own: Own, old: Container | undefined, { signal, say }: TaskContext): Promise<void> {
  await failPoint('undo.before');
  await own.remove();
  await failPoint('undo.after');
  // Whoever has the task now has stopped it, or is about to: started again there would be two of them.
  const lost = signal.aborted && signal.reason instanceof Stopped && signal.reason.why === 'lost';
  if (old === undefined || lost) return;
  say('deploy', `starting ${old.name} again`);
  await docker.start(old.id);
}

/** `recreate` (never two writers): stopped before the new one starts, whatever they are. Newest first. */
async function othersOf({ ours }: DeployDeps, task: DeployTask, deployment: string, { signal }: TaskContext): Promise<Container[]> {
  const all = await ours({ [LABELS.project]: task.payload.project_id }, signal);
  const generation = (c: Container): number => Number(c.labels[LABELS.generation] ?? 0);
  return all.filter((c) => c.labels[LABELS.deployment] !== deployment).sort((a, b) => generation(b) - generation(a));
}

/** One, never two: what served; else the newest that ran. */
function putBack(others: readonly Container[], { replaces }: DeployTask['payload']): Container | undefined {
  const served = others.find((c) => c.labels[LABELS.deployment] === replaces);
  // Not said, and none ran: an earlier attempt stopped them and was killed.
  return served ?? others.find((c) => c.state === 'running') ?? (replaces === undefined ? others[0] : undefined);
}

/** Of no version that serves: a leftover that will be cleared up, or one that the control plane does not know. */
const keptAll = (old: Container, { replaces }: DeployTask['payload']): string =>
  replaces === undefined || old.labels[LABELS.deployment] === replaces
    ? ''
    : `. It is not of the version that serves: it is kept, stopped (docker start ${old.name} brings it back)`;

async function start(
  deps: DeployDeps,
  task: DeployTask,
  deployment: string,
  mounts: readonly Mount[],
  context: TaskContext,
  own: Own,
): Promise<string> {
  const { payload } = task;
  const { signal, say } = context;
  const memoryBytes = memoryOf(deps, payload);
  const spec: RunSpec = {
    name: payload.container_name,
    image: payload.image,
    containerPort: payload.container_port,
    mounts,
    publishIp: deps.publishIp,
    labels: {
      [LABELS.project]: payload.project_id,
      [LABELS.project_name]: payload.project,
      [LABELS.deployment]: deployment,
      [LABELS.generation]: String(payload.generation),
      [LABELS.task]: task.id,
      [LABELS.attempt]: String(context.attempt),
      [LABELS.node]: task.node_id,
      // A limit that the project did not ask for: told apart from one that somebody changed.
      ...(payload.memory_bytes === null && memoryBytes !== null ? { [LABELS.default_memory]: String(memoryBytes) } : {}),
    },
    // Where nothing else is said, a program may read its port there, as on other platforms.
    env: { PORT: String(payload.container_port), ...payload.env },
    memoryBytes,
    network: await deps.networks.of(payload.project_id, task.node_id, signal),
    cpus: payload.cpus,
    pidsLimit: deps.pidsLimit,
    logMaxSize: deps.logMaxSize,
    logMaxFiles: deps.logMaxFiles,
  };
  const run = async (what: RunSpec): Promise<string> => {
    await deps.prepare?.checkWritten(task, mounts, signal);
    return deps.docker.run(what, signal);
  };
  const start = async (what: RunSpec): Promise<string> => {
    try {
      return await run(what);
    } catch (error) {
      if (what.network === null || !(error instanceof TaskFailure && /network \S+ not found/i.test(error.message))) throw error;
      // Somebody removed it, which the engine lets anybody do while no container runs there.
      deps.networks.forget(payload.project_id);
      await own.remove();
      return run({ ...what, network: await deps.networks.of(payload.project_id, task.node_id, signal) });
    }
  };
  say('deploy', `starting ${spec.name} from ${spec.image}`);
  own.willStart(spec.name);
  try {
    return await start(spec);
  } catch (error) {
    if (!(error instanceof TaskFailure && /name .* is already in use/i.test(error.message))) throw error;
    // Somebody else's, which is not ours to remove. The name is for people; everything goes by label.
    const name = `${spec.name}-${task.id.slice(-8)}`;
    own.willStart(name);
    say('deploy', `the name ${spec.name} is taken by a container of somebody else; using ${name}`);
    return start({ ...spec, name });
  }
}

const memoryOf = (deps: DeployDeps, payload: DeployTask['payload']): number | null => payload.memory_bytes ?? deps.defaultMemory ?? null;

/** Probes until it answers; what ends the wait otherwise is its own exit, the deadline or the signal. */
async function untilHealthy(deps: DeployDeps, task: DeployTask, id: string, context: TaskContext): Promise<number> {
  const { payload } = task;
  const { docker } = deps;
  const ended = new AbortController();
  const watch = new AbortController();
  const exited = new Error('the container exited');
  const watching = docker.waitExit(id, AbortSignal.any([context.signal, watch.signal])).then(
    () => ended.abort(exited),
    // The watch alone failed; the probe's own deadline stays, and the state is looked at in the end.
    (error: unknown) =>
      void (watch.signal.aborted || context.signal.aborted || context.say('probe', `cannot watch the container: ${String(error)}`)),
  );
  try {
    const hostPort = await docker.hostPort(id, payload.container_port, context.signal);
    if (hostPort === null) throw await downFailure(deps, task, id, context);
    const host =
      deps.publishIp === undefined || deps.publishIp === '0.0.0.0' || deps.publishIp === '::' ? await deps.hostIp() : deps.publishIp;
    context.say('probe', `asking http://${host}:${hostPort}${payload.health_path ?? '/'} for up to ${payload.probe_seconds} s`);
    await failPoint('probe.before');
    let result: ProbeResult;
    try {
      result = await probe(
        { host, port: hostPort, healthPath: payload.health_path, visitorUrl: payload.url ?? null },
        payload.probe_seconds * 1000,
        AbortSignal.any([context.signal, ended.signal]),
      );
    } catch (error) {
      if (error === exited) throw await downFailure(deps, task, id, context);
      throw error;
    }
    if (result.ok) {
      context.say('probe', `answered with status ${result.status}`);
      return hostPort;
    }
    // The watch may have missed it: an engine that restarts takes its containers with it.
    if ((await docker.inspect(id, context.signal))?.state !== 'running') throw await downFailure(deps, task, id, context);
    const listeners = await listenersOf(id, docker);
    await sendLastLines(docker, id, context);
    throw probeFailure({
      containerPort: payload.container_port,
      healthPath: payload.health_path,
      probeSeconds: payload.probe_seconds,
      last: result.last,
      listeners,
    });
  } finally {
    watch.abort();
    await watching;
  }
}

/** It runs no more, or never did. */
async function downFailure(deps: DeployDeps, task: DeployTask, id: string, context: TaskContext): Promise<TaskFailure> {
  const { docker } = deps;
  const container = await docker.inspect(id, context.signal);
  await sendLastLines(docker, id, context);
  if (container === null) return new TaskFailure('container_exited', 'it was removed by somebody else');
  if (container.state === 'running')
    return new TaskFailure('container_start_failed', `the engine published no port for ${task.payload.container_port}`);
  return exitFailure(container, memoryOf(deps, task.payload));
}

async function sendLastLines(docker: Docker, id: string, context: TaskContext): Promise<void> {
  for (const { stream, text } of await docker.lastLines(id, LAST_LINES)) context.log({ stream, step: 'container', text });
}
