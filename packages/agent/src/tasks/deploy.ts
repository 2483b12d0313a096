/**
 * Task `deploy`: starts a container beside the one that serves now, and reports its port only after
 * it has answered a probe from outside.
 *
 *   adopt or remove containers of previous attempts -> prepare datasets -> pull by digest ->
 *   (recreate: stop the old containers) -> run on its own port -> probe -> restart policy -> report
 *
 * If a step fails, the attempt sends the container's last log lines and removes the container. The
 * old container keeps serving; with `recreate` it is restarted. The restart policy is set last,
 * because before that, an exit is final and keeps its exit code.
 *
 * An attempt removes only its own container (attempt-container.ts), because a later attempt, even
 * one of another agent, might have adopted a container. The retire task removes containers of other
 * deployments after the new version is live.
 */
import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import { messageOf } from '@berth/kit/message-of';
import { LABELS } from '@berth/wire/vocabulary';
import type { Prepare, Prepared } from '../data/prepare.ts';
import type { Images } from '../disk/old-images.ts';
import type { Container, Docker } from '../engine/docker.ts';
import type { ImageConfig } from '../engine/image-config.ts';
import { repositoryOf } from '../engine/image-ref.ts';
import type { Networks } from '../engine/networks.ts';
import { TaskFailure } from '../failures.ts';
import type { Locks } from '../locks.ts';
import type { SecretFiles } from '../secrets/files.ts';
import { Stopped } from '../stopped.ts';
import { createAttemptContainer } from './attempt-container.ts';
import type { DeployAttempt, DeployTask } from './deploy-attempt.ts';
import {
  checkImage,
  earlierName,
  type ImageDeps,
  nameOnNode,
  pull,
  pullImage,
} from './deploy-image.ts';
import {
  containersToRestart,
  otherContainers,
  type RecreateDeps,
  startAll,
  stopOthers,
} from './recreate.ts';
import { type StartDeps, startContainer } from './start-container.ts';
import { type Handler, NO_DATASETS, type Product, type TaskContext, traced } from './task.ts';
import { type AnswerDeps, keepRunning, untilHealthy } from './until-healthy.ts';

/** The dependencies of all steps, and the parts that a running task protects. */
export type DeployDeps = ImageDeps &
  StartDeps &
  AnswerDeps &
  RecreateDeps & {
    docker: Docker;
    images: Pick<Images, 'protect' | 'removed' | 'cleanLater'>;
    locks: Locks;
    networks: Pick<Networks, 'protect' | 'cleanLater'>;
    secretFiles: Pick<SecretFiles, 'protect' | 'cleanLater'>;
    /** Null on a node without datasets. */
    prepare: Prepare | null;
  };

export const createDeployHandler =
  (deps: DeployDeps): Handler<'deploy'> =>
  async (task, context) => {
    const deployment = task.deployment_id;
    if (deployment === null)
      throw new TaskFailure(
        'task_failed',
        'the task names no deployment; this is a fault of the control plane',
      );
    // If two tasks of one deployment overlap, the first one was lost and the second is its
    // successor: the second waits until the first has cleaned up.
    const instance = task.payload.instance?.id ?? '';
    const unlock = await deps.locks.acquire(`deployment ${deployment}${instance}`, context.signal);
    const release = protectParts(deps, task, deployment);
    try {
      return await deploy(deps, task, deployment, context);
    } finally {
      release();
      unlock();
      cleanLater(deps, task);
    }
  };

/** Protects the parts of this deployment from removal until the returned function is called. */
function protectParts(deps: DeployDeps, { payload }: DeployTask, deployment: string): () => void {
  const releases = [
    ...imageNames(payload).map((name) => deps.images.protect(name)),
    deps.prepare?.protect(deployment),
    deps.networks.protect(payload.project_id),
    deps.secretFiles.protect(payload.instance?.id ?? deployment),
  ];
  return () => releases.forEach((release) => release?.());
}

function cleanLater(deps: DeployDeps, { payload }: DeployTask): void {
  for (const name of imageNames(payload)) deps.images.cleanLater(repositoryOf(name));
  deps.networks.cleanLater();
  deps.secretFiles.cleanLater();
}

const imageNames = (payload: DeployTask['payload']): string[] => [
  payload.image,
  earlierName(payload),
];

async function deploy(
  deps: DeployDeps,
  task: DeployTask,
  deployment: string,
  context: TaskContext,
): Promise<Product> {
  const undoData = (): Promise<void> => undoDatasets(deps, task, deployment, context.attempt);
  try {
    const image = await nameOnNode(deps.docker, task.payload, context);
    const named = { ...task, payload: { ...task.payload, image } };
    const container = createAttemptContainer(deps.docker, named, deployment, context);
    const up = await bringUp(deps, { task: named, deployment, context, container });
    return {
      report: {
        status: 'completed',
        result: null,
        ...defined({ host_port: up.hostPort ?? undefined }),
        container_id: up.id,
        datasets: up.datasets,
      },
      async discard() {
        await container.remove();
        // Protect the mounts, as a running task does, until `undoDatasets` has decided about them.
        const release = deps.prepare?.protect(deployment);
        await undoData().finally(() => release?.());
      },
    };
  } catch (error) {
    await undoData().catch((e: unknown) =>
      context.logStep('data', `clean-up failed: ${messageOf(e)}`),
    );
    throw error;
  }
}

/**
 * Removes the mounts of the datasets after the container. A container that any attempt started must
 * not lose its mounts, and neither must another instance that is about to start here.
 */
async function undoDatasets(
  { docker, prepare }: DeployDeps,
  task: DeployTask,
  deployment: string,
  attempt: number,
): Promise<void> {
  if (prepare === null) return;
  const containers = await docker.list({ [LABELS.deployment]: deployment });
  if (containers.length === 0) await prepare.undo(task, deployment, attempt);
}

type Up = { id: string; hostPort: number | null; datasets: Prepared['datasets'] };

async function bringUp(deps: DeployDeps, attempt: DeployAttempt): Promise<Up> {
  const { docker } = deps;
  const { task, context, container } = attempt;
  const { payload } = task;
  // The image is protected now, but a removal that began earlier must finish first.
  await deps.images.removed();
  // Only a digest identifies the image: a tag might have been moved.
  const presentImage =
    payload.image_digest === null ? null : docker.imageConfig(payload.image, context.signal);
  const [adopted, imageOnNode] = await Promise.all([container.adopt(), presentImage]);
  const data = await traced(context, 'copy', () =>
    prepareDatasets(deps, attempt, adopted !== null),
  );
  const image = imageOnNode ?? (await imageFor(deps, attempt, adopted));
  // A running container can outlive its image, so an adopted one might have none to check.
  if (image !== null) checkImage(deps, attempt, image, data.mounts);
  const others = payload.replace === 'recreate' ? await otherContainers(deps, attempt) : [];
  try {
    await stopOthers(deps, attempt, others);
    const start = { mounts: data.mounts, user: image?.user ?? '' };
    const id =
      adopted?.id ?? (await traced(context, 'start', () => startWithImage(deps, attempt, start)));
    const hostPort = await traced(context, 'probe', () => untilHealthy(deps, attempt, id, image));
    await failPoint('probe.after');
    await keepRunning(deps, attempt, id, image);
    await failPoint('restart-policy.after');
    return { id, hostPort, datasets: data.datasets };
  } catch (error) {
    await undo(docker, attempt, containersToRestart(others, payload)).catch((e: unknown) =>
      context.logStep('deploy', `clean-up failed: ${messageOf(e)}`),
    );
    const leftContainer = container.left();
    if (leftContainer !== null) context.leaves?.(leftContainer);
    throw error;
  }
}

/** Returns the image's configuration; null if the image of an adopted container was removed. */
const imageFor = (
  deps: DeployDeps,
  { task: { payload }, context }: DeployAttempt,
  adopted: Container | null,
): Promise<ImageConfig | null> =>
  adopted === null
    ? pullImage(deps, payload.image, context)
    : deps.docker.imageConfig(payload.image, context.signal);

/** Matches the engine’s errors for a missing image. */
const NO_IMAGE = /no such image|unable to find image|image not known/i;

async function startWithImage(
  deps: DeployDeps,
  attempt: DeployAttempt,
  options: Parameters<typeof startContainer>[2],
): Promise<string> {
  const { task, context, container } = attempt;
  try {
    return await startContainer(deps, attempt, options);
  } catch (error) {
    if (!(error instanceof TaskFailure && NO_IMAGE.test(error.detail))) throw error;
    // Something on this machine removed the image, perhaps an agent with a different role.
    context.logStep('pull', 'the image was removed from this node meanwhile');
    await container.remove();
    await pull(deps, task.payload.image, context);
    return startContainer(deps, attempt, options);
  }
}

const NO_DATA: Prepared = { mounts: [], datasets: [] };
/** Prepares the container's mounts; for an adopted container, returns its existing mounts. */
async function prepareDatasets(
  { prepare }: DeployDeps,
  { task, deployment, context }: DeployAttempt,
  isAdopted: boolean,
): Promise<Prepared> {
  if (task.payload.datasets.length === 0 && (prepare === null || isAdopted)) return NO_DATA;
  if (prepare === null) throw new TaskFailure('dataset_copy_failed', NO_DATASETS);
  if (!isAdopted) return prepare.mounts(task, deployment, context);
  return { mounts: [], datasets: await prepare.mounted(task, deployment, context.attempt) };
}

/** Removes this attempt’s container, and restarts the containers that this attempt stopped. */
async function undo(
  docker: Docker,
  { container, context: { signal, logStep } }: DeployAttempt,
  old: readonly Container[],
): Promise<void> {
  await failPoint('undo.before');
  await container.remove();
  await failPoint('undo.after');
  // The new attempt has stopped the old container or will stop it, so restarting it could run two
  // versions at once.
  const isLost = signal.aborted && signal.reason instanceof Stopped && signal.reason.why === 'lost';
  if (!isLost) await startAll(docker, old, (name) => logStep('deploy', `restarting ${name}`));
}
