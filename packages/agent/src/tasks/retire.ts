/**
 * Task `retire`: runs after the route was switched. It waits for requests in flight, stops and
 * removes the old containers, and gives the new container its stable name `svc-{domain_prefix}`.
 * Finds containers by label, never by name, and can repeat every step. `stop` and `start` are for
 * projects that must not run two versions at once: a version on another node stops before the new
 * one starts, and starts again if the new one fails.
 */
import { failPoint } from '@berth/kit/fail-point';
import { LABELS } from '@berth/wire/vocabulary';
import type { RetirePayload } from '@berth/wire/task';
import type { DatasetParts } from '../data/dataset-parts.ts';
import type { Images } from '../disk/old-images.ts';
import type { Locks } from '../locks.ts';
import type { Networks } from '../engine/networks.ts';
import type { ListNodeContainers } from '../engine/node-ids.ts';
import type { SecretFiles } from '../secrets/files.ts';
import { pause } from '../stopped.ts';
import type { Container, Docker } from '../engine/docker.ts';
import { TaskFailure } from '../failures.ts';
import { startAll } from './recreate.ts';
import { stopContainer } from './stop-container.ts';
import { type Handler, nothingToDiscard, type TaskContext } from './task.ts';

export type RetireDeps = {
  docker: Docker;
  listContainers: ListNodeContainers;
  images: Images;
  locks: Locks;
  networks: Pick<Networks, 'cleanLater'>;
  secretFiles: Pick<SecretFiles, 'cleanLater'>;
  /** Null on a node without datasets. */
  data: Pick<DatasetParts, 'inventory' | 'sweepMounts'> | null;
  /** Returns `{registry}/{project}` for a project's name; null while the registry is unknown. */
  repositoryOf: (project: string) => string | null;
};

export function createRetireHandler({
  docker,
  listContainers,
  images,
  locks,
  networks,
  secretFiles,
  data,
  repositoryOf,
}: RetireDeps): Handler<'retire'> {
  return async (task, context) => {
    const { payload } = task;
    const list: ListNodeContainers = (labels) =>
      listContainers({ ...labels, [LABELS.project]: payload.project_id }, context.signal);
    // Tasks assign the stable name in their order, because a previous task might still drain the
    // container that has it. Draining and removing do not wait for the lock: otherwise old versions
    // would pile up if new versions arrive faster than old ones drain.
    const turn = locks.acquire(`retire ${payload.project_id}`, context.signal);
    // The lock can be rejected before this task awaits it; the later await still sees the
    // rejection.
    turn.catch(() => undefined);
    try {
      const old = (await list({})).filter((c) => removalOf(c, payload) !== undefined);
      const drainSeconds = old.some((c) => c.state === 'running') ? drainOf(old, payload) : 0;
      if (drainSeconds > 0) {
        const what = `letting requests in flight finish for ${drainSeconds} s`;
        context.logStep('retire', what);
        await pause(drainSeconds * 1000, context.signal);
      }
      await data?.inventory.released(old).catch((error: unknown) => {
        context.logStep(
          'retire',
          `reading the dataset mounts of the old containers failed: ${String(error)}`,
        );
      });
      await failPoint('retire.before');
      await Promise.all(
        old.map((container) =>
          retire(docker, container, removalOf(container, payload)?.reason ?? '', payload, context),
        ),
      );
      const { stop = [], start = null } = payload;
      for (const container of await list({})) {
        const stopping = stop.find((one) => isMeant(one, container));
        if (stopping !== undefined)
          await stopWithoutRemoving(docker, container, stopping.reason, payload, context);
      }
      await turn;
      if (start !== null) await restart(docker, start, list, context);
      if (payload.keep !== null)
        await giveStableName(docker, { ...payload.keep, instance_id: null }, list, context);
      for (const target of payload.keep_instances ?? [])
        await giveStableName(docker, target, list, context);
    } finally {
      // If the lock was never acquired, there is no release.
      void turn.then(
        (unlock) => unlock(),
        () => undefined,
      );
    }
    // Remove the mount folders of retired deployments, which pin versions. If this fails, the next
    // retire task repeats it.
    await data?.sweepMounts(context.signal).catch((error: unknown) => {
      context.signal.throwIfAborted();
      context.logStep(
        'retire',
        `removing the mount folders of earlier deployments failed: ${String(error)}`,
      );
    });
    const repository = repositoryOf(payload.project);
    if (repository !== null && payload.project_deleted === true) images.forgetLater(repository);
    else if (repository !== null) images.cleanLater(repository);
    networks.cleanLater();
    secretFiles.cleanLater();
    return { report: { status: 'completed', result: null }, discard: nothingToDiscard };
  };
}

/**
 * Minimum drain time in seconds of instances that a control plane of version 0.1.0 removes. It does
 * not know instances: it names no id, and removes them right after it took them out of the route.
 */
const UNKNOWN_DRAIN_SECONDS = 10;

const drainOf = (old: readonly Container[], payload: RetirePayload): number =>
  payload.keep_instances === undefined &&
  old.some((c) => instanceOf(c) !== null && removalOf(c, payload)?.instance_id === undefined)
    ? Math.max(payload.drain_seconds, UNKNOWN_DRAIN_SECONDS)
    : payload.drain_seconds;

const instanceOf = ({ labels }: Container): string | null => labels[LABELS.instance] ?? null;

/** Returns the entry of `remove` that names the container, or undefined. */
const removalOf = (
  container: Container,
  { remove }: RetirePayload,
): RetirePayload['remove'][number] | undefined => remove.find((one) => isMeant(one, container));

/** Returns whether the entry of `remove` or `stop` names the container. */
const isMeant = (
  { deployment_id, instance_id }: { deployment_id: string; instance_id?: string | null },
  container: Container,
): boolean =>
  deployment_id === container.labels[LABELS.deployment] &&
  (instance_id === undefined || instance_id === instanceOf(container));

async function retire(
  docker: Docker,
  container: Container,
  reason: string,
  payload: RetirePayload,
  context: TaskContext,
): Promise<void> {
  const { logStep } = context;
  logStep('retire', `stopping ${container.name}${reason === '' ? '' : `: ${reason}`}`);
  await stopContainer(docker, container, payload.stop_grace_seconds, 'retire', context);
  await failPoint('retire.stopped');
  await docker.remove(container.id);
  await failPoint('retire.removed');
  logStep('retire', `removed ${container.name}`);
}

async function stopWithoutRemoving(
  docker: Docker,
  container: Container,
  reason: string,
  { stop_grace_seconds }: RetirePayload,
  context: TaskContext,
): Promise<void> {
  // Stop exited containers too: without a recorded stop, revive.ts would start the container again
  // after an engine restart.
  context.logStep('retire', `stopping ${container.name} without removing it: ${reason}`);
  await stopContainer(docker, container, stop_grace_seconds, 'retire', context);
}

/** Starts all instances of the deployment on this machine. */
async function restart(
  docker: Docker,
  deployment: string,
  list: ListNodeContainers,
  { logStep }: TaskContext,
): Promise<void> {
  const containers = await list({ [LABELS.deployment]: deployment });
  if (containers.length === 0)
    throw new TaskFailure(
      'container_start_failed',
      `the container of deployment ${deployment} does not exist any more; deploy again`,
    );
  const stopped = containers.filter(({ state }) => state !== 'running');
  await startAll(docker, stopped, (name) => logStep('retire', `restarting ${name}`));
}

async function giveStableName(
  docker: Docker,
  target: NonNullable<RetirePayload['keep']> & { instance_id: string | null },
  list: ListNodeContainers,
  { signal, logStep }: TaskContext,
): Promise<void> {
  const container = (await list({ [LABELS.deployment]: target.deployment_id })).find(
    (c) => instanceOf(c) === target.instance_id,
  );
  // A newer deployment has already retired the container; the next registration reports this.
  if (container === undefined)
    return logStep('retire', `no container to rename to ${target.name}: it was removed`);
  if (container.name === target.name) return;
  const holder = await docker.inspect(target.name, signal);
  if (holder !== null && holder.id !== container.id) {
    const owner = (await list({})).some((c) => c.id === holder.id)
      ? `deployment ${holder.labels[LABELS.deployment]} of this project`
      : 'another program';
    throw new TaskFailure(
      'container_name_taken',
      `a container of ${owner} has the name ${target.name}; rename it. ${container.name} ` +
        'serves under its own name until then',
    );
  }
  await failPoint('rename.before');
  await docker.rename(container.id, target.name);
  await failPoint('rename.after');
  logStep('retire', `renamed ${container.name} to ${target.name}`);
}
