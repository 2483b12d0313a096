/**
 * Waits until a new container is healthy: probes it over HTTP from outside, then runs the
 * HEALTHCHECK of its image. Explains why a container does not answer.
 */
import { failPoint } from '@berth/kit/fail-point';
import { addressOf, checkFailure, exitFailure, probeFailure } from '../engine/diagnosis.ts';
import type { Docker } from '../engine/docker.ts';
import { type CheckFailure, untilChecked } from '../engine/health-check.ts';
import type { HealthCheck, ImageConfig } from '../engine/image-config.ts';
import { listenersOf } from '../engine/listening.ts';
import { probe, type ProbeResult, publishedHost } from '../engine/probe.ts';
import type { RunningProbe } from '../engine/running-probe.ts';
import { TaskFailure } from '../failures.ts';
import type { DeployAttempt } from './deploy-attempt.ts';
import { pause } from '../stopped.ts';
import { hasHttp, memoryOf } from './start-container.ts';
import type { TaskContext } from './task.ts';

export type AnswerDeps = {
  docker: Docker;
  /** The address on which this node's published ports answer. */
  hostIp: () => Promise<string>;
  publishIp: string | undefined;
  /** Go's name of the architecture of the engine. */
  arch: () => string;
  /** Holds the probe of running containers (engine/running-probe.ts). */
  holdProbe?: RunningProbe['hold'];
  /** Memory limit in bytes for projects that set none. */
  defaultMemory: number | undefined;
};

const LAST_LOG_LINES = 50;
const SLOW_MS = 15_000;
const IS_UP: readonly string[] = ['running', 'restarting', 'paused'];

/**
 * Probes until the container answers, and returns its host port; null for a process without HTTP,
 * which has started when it runs for `settle_seconds`. Ends early if the container exits, the
 * deadline passes or the signal aborts.
 */
export async function untilHealthy(
  deps: AnswerDeps,
  attempt: DeployAttempt,
  id: string,
  image: ImageConfig | null,
): Promise<number | null> {
  const { docker } = deps;
  const { task, context } = attempt;
  const { container_port: port } = task.payload;
  if (!hasHttp(task.payload)) return untilSettled(deps, attempt, id, image);
  const releaseProbe = deps.holdProbe?.(id);
  const exit = watchExit(docker, id, context);
  let slowTimer: NodeJS.Timeout | undefined;
  try {
    const hostPort = await docker.hostPort(id, port, context.signal);
    if (hostPort === null) throw await downFailure(deps, attempt, id, image);
    const host = await publishedHost(deps);
    context.logStep('probe', probeText(task.payload, host, hostPort));
    await failPoint('probe.before');
    slowTimer = setTimeout(() => void tellListeners(docker, id, port, context), SLOW_MS);
    const answer = await firstAnswer(deps, attempt, {
      id,
      host,
      hostPort,
      check: image?.healthCheck ?? null,
      alive: AbortSignal.any([context.signal, exit.signal]),
    }).catch(async (error: unknown) => {
      throw error === exit.reason ? await downFailure(deps, attempt, id, image) : error;
    });
    if (answer.kind === 'healthy') return hostPort;
    throw await answerFailure(deps, attempt, id, image, answer);
  } finally {
    clearTimeout(slowTimer);
    releaseProbe?.();
    await exit.stop();
  }
}

/** Waits until the container has run for the settle time, from its own start. */
async function untilSettled(
  deps: AnswerDeps,
  attempt: DeployAttempt,
  id: string,
  image: ImageConfig | null,
): Promise<null> {
  const { docker } = deps;
  const { task, context } = attempt;
  const seconds = task.payload.settle_seconds ?? 0;
  context.logStep('settle', `the process has started when it runs for ${seconds} s`);
  const exit = watchExit(docker, id, context);
  try {
    const isDown = await pause(seconds * 1000, AbortSignal.any([context.signal, exit.signal])).then(
      () => false,
      (error: unknown) => {
        if (error === exit.reason) return true;
        throw error;
      },
    );
    // The watch might have missed the exit, because a restart of the engine ends its containers too.
    if (isDown || (await docker.inspect(id, context.signal))?.state !== 'running')
      throw await downFailure(deps, attempt, id, image);
    context.logStep('settle', `the process runs for ${seconds} s`);
    return null;
  } finally {
    await exit.stop();
  }
}

/** Aborts `signal` with `reason` when the container exits. */
type ExitWatch = { signal: AbortSignal; reason: Error; stop(): Promise<void> };

function watchExit(
  docker: AnswerDeps['docker'],
  id: string,
  { signal, logStep }: TaskContext,
): ExitWatch {
  const exited = new AbortController();
  const stopped = new AbortController();
  const reason = new Error('the container exited');
  const watching = docker.waitExit(id, AbortSignal.any([signal, stopped.signal])).then(
    () => exited.abort(reason),
    (error: unknown) => {
      // Only the watch failed. The probe has its own deadline, and the container's state is read
      // afterwards.
      if (stopped.signal.aborted || signal.aborted) return;
      logStep('probe', `watching the container for its exit failed: ${String(error)}`);
    },
  );
  return {
    signal: exited.signal,
    reason,
    async stop() {
      stopped.abort();
      await watching;
    },
  };
}

const probeText = (
  { health_path, probe_seconds }: DeployAttempt['task']['payload'],
  host: string,
  port: number,
): string => `probing http://${host}:${port}${health_path ?? '/'} for up to ${probe_seconds} s`;

type Unhealthy =
  | { kind: 'no answer'; last: Extract<ProbeResult, { ok: false }>['last'] }
  | { kind: 'check failed'; check: HealthCheck; failure: CheckFailure };
type Answer = { kind: 'healthy' } | Unhealthy;
type ProbeTarget = {
  id: string;
  host: string;
  hostPort: number;
  /** The HEALTHCHECK of the image; null if it has none. */
  check: HealthCheck | null;
  /** Aborted when the task stops or the container exits. */
  alive: AbortSignal;
};

/** Probes the container, then runs its HEALTHCHECK. Both share the time limit of one probe. */
async function firstAnswer(
  { docker }: AnswerDeps,
  { task: { payload }, context }: DeployAttempt,
  { id, host, hostPort, check, alive }: ProbeTarget,
): Promise<Answer> {
  const limitMs = payload.probe_seconds * 1000;
  const until = performance.now() + limitMs;
  const result = await probe(
    { host, port: hostPort, healthPath: payload.health_path, visitorUrl: payload.url ?? null },
    limitMs,
    alive,
  );
  if (!result.ok) return { kind: 'no answer', last: result.last };
  context.logStep('probe', `the container answered with status ${result.status}`);
  if (check === null) return { kind: 'healthy' };
  context.logStep('probe', `running the HEALTHCHECK of the image: ${check.command.join(' ')}`);
  const failure = await untilChecked(docker, id, check, until, alive);
  return failure === null ? { kind: 'healthy' } : { kind: 'check failed', check, failure };
}

/** Explains why a running container is not healthy. */
async function answerFailure(
  deps: AnswerDeps,
  attempt: DeployAttempt,
  id: string,
  image: ImageConfig | null,
  answer: Unhealthy,
): Promise<TaskFailure> {
  const { docker } = deps;
  const { task, context } = attempt;
  const { payload } = task;
  if (answer.kind === 'check failed') {
    await sendLastLines(docker, id, context);
    return checkFailure(answer.check, answer.failure, payload.probe_seconds);
  }
  // The watch might have missed the exit, because a restart of the engine ends its containers too.
  if ((await docker.inspect(id, context.signal))?.state !== 'running')
    return downFailure(deps, attempt, id, image);
  const listeners = await listenersOf(id, docker);
  await sendLastLines(docker, id, context);
  return probeFailure({
    containerPort: payload.container_port,
    healthPath: payload.health_path,
    probeSeconds: payload.probe_seconds,
    last: answer.last,
    listeners,
    exposed: image?.exposed ?? [],
  });
}

/**
 * Sets the restart policy. The policy does not restart a container that has already exited, for
 * example after its first answer.
 */
export async function keepRunning(
  deps: AnswerDeps,
  attempt: DeployAttempt,
  id: string,
  image: ImageConfig | null,
): Promise<void> {
  const { signal } = attempt.context;
  const isDown = async (): Promise<boolean> =>
    !IS_UP.includes((await deps.docker.inspect(id, signal))?.state ?? '');
  try {
    await deps.docker.restartUnlessStopped(id, signal);
  } catch (error) {
    if (signal.aborted || !(await isDown())) throw error;
  }
  if (await isDown()) throw await downFailure(deps, attempt, id, image);
}

/** Logs the ports on which a slow container listens, long before its deadline. */
async function tellListeners(
  docker: AnswerDeps['docker'],
  id: string,
  port: number,
  { logStep }: TaskContext,
): Promise<void> {
  try {
    const listeners = await listenersOf(id, docker);
    if (listeners === null) return;
    const listening =
      listeners.length === 0
        ? 'no program listens yet'
        : `a program listens on ${listeners.map(addressOf).join(', ')}`;
    logStep(
      'probe',
      `no answer after ${SLOW_MS / 1000} s: ${listening}; the project's container port is ${port}`,
    );
  } catch (error) {
    logStep('probe', `reading what the container listens on failed: ${String(error)}`);
  }
}

/** Explains why the container is not running. */
async function downFailure(
  deps: AnswerDeps,
  { task, context }: DeployAttempt,
  id: string,
  image: ImageConfig | null,
): Promise<TaskFailure> {
  const { docker } = deps;
  const container = await docker.inspect(id, context.signal);
  const printed = await sendLastLines(docker, id, context);
  if (container === null)
    return new TaskFailure('container_exited', 'the container was removed by another program');
  if (container.state === 'running')
    return new TaskFailure(
      'container_start_failed',
      `the engine published no host port for container port ${task.payload.container_port}`,
    );
  const { command, instance } = task.payload;
  const failure = exitFailure(container, {
    memoryBytes: memoryOf(deps, task.payload),
    printed,
    containerPort: task.payload.container_port,
    command: command ?? [...(image?.entrypoint ?? []), ...(image?.cmd ?? [])],
    imageArch: image?.arch ?? '',
    nodeArch: deps.arch(),
  });
  if (hasHttp(task.payload)) return failure;
  const name = instance === undefined ? 'process' : `${instance.process} ${instance.number}`;
  return new TaskFailure('process_exited', `${name}: ${failure.detail}`);
}

/** Logs the container's last lines and returns them as one text. */
async function sendLastLines(
  docker: AnswerDeps['docker'],
  id: string,
  context: TaskContext,
): Promise<string> {
  const last = await docker.lastLines(id, LAST_LOG_LINES);
  for (const { stream, text } of last) context.log({ stream, step: 'container', text });
  return last.map(({ text }) => text).join('\n');
}
