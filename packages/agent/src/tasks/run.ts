/**
 * Task `run`: executes a command in a container of its own, from the image of a release. The
 * container has no port, no restart policy, and no label of a deployment.
 *
 *   look for the container of an earlier attempt ─┬─ it was started ──────────┐
 *                                                 ├─ it is gone, with a mark: run_lost
 *                                                 └─ else: datasets -> pull -> create
 *                                                       -> (stdin: attach) -> mark -> start
 *                                                                             │
 *   send the output until it has ended  <─────────────────────────────────────┘
 *     -> report the exit code -> (accepted) remove container, mounts and mark
 *
 * The command starts at most once for each run, whatever dies when: an attempt starts only a
 * container that never ran, and a mark on the disk outlives the container. An attempt that lost its
 * lease, or whose agent stops, leaves the container: the next attempt goes on with it, and
 * sweep-runs.ts removes it if no task wants it.
 */
import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import { messageOf } from '@berth/kit/message-of';
import { FAILURES } from '@berth/wire/errors';
import type { RunResult } from '@berth/wire/run-payload';
import type { TaskOf } from '@berth/wire/task';
import { LABELS } from '@berth/wire/vocabulary';
import type { Prepare } from '../data/prepare.ts';
import type { Volumes } from '../data/volumes/volumes.ts';
import type { Images } from '../disk/old-images.ts';
import type { CommandSpec, Container, Docker, Mount } from '../engine/docker.ts';
import type { ImageConfig } from '../engine/image-config.ts';
import { repositoryOf } from '../engine/image-ref.ts';
import type { Networks } from '../engine/networks.ts';
import type { RunInputs } from '../engine/run-input.ts';
import { TaskFailure } from '../failures.ts';
import type { Locks } from '../locks.ts';
import type { SecretFiles } from '../secrets/files.ts';
import { pause, Stopped } from '../stopped.ts';
import { type ImageDeps, nameOnNode, pullImage } from './deploy-image.ts';
import type { RunMarks } from './run-marks.ts';
import { untilEnded } from './run-output.ts';
import {
  type Handler,
  NO_DATASETS,
  nothingToDiscard,
  type Product,
  type TaskContext,
} from './task.ts';

export type RunDeps = ImageDeps & {
  docker: Docker;
  images: Pick<Images, 'protect' | 'removed' | 'cleanLater'>;
  locks: Locks;
  networks: Pick<Networks, 'of' | 'protect' | 'cleanLater'>;
  secretFiles: Pick<SecretFiles, 'fill' | 'protect' | 'cleanLater'>;
  /** Null on a node without datasets. */
  prepare: Prepare | null;
  /** Null on a node without volumes. */
  volumes: Pick<Volumes, 'mounts'> | null;
  marks: RunMarks;
  inputs: Pick<RunInputs, 'expect'>;
  /** The runs that this process works on, so that sweep-runs.ts leaves them. */
  inUse: { add(runId: string): () => void };
  /** Called when a container with devices is gone: other commands can wait for the devices. */
  onDevicesFree: () => void;
  pidsLimit: number;
  /** Memory limit in bytes for projects that set none. */
  defaultMemory: number | undefined;
  logMaxSize: string;
  logMaxFiles: number;
};
type RunTask = TaskOf<'run'>;
type Attempt = { task: RunTask; context: TaskContext };

/** Exit codes of a shell for a program that does not exist, or that cannot be executed. */
const NOT_FOUND = 127;
const NOT_EXECUTABLE = 126;

export const createRunHandler =
  (deps: RunDeps): Handler<'run'> =>
  async (task, context) => {
    const { run_id, project_id, image } = task.payload;
    // Two attempts of one run can overlap in this process: the second goes on with the container
    // when the first has ended.
    const unlock = await deps.locks.acquire(`run ${run_id}`, context.signal);
    const releases = [
      deps.inUse.add(run_id),
      deps.images.protect(image),
      deps.prepare?.protect(run_id),
      deps.networks.protect(project_id),
      deps.secretFiles.protect(run_id),
    ];
    try {
      return await execute(deps, { task, context });
    } finally {
      releases.forEach((release) => release?.());
      unlock();
      deps.images.cleanLater(repositoryOf(image));
      deps.networks.cleanLater();
      deps.secretFiles.cleanLater();
    }
  };

async function execute(deps: RunDeps, attempt: Attempt): Promise<Product> {
  const { task, context } = attempt;
  const adopted = await adopt(deps, attempt);
  const id = adopted ?? (await start(deps, attempt));
  if (typeof id === 'number') return ended(deps, attempt, { exit_code: id, out_of_memory: false });
  const { container, isLate } = await untilStopped(deps, attempt, id);
  if (context.signal.aborted) {
    await removeRun(deps, task);
    throw context.signal.reason;
  }
  const result = { exit_code: container.exitCode, out_of_memory: container.oomKilled };
  const { timeout_seconds } = task.payload;
  if (!isLate && (adopted === null || !hasOverrun(container, timeout_seconds))) {
    context.logStep('run', endText(result));
    return ended(deps, attempt, result);
  }
  const message = `${FAILURES.command_timeout}: the limit is ${timeout_seconds} s.`;
  context.logStep('run', message);
  return {
    ...ended(deps, attempt, result),
    report: { status: 'failed', result: { error: { code: 'command_timeout', message } } },
  };
}

/**
 * Tells whether an earlier attempt stopped the command at its time limit, by the times of the
 * engine.
 */
const hasOverrun = ({ startedAt, finishedAt }: Container, seconds: number): boolean =>
  startedAt !== null &&
  finishedAt !== null &&
  Date.parse(finishedAt) - Date.parse(startedAt) >= seconds * 1000;

const endText = ({ exit_code, out_of_memory }: RunResult): string =>
  out_of_memory
    ? `the command was killed, because it exceeded its memory limit (exit code ${exit_code})`
    : `the command ended with exit code ${exit_code}`;

/** The container stays until the report is accepted: a later attempt reads its exit code again. */
const ended = (deps: RunDeps, { task }: Attempt, result: RunResult): Product => ({
  report: { status: 'completed', result: { ...result } as Record<string, unknown> },
  // Another attempt has the task and reports the same container.
  discard: nothingToDiscard,
  accepted: async () => {
    await failPoint('command.reported');
    await removeRun(deps, task);
  },
});

/**
 * Returns the container that an earlier attempt started, or null if none was started. Throws
 * TaskFailure run_lost if one might have been started and is gone.
 */
async function adopt(
  { docker, marks }: RunDeps,
  { task, context }: Attempt,
): Promise<string | null> {
  const { run_id } = task.payload;
  for (const container of await docker.list({ [LABELS.run]: run_id }, context.signal)) {
    if (container.startedAt !== null) {
      context.logStep('run', 'continuing with the container of an earlier attempt');
      return container.id;
    }
    // It never ran: its mark only says that its start was near.
    await docker.remove(container.id);
    await marks.remove(run_id);
  }
  if (await marks.has(run_id))
    throw new TaskFailure(
      'run_lost',
      'its container is gone from the node, so the exit code is unknown',
    );
  return null;
}

/** Starts the container and returns its id, or the exit code if the program cannot be started. */
async function start(deps: RunDeps, attempt: Attempt): Promise<string | number> {
  const { docker, marks } = deps;
  const { task, context } = attempt;
  const { run_id, stdin } = task.payload;
  const input = stdin === true ? deps.inputs.expect(run_id) : null;
  try {
    const id = await docker.createCommand(await specOf(deps, attempt), context.signal);
    await failPoint('command.created');
    await input?.attach(id, {
      signal: context.signal,
      onCut: (bytes) =>
        context.logStep(
          'run',
          `the standard input ended after ${bytes} bytes, because its connection was lost`,
        ),
    });
    await marks.add(run_id);
    context.signal.throwIfAborted();
    await failPoint('command.marked');
    await docker.start(id);
    await failPoint('command.started');
    return id;
  } catch (error) {
    const code = exitCodeOf(error);
    const isStopped = context.signal.aborted && error === context.signal.reason;
    if (isStopped && isLeft(context)) throw error;
    if (code === null) {
      await removeUnstarted(deps, attempt);
      throw error;
    }
    context.logStep('run', whyNotStarted(messageOf(error), task.payload.command));
    return code;
  } finally {
    input?.close();
  }
}

/** An agent that stops, or that lost its lease, leaves everything to the next attempt. */
const isLeft = ({ signal }: TaskContext): boolean =>
  signal.reason instanceof Stopped && signal.reason.why !== 'cancelled';

/** Removes a container that never started, so that nothing of a failed start stays. */
async function removeUnstarted(deps: RunDeps, { task, context }: Attempt): Promise<void> {
  try {
    const containers = await deps.docker.list({ [LABELS.run]: task.payload.run_id });
    if (containers.every(({ startedAt }) => startedAt === null)) await removeRun(deps, task);
  } catch (error) {
    context.logStep('run', `clean-up failed: ${messageOf(error)}`);
  }
}

/** Returns the exit code for a program that the engine cannot start; null for other errors. */
function exitCodeOf(error: unknown): number | null {
  const text = messageOf(error);
  if (/executable file not found|no such file or directory/i.test(text)) return NOT_FOUND;
  return /exec.*permission denied|is a directory/i.test(text) ? NOT_EXECUTABLE : null;
}

/** The engine names the cause last, after its own layers. */
function whyNotStarted(said: string, [program = '']: readonly string[]): string {
  if (/exec.*permission denied/i.test(said))
    return `“${program}” is not executable in the image: ${said}`;
  if (!/executable file not found/i.test(said)) return said;
  const hint = /\s/.test(program) ? ' (no shell splits it into words)' : '';
  return `the image has no program “${program}”${hint}: ${said}`;
}

async function specOf(deps: RunDeps, { task, context }: Attempt): Promise<CommandSpec> {
  const { payload } = task;
  const { signal } = context;
  const image = await nameOnNode(deps.docker, payload, context);
  await deps.images.removed();
  const config =
    (await deps.docker.imageConfig(image, signal)) ?? (await pullImage(deps, image, context));
  const datasets = await mountDatasets(deps, { task, context });
  const others = await otherMounts(deps, { task, context }, config);
  context.logStep('run', `starting ${payload.container_name} from ${image}`);
  return {
    name: `${payload.container_name}-${task.id.slice(-6)}`,
    image,
    command: payload.command,
    ...defined({ stdin: payload.stdin }),
    mounts: [...datasets, ...others],
    labels: {
      [LABELS.run]: payload.run_id,
      [LABELS.run_node]: task.node_id,
      [LABELS.run_grace]: String(payload.stop_grace_seconds),
      [LABELS.project]: payload.project_id,
      [LABELS.project_name]: payload.project,
      ...defined({ [LABELS.devices]: payload.devices?.join(',') }),
      'traefik.enable': 'false',
    },
    env: payload.env,
    secretEnv: Object.fromEntries(
      context.secrets.filter((s) => s.as === 'env').map(({ name, value }) => [name, value]),
    ),
    memoryBytes: payload.memory_bytes ?? deps.defaultMemory ?? null,
    network: await deps.networks.of(payload.project_id, task.node_id, signal),
    cpus: payload.cpus,
    devices: payload.devices ?? [],
    pidsLimit: deps.pidsLimit,
    logMaxSize: deps.logMaxSize,
    logMaxFiles: deps.logMaxFiles,
  };
}

/** The folder of the mounts has the id of the run, and is removed with its container. */
async function mountDatasets({ prepare }: RunDeps, { task, context }: Attempt): Promise<Mount[]> {
  const { datasets, run_id } = task.payload;
  if (datasets.length === 0) return [];
  if (prepare === null) throw new TaskFailure('dataset_copy_failed', NO_DATASETS);
  const mounting = { id: task.id, payload: { ...task.payload, generation: 0 } };
  const { mounts } = await prepare.mounts(mounting, run_id, context);
  await prepare.checkWritten(mounting, mounts, context.signal);
  return mounts;
}

async function otherMounts(
  deps: RunDeps,
  { task, context }: Attempt,
  config: ImageConfig,
): Promise<Mount[]> {
  const { run_id, project_id, image, volumes } = task.payload;
  const userOf = (): Promise<number> =>
    deps.docker.userOf(image, config.user, { [LABELS.run_node]: task.node_id }, context.signal);
  if (volumes !== undefined && deps.volumes === null)
    throw new TaskFailure('agent_cannot', 'this agent cannot write to SVC_ROOT');
  const mounts =
    volumes === undefined ? [] : await deps.volumes?.mounts(project_id, volumes, userOf);
  const files = context.secrets.filter((s) => s.as === 'file');
  if (files.length === 0) return mounts ?? [];
  return [...(mounts ?? []), await deps.secretFiles.fill(run_id, files, await userOf())];
}

/**
 * Waits for the end. Stops the command at its time limit and at a cancellation, while its output is
 * still sent. Rejects, and leaves the container, if the agent stops or has lost the lease.
 */
async function untilStopped(
  deps: RunDeps,
  attempt: Attempt,
  id: string,
): Promise<{ container: Container; isLate: boolean }> {
  const { task, context } = attempt;
  const { timeout_seconds, stop_grace_seconds } = task.payload;
  const leaving = new AbortController();
  const stop = (why: string): void => {
    context.logStep('run', `${why}: stopping the command (${stop_grace_seconds} s until SIGKILL)`);
    void stopCommand(deps, id, stop_grace_seconds, leaving.signal);
  };
  const onAbort = (): void => {
    if (isLeft(context)) leaving.abort(context.signal.reason);
    else stop('cancelled');
  };
  if (context.signal.aborted) onAbort();
  else context.signal.addEventListener('abort', onAbort, { once: true });
  const started = await deps.docker.inspect(id, leaving.signal).catch(() => null);
  const startedAt = started?.startedAt ?? null;
  const ranMs = startedAt === null ? 0 : Date.now() - Date.parse(startedAt);
  const remainingMs = timeout_seconds * 1000 - Math.max(0, ranMs);
  let isLate = false;
  // A command that ended while its agent was away needs no stop: its own times judge it.
  const hasEnded = started?.state === 'exited' && started.finishedAt !== null;
  const onLate = (): void => {
    isLate = true;
    stop(`the time limit of ${timeout_seconds} s has passed`);
  };
  const timer = hasEnded
    ? undefined
    : setTimeout(onLate, Math.min(MAX_TIMER_MS, Math.max(0, remainingMs)));
  try {
    return { container: await untilEnded(deps, id, context, leaving.signal), isLate };
  } finally {
    clearTimeout(timer);
    context.signal.removeEventListener('abort', onAbort);
    // Ends a stop that still tries.
    leaving.abort(new Error('the command has ended'));
  }
}

/** Stops the container. Tries again while the engine does not answer. */
async function stopCommand(
  { docker }: Pick<RunDeps, 'docker'>,
  id: string,
  graceSeconds: number,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted)
    try {
      return await docker.stop(id, graceSeconds, signal);
    } catch {
      await pause(STOP_AGAIN_MS, signal).catch(() => undefined);
    }
}

/** Longest time of a timer in ms. */
const MAX_TIMER_MS = 2_147_483_647;
const STOP_AGAIN_MS = 2_000;

type RemoveDeps = Pick<RunDeps, 'docker' | 'prepare' | 'marks' | 'onDevicesFree'> & {
  secretFiles: Pick<SecretFiles, 'cleanLater'>;
};
/** Removes the container, the mounts and the mark of a run that is over. */
export async function removeRun(
  { docker, prepare, marks, secretFiles, onDevicesFree }: RemoveDeps,
  { payload: { run_id } }: { payload: { run_id: string } },
): Promise<void> {
  const containers = await docker.list({ [LABELS.run]: run_id });
  for (const container of containers) await docker.remove(container.id);
  if (containers.some(({ labels }) => labels[LABELS.devices] !== undefined)) onDevicesFree();
  await failPoint('command.removed');
  await prepare?.remove(run_id);
  await marks.remove(run_id);
  secretFiles.cleanLater();
}
