/**
 * Manages the container of one attempt at a deploy task: the attempt starts a container, or adopts
 * one from a previous attempt. Two agents can share one identity, and a silent agent can resume, so
 * an attempt that lost its task must not remove a container that a later attempt has adopted. The
 * container's name is the fence, because the engine renames atomically: an attempt that adopts a
 * container gives it a name of its own, and each attempt removes containers only by names that it
 * gave. A previous attempt therefore no longer finds an adopted container.
 */
import type { TaskOf } from '@berth/wire/task';
import { LABELS } from '@berth/wire/vocabulary';
import type { Container, Docker } from '../engine/docker.ts';
import type { TaskContext } from './task.ts';

export type AttemptContainer = {
  /**
   * Adopts a previous attempt's running container if it has the right image and the current
   * secrets. Removes all other containers of previous attempts.
   */
  adopt(): Promise<Container | null>;
  /**
   * Call this before starting a container as `name`, because a failed start can leave a container
   * behind.
   */
  willStart(name: string): void;
  /** Removes the container that this attempt started or adopted. */
  remove(): Promise<void>;
  /**
   * Returns the id or name of the container that might still exist; null if this attempt has none.
   */
  left(): string | null;
};

export function createAttemptContainer(
  docker: Docker,
  task: TaskOf<'deploy'>,
  deployment: string,
  { attempt, signal, logStep, secretsDigest }: TaskContext,
): AttemptContainer {
  const { payload } = task;
  const givenNames = new Set<string>();
  let adoptedId: string | null = null;
  let leftContainer: string | null = null;
  const ofDeployment = { [LABELS.deployment]: deployment };
  const startedHere = (c: Container): boolean =>
    c.labels[LABELS.task] === task.id && c.labels[LABELS.attempt] === String(attempt);
  const nameOf = (n: number): string => `${payload.container_name}-${task.id.slice(-8)}-${n}`;

  /**
   * Returns the attempt at this task that owns the container; 0 if a previous task, which has
   * ended, created it.
   */
  function holderOf(c: Container): number {
    const prefix = nameOf(0).slice(0, -1);
    const renamedBy = c.name.startsWith(prefix) ? Number(c.name.slice(prefix.length)) : 0;
    return Math.max(
      renamedBy || 0,
      c.labels[LABELS.task] === task.id ? Number(c.labels[LABELS.attempt] ?? 0) : 0,
    );
  }
  /** A container whose secrets have changed is not adopted. */
  const hasSecrets = (c: Container): boolean =>
    (c.labels[LABELS.secrets] ?? null) === secretsDigest;
  /**
   * Tells whether the container mounts the copy of the volumes that the task names. If not, the
   * attempt does not adopt it.
   */
  const hasVolumes = (c: Container): boolean => c.labels[LABELS.volumes] === payload.volumes?.copy;
  async function tryAdopt(container: Container): Promise<boolean> {
    const name = nameOf(attempt);
    // The container no longer exists: its attempt has just removed it.
    if (!(await docker.rename(container.id, name))) return false;
    givenNames.add(name);
    adoptedId = container.id;
    leftContainer = container.id;
    logStep('deploy', `adopted container ${container.name}, which an earlier attempt started`);
    return true;
  }

  return {
    async adopt() {
      let adopted: Container | null = null;
      for (const container of await docker.list(ofDeployment, signal)) {
        // A later attempt is running, so this attempt has lost the task and will soon be stopped.
        if (holderOf(container) > attempt) continue;
        if (
          adopted === null &&
          container.state === 'running' &&
          container.image === payload.image &&
          hasSecrets(container) &&
          hasVolumes(container)
        ) {
          if (await tryAdopt(container)) adopted = container;
          continue;
        }
        logStep(
          'deploy',
          `removing container ${container.name} (${container.state}), which an earlier attempt ` +
            'left',
        );
        await docker.remove(container.id);
      }
      return adopted;
    },
    willStart(name) {
      givenNames.add(name);
      leftContainer = name;
    },
    left: () => leftContainer,
    async remove() {
      for (const c of await docker.list(ofDeployment)) {
        if (!givenNames.has(c.name) || !(startedHere(c) || c.id === adoptedId)) continue;
        // Remove by name and not by id: see the fence above.
        await docker.remove(c.name);
      }
      leftContainer = null;
    },
  };
}
