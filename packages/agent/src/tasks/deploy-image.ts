/** Finds, pulls and checks the image of a deployment. */
import { failPoint } from '@berth/kit/fail-point';
import type { ExpectPull, KeepRoom } from '../disk/keep-room.ts';
import { repositoryOf } from '../engine/image-ref.ts';
import type { Docker, Mount } from '../engine/docker.ts';
import type { ImageConfig } from '../engine/image-config.ts';
import { imageNotes } from '../engine/image-notes.ts';
import { TaskFailure } from '../failures.ts';
import type { DeployAttempt, DeployTask } from './deploy-attempt.ts';
import { type TaskContext, traced } from './task.ts';

export type ImageDeps = {
  docker: Pick<Docker, 'imageConfig' | 'pull'>;
  keepRoom: KeepRoom;
  expectPull: ExpectPull;
  pullTimeoutMs: number;
  /** Go's name of the architecture of the engine. */
  arch: () => string;
};

type NamedImage = Pick<DeployTask['payload'], 'image' | 'image_tag' | 'image_digest'>;

/** Returns the image's name under the registry’s address at build time. */
export const earlierName = ({ image, image_tag, image_digest }: NamedImage): string =>
  image_digest === null ? image : `${repositoryOf(image_tag)}@${image_digest}`;

/**
 * Returns the name under which the node has the image. The registry's address might have changed
 * since the pull.
 */
export async function nameOnNode(
  docker: Pick<ImageDeps['docker'], 'imageConfig'>,
  payload: NamedImage,
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

/** Bytes to free before the second try of a pull of unknown size, if evictions can free them. */
const PULL_ROOM = 5_000_000_000;

/**
 * Pulls the image and returns its configuration. Pulls again if a program on this machine removes
 * the image right after the pull.
 */
export async function pullImage(
  deps: ImageDeps,
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

/** Makes room for the image, then pulls it. */
export async function pull(deps: ImageDeps, image: string, context: TaskContext): Promise<void> {
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
      // The size of an image is known only after its layers are unpacked.
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
 * Refuses an image that cannot run, before any container stops. Adds notes about image settings
 * that Berth ignores.
 */
export function checkImage(
  { arch }: Pick<ImageDeps, 'arch'>,
  { task: { payload }, context }: DeployAttempt,
  image: ImageConfig,
  mounts: readonly Mount[],
): void {
  if (image.entrypoint.length === 0 && image.cmd.length === 0)
    throw new TaskFailure(
      'container_start_failed',
      'the image has no ENTRYPOINT and no CMD; add CMD ["program", "argument"] to the Dockerfile',
    );
  const setsPort =
    Object.hasOwn(payload.env, 'PORT') ||
    context.secrets.some(({ name, as }) => as === 'env' && name === 'PORT');
  const notes = imageNotes(image, {
    arch: arch(),
    targets: mountPaths(payload, mounts),
    port: setsPort ? null : payload.container_port,
  });
  for (const text of notes) {
    context.logStep('deploy', text);
    context.note('image', text);
  }
}

const mountPaths = (payload: DeployTask['payload'], mounts: readonly Mount[]): string[] => [
  ...payload.datasets.map(({ mount_path }) => mount_path),
  ...mounts.map(({ target }) => target),
  ...(payload.volumes?.mounts ?? []).map(({ mount_path }) => mount_path),
];
