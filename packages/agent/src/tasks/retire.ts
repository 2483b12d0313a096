/**
 * retire: the route was switched; let requests in flight finish, stop and remove the old containers, and give the new one
 * the contract's name `svc-{domain_prefix}`. Found by label, never by name; every step may be repeated.
 * `stop` and `start`: a project of which no two versions may ever run at once goes to another node, or comes back.
 */
import { failPoint } from '@berth/kit/fail-point';
import { LABELS } from '@berth/wire/vocabulary';
import type { RetirePayload } from '@berth/wire/task';
import type { Data } from '../data/data.ts';
import type { Images } from '../images.ts';
import type { Locks } from '../locks.ts';
import type { Networks } from '../networks.ts';
import type { ListOurs } from '../node-ids.ts';
import { pause } from '../stopped.ts';
import type { Container, Docker } from '../tools/docker.ts';
import { TaskFailure } from '../tools/failures.ts';
import { type Handler, nothingToDiscard, type TaskContext } from './task.ts';

export type RetireDeps = {
  docker: Docker;
  ours: ListOurs;
  images: Images;
  locks: Locks;
  networks: Pick<Networks, 'cleanLater'>;
  /** Null on a node that takes no datasets. */
  data: Pick<Data, 'inventory' | 'sweepMounts'> | null;
  /** `{registry}/{project}` of a project’s name; null while the registry is not known. */
  repositoryOf: (project: string) => string | null;
};

export function createRetireHandler({ docker, ours, images, locks, networks, data, repositoryOf }: RetireDeps): Handler<'retire'> {
  return async (task, context) => {
    const { payload } = task;
    const list: ListOurs = (labels) => ours({ ...labels, [LABELS.project]: payload.project_id }, context.signal);
    // The name passes on in the order of the tasks: an earlier one may still drain the container that has it. Drained and removed
    // is at once: versions that follow each other faster than they drain would pile up.
    const turn = locks.hold(`retire ${payload.project_id}`, context.signal);
    // It may be lost before anybody waits for it, while a container stops: whoever waits later hears of it then.
    turn.catch(() => undefined);
    try {
      const wanted = new Map(payload.remove.map((r) => [r.deployment_id, r.reason]));
      const old = (await list({})).filter((c) => wanted.has(c.labels[LABELS.deployment] ?? ''));
      if (payload.drain_seconds > 0 && old.some((c) => c.state === 'running')) {
        context.say('retire', `letting requests in flight finish for ${payload.drain_seconds} s`);
        await pause(payload.drain_seconds * 1000, context.signal);
      }
      await data?.inventory.released(old).catch((error: unknown) => {
        context.say('retire', `what they mount could not be looked at: ${String(error)}`);
      });
      await failPoint('retire.before');
      await Promise.all(
        old.map((container) => retire(docker, container, wanted.get(container.labels[LABELS.deployment] ?? '') ?? '', payload, context)),
      );
      const { stop = [], start = null } = payload;
      for (const container of await list({})) {
        const why = stop.find((s) => s.deployment_id === container.labels[LABELS.deployment]);
        if (why !== undefined) await stopAndKeep(docker, container, why.reason, payload, context);
      }
      await turn;
      if (start !== null) await startAgain(docker, start, list, context);
      if (payload.keep !== null) await giveName(docker, payload.keep, list, context);
    } finally {
      // Whose turn never came has given it up.
      void turn.then(
        (unlock) => unlock(),
        () => undefined,
      );
    }
    // Their symlinks, and what those kept from being evicted; what fails here the next one does.
    await data?.sweepMounts(context.signal).catch((error: unknown) => {
      context.signal.throwIfAborted();
      context.say('retire', `mount folders of earlier deployments could not be looked at: ${String(error)}`);
    });
    const repository = repositoryOf(payload.project);
    if (repository !== null && payload.project_deleted === true) images.forgetLater(repository);
    else if (repository !== null) images.cleanLater(repository);
    networks.cleanLater();
    return { report: { status: 'completed', result: null }, discard: nothingToDiscard };
  };
}

async function retire(
  docker: Docker,
  container: Container,
  reason: string,
  payload: RetirePayload,
  { signal, say }: TaskContext,
): Promise<void> {
  say('retire', `stopping ${container.name}${reason === '' ? '' : `: ${reason}`}`);
  await docker.stop(container.id, payload.stop_grace_seconds, signal);
  await failPoint('retire.stopped');
  await docker.remove(container.id);
  await failPoint('retire.removed');
  say('retire', `removed ${container.name}`);
}

async function stopAndKeep(
  docker: Docker,
  container: Container,
  reason: string,
  { stop_grace_seconds }: RetirePayload,
  { signal, say }: TaskContext,
): Promise<void> {
  // Also one that has ended: what was not told to stop is brought back after a restart of the engine (revive.ts).
  say('retire', `stopping ${container.name}, which is kept: ${reason}`);
  await docker.stop(container.id, stop_grace_seconds, signal);
}

async function startAgain(docker: Docker, deployment: string, list: ListOurs, { say }: TaskContext): Promise<void> {
  const container = (await list({ [LABELS.deployment]: deployment }))[0];
  if (container === undefined) throw new TaskFailure('container_start_failed', 'what was to be started again is gone');
  if (container.state === 'running') return;
  say('retire', `starting ${container.name} again`);
  await docker.start(container.id);
}

async function giveName(
  docker: Docker,
  keep: NonNullable<RetirePayload['keep']>,
  list: ListOurs,
  { signal, say }: TaskContext,
): Promise<void> {
  const container = (await list({ [LABELS.deployment]: keep.deployment_id }))[0];
  // Gone already: a newer deployment retired it. What is observed tells the control plane.
  if (container === undefined) return say('retire', `nothing to name ${keep.name}: its container is gone`);
  if (container.name === keep.name) return;
  const holder = await docker.inspect(keep.name, signal);
  if (holder !== null && holder.id !== container.id) {
    const whose = (await list({})).some((c) => c.id === holder.id)
      ? `deployment ${holder.labels[LABELS.deployment]} of this project`
      : 'somebody else';
    throw new TaskFailure(
      'container_name_taken',
      `${keep.name} belongs to a container of ${whose}; ${container.name} serves all the same, under its own name`,
    );
  }
  await failPoint('rename.before');
  await docker.rename(container.id, keep.name);
  await failPoint('rename.after');
  say('retire', `${container.name} is now ${keep.name}`);
}
