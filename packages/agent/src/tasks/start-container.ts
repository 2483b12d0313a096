/**
 * Starts the container of a deployment with its mounts, secrets and limits, in the project's
 * network, and on a free port of this node.
 */
import { defined } from '@berth/kit/defined';
import { messageOf } from '@berth/kit/message-of';
import { LABELS } from '@berth/wire/vocabulary';
import type { Prepare } from '../data/prepare.ts';
import type { Volumes } from '../data/volumes/volumes.ts';
import type { Docker, Mount, RunSpec } from '../engine/docker.ts';
import { type HostPorts, isPortTaken } from '../engine/host-ports.ts';
import type { Networks } from '../engine/networks.ts';
import type { Ports } from '../engine/port-rule.ts';
import { probeLabel } from '../engine/running-probe.ts';
import { TaskFailure } from '../failures.ts';
import { ownerOf, type SecretFiles } from '../secrets/files.ts';
import type { DeployAttempt, DeployTask } from './deploy-attempt.ts';
import type { TaskContext } from './task.ts';

export type StartDeps = {
  docker: Pick<Docker, 'run' | 'userOf'>;
  networks: Pick<Networks, 'of' | 'forget'>;
  hostPorts: HostPorts;
  secretFiles: Pick<SecretFiles, 'fill'>;
  /** Null on a node without datasets. */
  prepare: Pick<Prepare, 'checkWritten'> | null;
  /** Null on a node without volumes. */
  volumes: Pick<Volumes, 'mounts'> | null;
  publishIp: string | undefined;
  pidsLimit: number;
  /** Memory limit in bytes for projects that set none. */
  defaultMemory: number | undefined;
  logMaxSize: string;
  logMaxFiles: number;
};
type StartOptions = {
  /** The mounts of the datasets. */
  mounts: readonly Mount[];
  /** The user of the image. */
  user: string;
};
type Unplaced = Omit<RunSpec, 'port'>;

/** Maximum number of ports to try in one start, because each refusal of the engine takes time. */
const PORT_TRIES = 50;
/**
 * A container inherits the labels of its image. If a Traefik reads the labels of this engine, an
 * image could route any host to its container, without a login. This label makes such a Traefik
 * ignore the container.
 */
const NO_ROUTERS = { 'traefik.enable': 'false' };

/** Starts the container and returns its id. */
export async function startContainer(
  deps: StartDeps,
  attempt: DeployAttempt,
  options: StartOptions,
): Promise<string> {
  const { task, container, context } = attempt;
  const spec = await containerSpec(deps, attempt, options);
  context.logStep('deploy', `starting ${spec.name} from ${spec.image}`);
  container.willStart(spec.name);
  try {
    return await runInNetwork(deps, attempt, spec, options.mounts);
  } catch (error) {
    if (!isNameTaken(error)) throw error;
    // Another container, which is not Berth's, has the name and must stay. Berth finds containers
    // by label; the name is for people.
    const name = `${spec.name}-${task.id.slice(-8)}`;
    container.willStart(name);
    context.logStep(
      'deploy',
      `the name ${spec.name} belongs to a container that Berth did not start; using ${name}`,
    );
    return runInNetwork(deps, attempt, { ...spec, name }, options.mounts);
  }
}

/** Runs the container. Retries once in a new network if the project's network was removed. */
async function runInNetwork(
  deps: StartDeps,
  attempt: DeployAttempt,
  spec: Unplaced,
  mounts: readonly Mount[],
): Promise<string> {
  try {
    return await runWithPort(deps, attempt, spec, mounts);
  } catch (error) {
    if (spec.network === null || !isNetworkMissing(error)) throw error;
    // The engine allows the removal of a network in which no container runs.
    const { task, container, context } = attempt;
    deps.networks.forget(task.payload.project_id);
    await container.remove();
    const network = await deps.networks.of(task.payload.project_id, task.node_id, context.signal);
    return runWithPort(deps, attempt, { ...spec, network }, mounts);
  }
}

/** Runs the container on a free port of PUBLISH_PORTS; one of a process without HTTP gets none. */
const runWithPort = (
  deps: StartDeps,
  attempt: DeployAttempt,
  spec: Unplaced,
  mounts: readonly Mount[],
): Promise<string> =>
  hasHttp(attempt.task.payload)
    ? runOnFreePort(deps, attempt, spec, mounts)
    : runChecked(deps, attempt, { ...spec, port: null }, mounts);

/** Returns whether the container of the task serves HTTP. */
export const hasHttp = ({ settle_seconds }: DeployTask['payload']): boolean =>
  settle_seconds === undefined;

async function runOnFreePort(
  deps: StartDeps,
  attempt: DeployAttempt,
  spec: Unplaced,
  mounts: readonly Mount[],
): Promise<string> {
  const { container, context, task } = attempt;
  const { range } = deps.hostPorts;
  const { container_port: containerPort } = task.payload;
  const { publishIp } = deps;
  const tries = Math.min(PORT_TRIES, range.last - range.first + 1);
  for (let tried = 1; ; tried += 1) {
    const { port, release } = await deps.hostPorts.take(context.signal);
    try {
      const published = { containerPort, publishIp, hostPort: port };
      return await runChecked(deps, attempt, { ...spec, port: published }, mounts);
    } catch (error) {
      if (!isPortTaken(error)) throw error;
      if (tried === tries) throw portsTaken(tries, range, error);
      context.logStep(
        'deploy',
        `another program has port ${port} of this node; trying the next one`,
      );
      await container.remove();
    } finally {
      release();
    }
  }
}

/**
 * Checks the folders that the container can write to, and starts the container right afterwards.
 */
async function runChecked(
  { docker, prepare }: StartDeps,
  { task, context }: DeployAttempt,
  spec: RunSpec,
  mounts: readonly Mount[],
): Promise<string> {
  await prepare?.checkWritten(task, mounts, context.signal);
  return docker.run(spec, context.signal);
}

const isNameTaken = (error: unknown): boolean =>
  error instanceof TaskFailure && /name .* is already in use/i.test(error.detail);
const isNetworkMissing = (error: unknown): boolean =>
  error instanceof TaskFailure && /network \S+ not found/i.test(error.detail);
const portsTaken = (tries: number, { first, last }: Ports, error: unknown): TaskFailure =>
  new TaskFailure(
    'ports_exhausted',
    `the engine refused ${tries} ports between ${first} and ${last} (PUBLISH_PORTS), the last ` +
      `one with: ${messageOf(error)}`,
  );

async function containerSpec(
  deps: StartDeps,
  attempt: DeployAttempt,
  { mounts, user }: StartOptions,
): Promise<Unplaced> {
  const { task, context } = attempt;
  const { payload } = task;
  const ids = idLabels(attempt);
  const userOf = (): Promise<number> =>
    deps.docker.userOf(payload.image, user, ids, context.signal);
  const volumeMounts = await mountVolumes(deps, payload, userOf);
  const files = context.secrets.filter((s) => s.as === 'file');
  const secretMounts =
    files.length === 0 ? [] : [await deps.secretFiles.fill(ownerOf(ids), files, await userOf())];
  return {
    name: payload.container_name,
    image: payload.image,
    command: payload.command ?? null,
    mounts: [...mounts, ...volumeMounts, ...secretMounts],
    labels: {
      ...ids,
      ...NO_ROUTERS,
      ...defined({
        [LABELS.volumes]: payload.volumes?.copy,
        [LABELS.devices]: payload.devices?.join(','),
      }),
      ...secretLabels(context),
      ...defaultMemoryLabel(deps, payload),
      ...probeLabel(payload),
    },
    // Programs read their port from PORT, as on other platforms. A PORT that the project sets takes
    // precedence.
    env: {
      ...defined({ PORT: hasHttp(payload) ? String(payload.container_port) : undefined }),
      ...payload.env,
    },
    secretEnv: Object.fromEntries(
      context.secrets.filter((s) => s.as === 'env').map(({ name, value }) => [name, value]),
    ),
    memoryBytes: memoryOf(deps, payload),
    network: await deps.networks.of(payload.project_id, task.node_id, context.signal),
    cpus: payload.cpus,
    devices: payload.devices ?? [],
    pidsLimit: deps.pidsLimit,
    logMaxSize: deps.logMaxSize,
    logMaxFiles: deps.logMaxFiles,
  };
}

const idLabels = ({
  task: { id, node_id, payload },
  deployment,
  context,
}: DeployAttempt): Record<string, string> => ({
  [LABELS.project]: payload.project_id,
  [LABELS.project_name]: payload.project,
  [LABELS.deployment]: deployment,
  [LABELS.generation]: String(payload.generation),
  [LABELS.task]: id,
  [LABELS.attempt]: String(context.attempt),
  [LABELS.node]: node_id,
  ...defined({
    [LABELS.instance]: payload.instance?.id,
    [LABELS.process]: payload.instance?.process,
    [LABELS.number]: payload.instance === undefined ? undefined : String(payload.instance.number),
  }),
});

const secretLabels = ({ secrets, secretsDigest }: TaskContext): Record<string, string> =>
  secretsDigest === null
    ? {}
    : {
        [LABELS.secrets]: secretsDigest,
        [LABELS.secret_names]: secrets.map(({ name }) => name).join(','),
      };

/** The label distinguishes the node's default limit from a limit that a person changed later. */
const defaultMemoryLabel = (
  { defaultMemory }: Pick<StartDeps, 'defaultMemory'>,
  { memory_bytes }: DeployTask['payload'],
): Record<string, string> =>
  memory_bytes !== null || defaultMemory === undefined
    ? {}
    : { [LABELS.default_memory]: String(defaultMemory) };

async function mountVolumes(
  { volumes }: StartDeps,
  { project_id, volumes: requested }: DeployTask['payload'],
  userOf: () => Promise<number>,
): Promise<Mount[]> {
  if (requested === undefined) return [];
  if (volumes === null)
    throw new TaskFailure(
      'agent_cannot',
      'this agent cannot write to SVC_ROOT, so it mounts no volumes',
    );
  return volumes.mounts(project_id, requested, userOf);
}

/** Returns the memory limit of the container in bytes; null if it has none. */
export const memoryOf = (
  { defaultMemory }: Pick<StartDeps, 'defaultMemory'>,
  { memory_bytes }: DeployTask['payload'],
): number | null => memory_bytes ?? defaultMemory ?? null;
