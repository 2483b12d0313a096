/**
 * deploy: bring one container up beside what serves now, and report its port only after it answered from outside.
 *
 *   take over or clear what an earlier attempt left -> pull by digest -> (recreate: stop the old ones) -> run -> read the
 *   port -> probe -> restart policy -> report
 *
 * Whatever fails: its last log lines are sent, it is removed, and what served before serves on (recreate: is started again).
 * It gets its restart policy last: until then an exit is an exit, with its code, and not a loop.
 */
import { failPoint } from '@berth/kit/fail-point';
import { LABELS } from '@berth/wire/vocabulary';
import type { TaskOf } from '@berth/wire/task';
import { exitFailure, probeFailure } from '../diagnosis.ts';
import { type Images, repositoryOf } from '../images.ts';
import { listenersOf } from '../listening.ts';
import type { Locks } from '../locks.ts';
import { probe, type ProbeResult } from '../probe.ts';
import type { Container, Docker, RunSpec } from '../tools/docker.ts';
import { TaskFailure } from '../tools/failures.ts';
import type { Handler, TaskContext } from './task.ts';

export type DeployDeps = {
  docker: Docker;
  images: Images;
  locks: Locks;
  /** Where this node’s published ports answer. */
  hostIp: () => Promise<string>;
  publishIp: string | undefined;
  pullTimeoutMs: number;
  pidsLimit: number;
  logMaxSize: string;
  logMaxFiles: number;
};
type DeployTask = TaskOf<'deploy'>;

const LAST_LINES = 50;
const MOST_REMEMBERED = 1_000;

export function createDeployHandler(deps: DeployDeps): Handler<'deploy'> {
  const { docker } = deps;

  async function bringUp(task: DeployTask, deployment: string, context: TaskContext): Promise<{ id: string; hostPort: number }> {
    const { payload } = task;
    const { signal, say } = context;
    // A tag may mean another image by now; a digest cannot.
    const present = payload.image_digest !== null && docker.hasImage(payload.image, signal);
    const [adopted, hasImage] = await Promise.all([takeOver(deps, task, deployment, context), present]);
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
        say('deploy', `stopping ${old.name} first: the project is replaced, not rolled over`);
        await docker.stop(old.id, payload.stop_grace_seconds, signal);
        await failPoint('recreate.stopped');
      }
      const id = adopted?.id ?? (await start(deps, task, deployment, context));
      const hostPort = await untilHealthy(deps, task, id, context);
      await failPoint('probe.after');
      await docker.restartAlways(id, signal);
      await failPoint('restart-policy.after');
      for (const old of others) await docker.remove(old.id);
      return { id, hostPort };
    } catch (error) {
      await undo(docker, deployment, others, context).catch((e: unknown) =>
        say('deploy', `could not clear up: ${e instanceof Error ? e.message : String(e)}`),
      );
      throw error;
    }
  }

  /** Deployment -> the attempt that brought its container up last; the newest ones. */
  const broughtUp = new Map<string, TaskContext>();

  /** A report that is refused may be late by minutes: by then a later attempt may have gone on with this very container. */
  async function discard(deployment: string, id: string, context: TaskContext): Promise<void> {
    const unlock = await deps.locks.hold(`deployment ${deployment}`, new AbortController().signal);
    try {
      if (broughtUp.get(deployment) === context) await docker.remove(id);
    } finally {
      unlock();
    }
  }

  return async (task, context) => {
    const { payload } = task;
    const deployment = task.deployment_id;
    if (deployment === null) throw new TaskFailure('task_failed', 'the task names no deployment');
    if (payload.datasets.length > 0) throw new TaskFailure('task_failed', 'this agent does not mount datasets yet');

    // Two tasks of one deployment at once can only be one that was lost and its successor: the first clears up, then the second begins.
    const unlock = await deps.locks.hold(`deployment ${deployment}`, context.signal);
    const release = deps.images.hold(payload.image);
    try {
      const { id, hostPort } = await bringUp(task, deployment, context);
      // As the newest; the oldest is long reported.
      broughtUp.delete(deployment);
      broughtUp.set(deployment, context);
      if (broughtUp.size > MOST_REMEMBERED) broughtUp.delete(broughtUp.keys().next().value ?? '');
      return {
        report: { status: 'completed', result: null, host_port: hostPort, container_id: id },
        discard: () => discard(deployment, id, context),
      };
    } finally {
      release();
      unlock();
      deps.images.cleanLater(repositoryOf(payload.image));
    }
  };
}

const ofDeployment = (deployment: string): Record<string, string> => ({ [LABELS.deployment]: deployment });

/** Removes what this deployment started and puts back what it stopped. */
async function undo(docker: Docker, deployment: string, others: readonly Container[], { say }: TaskContext): Promise<void> {
  await failPoint('undo.before');
  for (const container of await docker.list(ofDeployment(deployment))) await docker.remove(container.id);
  await failPoint('undo.after');
  const running = others.filter((c) => c.state === 'running');
  // None: an earlier attempt stopped them and was killed. The newest is the one that served.
  for (const old of running.length > 0 ? running : others.slice(0, 1)) {
    say('deploy', `starting ${old.name} again`);
    await docker.start(old.id);
  }
}

/** A container that an earlier attempt started and that runs the right image is gone on with; everything else of this deployment is removed. */
async function takeOver(
  { docker }: DeployDeps,
  task: DeployTask,
  deployment: string,
  { signal, say }: TaskContext,
): Promise<Container | null> {
  const { payload } = task;
  let adopted: Container | null = null;
  for (const container of await docker.list(ofDeployment(deployment), signal)) {
    if (adopted === null && container.state === 'running' && container.image === payload.image) {
      adopted = container;
      say('deploy', `going on with ${container.name}, which an earlier attempt started`);
      continue;
    }
    say('deploy', `removing ${container.name}, which an earlier attempt left ${container.state}`);
    await docker.remove(container.id);
  }
  return adopted;
}

/** `recreate` (never two writers): stopped before the new one starts, removed when it is up. Newest first. */
async function othersOf({ docker }: DeployDeps, task: DeployTask, deployment: string, { signal }: TaskContext): Promise<Container[]> {
  const all = await docker.list({ [LABELS.project]: task.payload.project_id, [LABELS.node]: task.node_id }, signal);
  const generation = (c: Container): number => Number(c.labels[LABELS.generation] ?? 0);
  return all.filter((c) => c.labels[LABELS.deployment] !== deployment).sort((a, b) => generation(b) - generation(a));
}

async function start(deps: DeployDeps, task: DeployTask, deployment: string, { signal, say }: TaskContext): Promise<string> {
  const { payload } = task;
  const spec: RunSpec = {
    name: payload.container_name,
    image: payload.image,
    containerPort: payload.container_port,
    publishIp: deps.publishIp,
    labels: {
      [LABELS.project]: payload.project_id,
      [LABELS.project_name]: payload.project,
      [LABELS.deployment]: deployment,
      [LABELS.generation]: String(payload.generation),
      [LABELS.task]: task.id,
      [LABELS.node]: task.node_id,
    },
    // Where nothing else is said, a program may read its port there, as on other platforms.
    env: { PORT: String(payload.container_port), ...payload.env },
    memoryBytes: payload.memory_bytes,
    cpus: payload.cpus,
    pidsLimit: deps.pidsLimit,
    logMaxSize: deps.logMaxSize,
    logMaxFiles: deps.logMaxFiles,
  };
  say('deploy', `starting ${spec.name} from ${spec.image}`);
  try {
    return await deps.docker.run(spec, signal);
  } catch (error) {
    if (!(error instanceof TaskFailure && /name .* is already in use/i.test(error.message))) throw error;
    // Somebody else's, which is not ours to remove. The name is for people; everything goes by label.
    const name = `${spec.name}-${task.id.slice(-8)}`;
    say('deploy', `the name ${spec.name} is taken by a container of somebody else; using ${name}`);
    return deps.docker.run({ ...spec, name }, signal);
  }
}

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
        { host, port: hostPort, healthPath: payload.health_path },
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
async function downFailure({ docker }: DeployDeps, task: DeployTask, id: string, context: TaskContext): Promise<TaskFailure> {
  const container = await docker.inspect(id, context.signal);
  await sendLastLines(docker, id, context);
  if (container === null) return new TaskFailure('container_exited', 'it was removed by somebody else');
  if (container.state === 'running')
    return new TaskFailure('container_start_failed', `the engine published no port for ${task.payload.container_port}`);
  return exitFailure(container, task.payload.memory_bytes);
}

async function sendLastLines(docker: Docker, id: string, context: TaskContext): Promise<void> {
  for (const { stream, text } of await docker.lastLines(id, LAST_LINES)) context.log({ stream, step: 'container', text });
}
