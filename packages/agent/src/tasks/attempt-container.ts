/**
 * The container of one attempt at a deploy task: the attempt starts it, or adopts it from an
 * earlier attempt. Two agents can share one identity, and an agent that was silent can continue, so
 * an attempt that has lost its task must not remove a container that a later attempt has adopted.
 *
 * The fence is the container's name, which the engine changes atomically. An attempt that adopts a
 * container renames it to a name of this attempt, and each attempt removes containers by the names
 * that it gave. An adopted container has another name by then, so the earlier attempt does not find
 * it.
 */
import type { TaskOf } from '@berth/wire/task';
import { LABELS } from '@berth/wire/vocabulary';
import type { Container, Docker } from '../engine/docker.ts';
import type { TaskContext } from './task.ts';

export type AttemptContainer = {
  /**
   * Adopts an earlier attempt's running container of the right image with the current secrets.
   * Removes all others of earlier attempts.
   */
  adopt(): Promise<Container | null>;
  /**
   * Call it before a container is started under `name`: a failed start can leave a container
   * behind.
   */
  willStart(name: string): void;
  /** Removes the container that this attempt started or adopted. */
  remove(): Promise<void>;
  /**
   * Returns the container that can still be there, by its id or its name; null: this attempt has
   * none.
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
   * Returns the attempt at this task that holds the container; 0 if an earlier task, which has
   * ended, made it.
   */
  function holderOf(c: Container): number {
    const prefix = nameOf(0).slice(0, -1);
    const renamedBy = c.name.startsWith(prefix) ? Number(c.name.slice(prefix.length)) : 0;
    return Math.max(
      renamedBy || 0,
      c.labels[LABELS.task] === task.id ? Number(c.labels[LABELS.attempt] ?? 0) : 0,
    );
  }
  /** A container with earlier values of its secrets is started again. */
  const hasSecrets = (c: Container): boolean =>
    (c.labels[LABELS.secrets] ?? null) === secretsDigest;
  /** Its folders might have been replaced since by another copy. */
  const hasVolumes = (c: Container): boolean => c.labels[LABELS.volumes] === payload.volumes?.copy;
  async function tryAdopt(container: Container): Promise<boolean> {
    const name = nameOf(attempt);
    // The container is gone: its earlier attempt removed it a moment ago.
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
        // A later attempt is running: this one has lost the task and will hear of it soon.
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
        // By name, not by id: see the fence above.
        await docker.remove(c.name);
      }
      leftContainer = null;
    },
  };
}
