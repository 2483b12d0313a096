/**
 * deploy: starts one container beside the one that serves now, and reports its port only after it
 * answered from outside.
 *
 *   adopt or remove the containers of earlier attempts -> prepare datasets -> pull by digest ->
 *   (recreate: stop the old containers) -> run on a port of its own -> probe -> restart policy ->
 *   report
 *
 * When a step fails, the attempt sends the container's last log lines and removes it. The container
 * that served before goes on serving; with `recreate` it is started again. The restart policy comes
 * last: before it, an exit is final and has its exit code.
 *
 * An attempt removes only its own container (attempt-container.ts), because a later attempt, even
 * of another agent, may have adopted one. Containers of other deployments are removed by the retire
 * task, when the new version is live.
 */
import { failPoint } from '@berth/kit/fail-point';
import { messageOf } from '@berth/kit/message-of';
import { LABELS } from '@berth/wire/vocabulary';
import type { TaskOf } from '@berth/wire/task';
import type { Prepare, Prepared } from '../data/prepare.ts';
import type { Volumes } from '../data/volumes/volumes.ts';
import { addressOf, checkFailure, exitFailure, probeFailure } from '../engine/diagnosis.ts';
import { type CheckFailure, untilChecked } from '../engine/health-check.ts';
import { type HostPorts, isPortTaken } from '../engine/host-ports.ts';
import { imageNotes } from '../engine/image-notes.ts';
import { type Images } from '../disk/old-images.ts';
import { repositoryOf } from '../engine/image-ref.ts';
import { listenersOf } from '../engine/listening.ts';
import type { Locks } from '../locks.ts';
import type { Networks } from '../engine/networks.ts';
import type { ExpectPull, KeepRoom } from '../disk/keep-room.ts';
import type { Ports } from '../engine/port-rule.ts';
import type { ListNodeContainers } from '../engine/node-ids.ts';
import { probe, type ProbeResult } from '../engine/probe.ts';
import type { Container, Docker, Mount, RunSpec } from '../engine/docker.ts';
import type { ImageConfig } from '../engine/image-config.ts';
import type { SecretFiles } from '../secrets/files.ts';
import { TaskFailure } from '../failures.ts';
import { Stopped } from '../stopped.ts';
import { createAttemptContainer, type AttemptContainer } from './attempt-container.ts';
import { stopContainer } from './stop-container.ts';
import { type Handler, NO_DATASETS, type TaskContext, traced } from './task.ts';

export type DeployDeps = {
  docker: Docker;
  listContainers: ListNodeContainers;
  images: Images;
  locks: Locks;
  networks: Networks;
  secretFiles: SecretFiles;
  keepRoom: KeepRoom;
  expectPull: ExpectPull;
  /** Null on a node that takes no datasets. */
  prepare: Prepare | null;
  /** Null on a node that takes no volumes. */
  volumes: Volumes | null;
  /** The address at which published ports of this node answer. */
  hostIp: () => Promise<string>;
  publishIp: string | undefined;
  hostPorts: HostPorts;
  /** Go's name of the architecture of the engine. */
  arch: () => string;
  pullTimeoutMs: number;
  pidsLimit: number;
  /** Memory limit in bytes of projects that set none. */
  defaultMemory: number | undefined;
  logMaxSize: string;
  logMaxFiles: number;
};
type DeployTask = TaskOf<'deploy'>;

const LAST_LOG_LINES = 50;

export function createDeployHandler(deps: DeployDeps): Handler<'deploy'> {
  const { docker } = deps;

  type Up = { id: string; hostPort: number; datasets: Prepared['datasets'] };
  async function bringUp(
    task: DeployTask,
    deployment: string,
    context: TaskContext,
    attemptContainer: AttemptContainer,
  ): Promise<Up> {
    const { payload } = task;
    const { signal, logStep } = context;
    // The image is protected by now, but its removal may have begun before.
    await deps.images.removed();
    // Only a digest can be trusted: a tag may have been moved to another image.
    const present =
      payload.image_digest === null ? null : docker.imageConfig(payload.image, signal);
    const [adopted, found] = await Promise.all([attemptContainer.adopt(), present]);
    const data = await traced(context, 'copy', () =>
      prepareDatasets(deps, task, deployment, context, adopted !== null),
    );
    const image =
      found ??
      (adopted === null
        ? await pullImage(deps, payload.image, context)
        : await docker.imageConfig(payload.image, signal));
    // A container that runs may outlive its image.
    if (image !== null) checkImage(deps, task, image, data.mounts, context);
    const others =
      payload.replace === 'recreate' ? await otherContainers(deps, task, deployment, context) : [];
    try {
      for (const old of others) {
        logStep(
          'deploy',
          `stopping ${old.name} before the new container starts (strategy ` +
            `recreate)${keptNote(old, payload)}`,
        );
        await stopContainer(docker, old, payload.stop_grace_seconds, 'deploy', context);
        await failPoint('recreate.stopped');
      }
      const startNew = (): Promise<string> =>
        start(
          deps,
          task,
          deployment,
          { mounts: data.mounts, user: image?.user ?? '' },
          context,
          attemptContainer,
        );
      const startWithImage = (): Promise<string> =>
        startNew().catch(async (error: unknown) => {
          if (!(error instanceof TaskFailure && NO_IMAGE.test(error.message))) throw error;
          // Another program removed it, perhaps the agent of another role on this machine.
          logStep('pull', 'the image was removed from this node meanwhile');
          await attemptContainer.remove();
          await pull(deps, payload.image, context);
          return startNew();
        });
      const id = adopted?.id ?? (await traced(context, 'start', startWithImage));
      const hostPort = await traced(context, 'probe', () =>
        untilHealthy(deps, task, id, image, context),
      );
      await failPoint('probe.after');
      await keepRunning(deps, task, id, image, context);
      await failPoint('restart-policy.after');
      return { id, hostPort, datasets: data.datasets };
    } catch (error) {
      await undo(docker, attemptContainer, containerToRestart(others, payload), context).catch(
        (e: unknown) => logStep('deploy', `clean-up failed: ${messageOf(e)}`),
      );
      const left = attemptContainer.left();
      if (left !== null) context.leaves?.(left);
      throw error;
    }
  }

  return async (given, context) => {
    const deployment = given.deployment_id;
    if (deployment === null)
      throw new TaskFailure(
        'task_failed',
        'the task names no deployment; this is a fault of the control plane',
      );

    // Two tasks of one deployment at the same time are a lost task and its successor: the first
    // cleans up, then the second starts.
    const unlock = await deps.locks.acquire(`deployment ${deployment}`, context.signal);
    const names = [given.payload.image, earlierName(given.payload)];
    const releases = names.map((name) => deps.images.protect(name));
    const releaseImage = (): void => releases.forEach((release) => release());
    const { payload } = given;
    const releaseDatasets = deps.prepare?.protect(deployment);
    const releaseNetwork = deps.networks.protect(payload.project_id);
    const releaseSecrets = deps.secretFiles.protect(deployment);
    // Undo the datasets after the container: a container that any attempt started must not lose its
    // mounts.
    const undoData = async (): Promise<void> => {
      if (deps.prepare === null) return;
      if ((await docker.list({ [LABELS.deployment]: deployment })).length === 0)
        await deps.prepare.undo(task, deployment, context.attempt);
    };
    let task = given;
    try {
      task = {
        ...given,
        payload: { ...payload, image: await nameOnNode(docker, payload, context) },
      };
      const attemptContainer = createAttemptContainer(docker, task, deployment, context);
      const { id, hostPort, datasets } = await bringUp(task, deployment, context, attemptContainer);
      return {
        report: {
          status: 'completed',
          result: null,
          host_port: hostPort,
          container_id: id,
          datasets,
        },
        discard: () => attemptContainer.remove().then(undoData),
      };
    } catch (error) {
      await undoData().catch((e: unknown) =>
        context.logStep('data', `clean-up failed: ${messageOf(e)}`),
      );
      throw error;
    } finally {
      releaseDatasets?.();
      releaseNetwork();
      releaseSecrets();
      releaseImage();
      unlock();
      for (const name of names) deps.images.cleanLater(repositoryOf(name));
      deps.networks.cleanLater();
      deps.secretFiles.cleanLater();
    }
  };
}

/** The image under the registry’s address at the time of its build. */
const earlierName = ({ image, image_tag, image_digest }: DeployTask['payload']): string =>
  image_digest === null ? image : `${repositoryOf(image_tag)}@${image_digest}`;

/**
 * Returns the name under which the node has the image. The address of the registry may have changed
 * since it was pulled.
 */
async function nameOnNode(
  docker: Docker,
  payload: DeployTask['payload'],
  { signal, logStep }: TaskContext,
): Promise<string> {
  const [name, earlier] = [payload.image, earlierName(payload)];
  if (
    name === earlier ||
    (await docker.imageConfig(name, signal)) !== null ||
    (await docker.imageConfig(earlier, signal)) === null
  )
    return name;
  logStep('pull', `the node has the image as ${earlier}`);
  return earlier;
}

/** The engine’s errors about an image that it does not have. */
const NO_IMAGE = /no such image|unable to find image|image not known/i;
/**
 * Bytes that a second try of a pull of unknown size finds free on a full disk, if evictions can
 * free them.
 */
const PULL_ROOM = 5_000_000_000;

/**
 * Pulls the image and returns its configuration. Another program may remove it at once; then it is
 * pulled again.
 */
async function pullImage(
  deps: DeployDeps,
  image: string,
  context: TaskContext,
): Promise<ImageConfig> {
  for (let tries = 1; tries <= 2; tries += 1) {
    await pull(deps, image, context);
    const config = await deps.docker.imageConfig(image, context.signal);
    if (config !== null) return config;
    context.logStep('pull', 'the image was removed from this node right after its pull');
  }
  throw new TaskFailure(
    'image_pull_failed',
    'another program removes the image from this node right after each pull',
  );
}

async function pull(deps: DeployDeps, image: string, context: TaskContext): Promise<void> {
  const { signal, logStep } = context;
  const once = (): Promise<void> =>
    traced(context, 'pull', () =>
      deps.docker.pull(image, {
        signal,
        timeoutMs: deps.pullTimeoutMs,
        onLine: (text) => context.log({ stream: 'stdout', step: 'pull', text }),
      }),
    );
  const expected = await deps.expectPull(image, signal);
  try {
    await deps.keepRoom(signal, { logLine: (text) => logStep('pull', text) });
    logStep('pull', `pulling ${image}`);
    await failPoint('pull.before');
    await once().catch(async (error: unknown) => {
      if (!(error instanceof TaskFailure && error.code === 'disk_full')) throw error;
      // The size of an image is known only when its layers are unpacked.
      logStep('pull', 'the disk is full; evicting what can go, and pulling again');
      expected.release();
      await deps.keepRoom(signal, { wanted: 2 * expected.bytes || PULL_ROOM, recount: true });
      await once();
    });
    await expected.pulled();
  } finally {
    expected.release();
  }
  await failPoint('pull.after');
}

/**
 * Refuses an image that cannot run before anything stops, and says in the story what the image asks
 * for and does not get.
 */
function checkImage(
  deps: DeployDeps,
  { payload }: DeployTask,
  image: ImageConfig,
  mounts: readonly Mount[],
  context: TaskContext,
): void {
  if (image.entrypoint.length === 0 && image.cmd.length === 0)
    throw new TaskFailure(
      'container_start_failed',
      'the image has no ENTRYPOINT and no CMD; add CMD ["program", "argument"] to the Dockerfile',
    );
  const ownPort =
    Object.hasOwn(payload.env, 'PORT') ||
    context.secrets.some(({ name, as }) => as === 'env' && name === 'PORT');
  const targets = [
    ...payload.datasets.map(({ mount_path }) => mount_path),
    ...mounts.map(({ target }) => target),
    ...(payload.volumes?.mounts ?? []).map(({ mount_path }) => mount_path),
  ];
  for (const text of imageNotes(image, {
    arch: deps.arch(),
    targets,
    port: ownPort ? null : payload.container_port,
  })) {
    context.logStep('deploy', text);
    context.note('image', text);
  }
}

const NO_DATA: Prepared = { mounts: [], datasets: [] };
/**
 * Prepares the mounts of the container; for an adopted container, returns the mounts that it has.
 */
async function prepareDatasets(
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

/** Removes this attempt’s container and starts the container that it stopped. */
async function undo(
  docker: Docker,
  attemptContainer: AttemptContainer,
  old: Container | undefined,
  { signal, logStep }: TaskContext,
): Promise<void> {
  await failPoint('undo.before');
  await attemptContainer.remove();
  await failPoint('undo.after');
  // The attempt that has the task now has stopped the old container or will: starting it would run
  // two versions at once.
  const lost = signal.aborted && signal.reason instanceof Stopped && signal.reason.why === 'lost';
  if (old === undefined || lost) return;
  logStep('deploy', `restarting ${old.name}`);
  await docker.start(old.id);
}

/**
 * Strategy recreate (never two writers): all other containers of the project, newest first. They
 * stop before the new one starts.
 */
async function otherContainers(
  { listContainers }: DeployDeps,
  task: DeployTask,
  deployment: string,
  { signal }: TaskContext,
): Promise<Container[]> {
  const all = await listContainers({ [LABELS.project]: task.payload.project_id }, signal);
  const generation = (c: Container): number => Number(c.labels[LABELS.generation] ?? 0);
  return all
    .filter((c) => c.labels[LABELS.deployment] !== deployment)
    .sort((a, b) => generation(b) - generation(a));
}

/** Returns at most one container: the one that served, else the newest that ran. */
function containerToRestart(
  others: readonly Container[],
  { replaces }: DeployTask['payload'],
): Container | undefined {
  const served = others.find((c) => c.labels[LABELS.deployment] === replaces);
  // `replaces` is unknown and none runs: an earlier attempt stopped them and was killed.
  return (
    served ??
    others.find((c) => c.state === 'running') ??
    (replaces === undefined ? others[0] : undefined)
  );
}

/**
 * Text for a stopped container that did not serve: a leftover that will be removed, or one that the
 * control plane does not know.
 */
const keptNote = (old: Container, { replaces }: DeployTask['payload']): string =>
  replaces === undefined || old.labels[LABELS.deployment] === replaces
    ? ''
    : `. It did not serve the live version; it stays stopped (docker start ${old.name} starts it ` +
      'again)';

/**
 * A container inherits the labels of its image. A Traefik that reads this engine's labels would
 * route any host to the container, without a login. This label makes such a Traefik ignore the
 * container.
 */
const NO_ROUTERS = { 'traefik.enable': 'false' };

async function start(
  deps: DeployDeps,
  task: DeployTask,
  deployment: string,
  { mounts, user }: { mounts: readonly Mount[]; user: string },
  context: TaskContext,
  attemptContainer: AttemptContainer,
): Promise<string> {
  const { payload } = task;
  const { signal, logStep } = context;
  const memoryBytes = memoryOf(deps, payload);
  const labels = {
    [LABELS.project]: payload.project_id,
    [LABELS.project_name]: payload.project,
    [LABELS.deployment]: deployment,
    [LABELS.generation]: String(payload.generation),
    [LABELS.task]: task.id,
    [LABELS.attempt]: String(context.attempt),
    [LABELS.node]: task.node_id,
  };
  const userOf = (): Promise<number> => deps.docker.userOf(payload.image, user, labels, signal);
  const volumeMounts = await mountVolumes(deps, payload, userOf);
  const files = context.secrets.filter((s) => s.as === 'file');
  const secretMounts =
    files.length === 0 ? [] : [await deps.secretFiles.fill(deployment, files, await userOf())];
  const spec: Unplaced = {
    name: payload.container_name,
    image: payload.image,
    containerPort: payload.container_port,
    mounts: [...mounts, ...volumeMounts, ...secretMounts],
    publishIp: deps.publishIp,
    labels: {
      ...labels,
      ...NO_ROUTERS,
      ...(payload.volumes === undefined ? {} : { [LABELS.volumes]: payload.volumes.copy }),
      ...(context.secretsDigest === null ? {} : { [LABELS.secrets]: context.secretsDigest }),
      ...(context.secretsDigest === null
        ? {}
        : { [LABELS.secret_names]: context.secrets.map(({ name }) => name).join(',') }),
      // The label tells the default limit of this node from a limit that somebody changed by hand.
      ...(payload.memory_bytes === null && memoryBytes !== null
        ? { [LABELS.default_memory]: String(memoryBytes) }
        : {}),
    },
    // Programs read their port from PORT, as on other platforms, unless the project sets PORT
    // itself.
    env: { PORT: String(payload.container_port), ...payload.env },
    secretEnv: Object.fromEntries(
      context.secrets.filter((s) => s.as === 'env').map(({ name, value }) => [name, value]),
    ),
    memoryBytes,
    network: await deps.networks.of(payload.project_id, task.node_id, signal),
    cpus: payload.cpus,
    pidsLimit: deps.pidsLimit,
    logMaxSize: deps.logMaxSize,
    logMaxFiles: deps.logMaxFiles,
  };
  const runOnce = async (spec: RunSpec): Promise<string> => {
    await deps.prepare?.checkWritten(task, mounts, signal);
    return deps.docker.run(spec, signal);
  };
  const run = async (spec: Unplaced): Promise<string> => {
    const tries = Math.min(PORT_TRIES, deps.hostPorts.range.last - deps.hostPorts.range.first + 1);
    for (let tried = 1; ; tried += 1) {
      const { port, release } = await deps.hostPorts.take(signal);
      try {
        return await runOnce({ ...spec, hostPort: port });
      } catch (error) {
        if (!isPortTaken(error)) throw error;
        if (tried === tries) throw portsTaken(tries, deps.hostPorts.range, error);
        logStep('deploy', `another program has port ${port} of this node; trying the next one`);
        await attemptContainer.remove();
      } finally {
        release();
      }
    }
  };
  const startInNetwork = async (spec: Unplaced): Promise<string> => {
    try {
      return await run(spec);
    } catch (error) {
      if (
        spec.network === null ||
        !(error instanceof TaskFailure && /network \S+ not found/i.test(error.message))
      )
        throw error;
      // Somebody removed the network; the engine allows that while no container runs in it.
      deps.networks.forget(payload.project_id);
      await attemptContainer.remove();
      return run({
        ...spec,
        network: await deps.networks.of(payload.project_id, task.node_id, signal),
      });
    }
  };
  logStep('deploy', `starting ${spec.name} from ${spec.image}`);
  attemptContainer.willStart(spec.name);
  try {
    return await startInNetwork(spec);
  } catch (error) {
    if (!(error instanceof TaskFailure && /name .* is already in use/i.test(error.message)))
      throw error;
    // A foreign container has the name and must stay. Berth finds containers by label; the name is
    // for people.
    const name = `${spec.name}-${task.id.slice(-8)}`;
    attemptContainer.willStart(name);
    logStep(
      'deploy',
      `the name ${spec.name} belongs to a container that Berth did not start; using ${name}`,
    );
    return startInNetwork({ ...spec, name });
  }
}

/** Ports that a start tries at most: each refusal of the engine takes a moment. */
const PORT_TRIES = 50;
type Unplaced = Omit<RunSpec, 'hostPort'>;

const portsTaken = (tries: number, { first, last }: Ports, error: unknown): TaskFailure =>
  new TaskFailure(
    'ports_exhausted',
    `the engine refused ${tries} ports between ${first} and ${last} (PUBLISH_PORTS), the last ` +
      `one with: ${messageOf(error)}`,
  );

async function mountVolumes(
  { volumes }: DeployDeps,
  { project_id, volumes: wanted }: DeployTask['payload'],
  userOf: () => Promise<number>,
): Promise<Mount[]> {
  if (wanted === undefined) return [];
  if (volumes === null)
    throw new TaskFailure(
      'agent_cannot',
      'this agent cannot write to SVC_ROOT, so it mounts no volumes',
    );
  return volumes.mounts(project_id, wanted, userOf);
}

const memoryOf = (deps: DeployDeps, payload: DeployTask['payload']): number | null =>
  payload.memory_bytes ?? deps.defaultMemory ?? null;

/**
 * Probes until the container answers. Ends early when the container exits, the deadline passes or
 * the signal aborts.
 */
async function untilHealthy(
  deps: DeployDeps,
  task: DeployTask,
  id: string,
  image: ImageConfig | null,
  context: TaskContext,
): Promise<number> {
  const { payload } = task;
  const { docker } = deps;
  const check = image?.healthCheck ?? null;
  let telling: NodeJS.Timeout | undefined;
  const ended = new AbortController();
  const watch = new AbortController();
  const exited = new Error('the container exited');
  const watching = docker.waitExit(id, AbortSignal.any([context.signal, watch.signal])).then(
    () => ended.abort(exited),
    // Only the watch failed: the probe has its own deadline, and the container's state is read at
    // the end.
    (error: unknown) =>
      void (
        watch.signal.aborted ||
        context.signal.aborted ||
        context.logStep('probe', `watching the container for its exit failed: ${String(error)}`)
      ),
  );
  try {
    const hostPort = await docker.hostPort(id, payload.container_port, context.signal);
    if (hostPort === null) throw await downFailure(deps, task, id, image, context);
    const host =
      deps.publishIp === undefined || deps.publishIp === '0.0.0.0' || deps.publishIp === '::'
        ? await deps.hostIp()
        : deps.publishIp;
    context.logStep(
      'probe',
      `probing http://${host}:${hostPort}${payload.health_path ?? '/'} for up to ` +
        `${payload.probe_seconds} s`,
    );
    await failPoint('probe.before');
    const until = performance.now() + payload.probe_seconds * 1000;
    telling = setTimeout(
      () => void tellListeners(docker, id, payload.container_port, context),
      SLOW_MS,
    );
    const alive = AbortSignal.any([context.signal, ended.signal]);
    let result: ProbeResult;
    let failed: CheckFailure | null = null;
    try {
      result = await probe(
        { host, port: hostPort, healthPath: payload.health_path, visitorUrl: payload.url ?? null },
        payload.probe_seconds * 1000,
        alive,
      );
      if (result.ok)
        context.logStep('probe', `the container answered with status ${result.status}`);
      if (result.ok && check !== null) {
        context.logStep(
          'probe',
          `running the HEALTHCHECK of the image: ${check.command.join(' ')}`,
        );
        failed = await untilChecked(docker, id, check, until, alive);
      }
    } catch (error) {
      if (error === exited) throw await downFailure(deps, task, id, image, context);
      throw error;
    }
    if (failed !== null && check !== null) {
      await sendLastLines(docker, id, context);
      throw checkFailure(check, failed, payload.probe_seconds);
    }
    if (result.ok) return hostPort;
    // The watch may have missed the exit: an engine that restarts ends its containers too.
    if ((await docker.inspect(id, context.signal))?.state !== 'running')
      throw await downFailure(deps, task, id, image, context);
    const listeners = await listenersOf(id, docker);
    await sendLastLines(docker, id, context);
    throw probeFailure({
      containerPort: payload.container_port,
      healthPath: payload.health_path,
      probeSeconds: payload.probe_seconds,
      last: result.last,
      listeners,
      exposed: image?.exposed ?? [],
    });
  } finally {
    clearTimeout(telling);
    watch.abort();
    await watching;
  }
}

/**
 * Sets the restart policy. It does not start a container that exited before, for example after its
 * first answer.
 */
async function keepRunning(
  deps: DeployDeps,
  task: DeployTask,
  id: string,
  image: ImageConfig | null,
  context: TaskContext,
): Promise<void> {
  const { signal } = context;
  const isDown = async (): Promise<boolean> =>
    !IS_UP.includes((await deps.docker.inspect(id, signal))?.state ?? '');
  try {
    await deps.docker.restartUnlessStopped(id, signal);
  } catch (error) {
    if (signal.aborted || !(await isDown())) throw error;
  }
  if (await isDown()) throw await downFailure(deps, task, id, image, context);
}
const IS_UP: readonly string[] = ['running', 'restarting', 'paused'];

const SLOW_MS = 15_000;

/** Shows what a slow container listens on, long before its time is over. */
async function tellListeners(
  docker: Docker,
  id: string,
  port: number,
  { logStep }: TaskContext,
): Promise<void> {
  try {
    const listeners = await listenersOf(id, docker);
    if (listeners === null) return;
    const seen =
      listeners.length === 0
        ? 'no program listens yet'
        : `a program listens on ${listeners.map(addressOf).join(', ')}`;
    logStep(
      'probe',
      `no answer after ${SLOW_MS / 1000} s: ${seen}; the project's container port is ${port}`,
    );
  } catch (error) {
    logStep('probe', `reading what the container listens on failed: ${String(error)}`);
  }
}

/** Explains why the container does not run. */
async function downFailure(
  deps: DeployDeps,
  task: DeployTask,
  id: string,
  image: ImageConfig | null,
  context: TaskContext,
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
  return exitFailure(container, {
    memoryBytes: memoryOf(deps, task.payload),
    printed,
    containerPort: task.payload.container_port,
    command: [...(image?.entrypoint ?? []), ...(image?.cmd ?? [])],
    imageArch: image?.arch ?? '',
    nodeArch: deps.arch(),
  });
}

/** Returns the lines as one text. */
async function sendLastLines(docker: Docker, id: string, context: TaskContext): Promise<string> {
  const last = await docker.lastLines(id, LAST_LOG_LINES);
  for (const { stream, text } of last) context.log({ stream, step: 'container', text });
  return last.map(({ text }) => text).join('\n');
}
