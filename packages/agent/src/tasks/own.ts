/**
 * The container that one attempt at a deploy task has: started by itself, or taken over from an earlier attempt. Two agents may
 * have one identity, and one that was silent may go on: an attempt that has lost its task must not remove what a later one
 * goes on with.
 *
 * The fence is the container's name, which the engine changes in one step: whoever takes a container over gives it a name of
 * its own attempt, and each attempt removes by the name that it gave. What was taken over meanwhile is not found by it.
 */
import type { TaskOf } from '@berth/wire/task';
import { LABELS } from '@berth/wire/vocabulary';
import type { Container, Docker } from '../tools/docker.ts';
import type { TaskContext } from './task.ts';

export type Own = {
  /** The one of an earlier attempt that runs the right image; everything else that earlier ones left is removed. */
  takeOver(): Promise<Container | null>;
  /** Said before it is started: it may be there although starting it failed. */
  willStart(name: string): void;
  remove(): Promise<void>;
};

export function createOwn(docker: Docker, task: TaskOf<'deploy'>, deployment: string, { attempt, signal, say }: TaskContext): Own {
  const { payload } = task;
  const given = new Set<string>();
  let adopted: string | null = null;
  const ofDeployment = { [LABELS.deployment]: deployment };
  const startedHere = (c: Container): boolean => c.labels[LABELS.task] === task.id && c.labels[LABELS.attempt] === String(attempt);
  const nameOf = (n: number): string => `${payload.container_name}-${task.id.slice(-8)}-${n}`;

  /** Which attempt at this task has it; 0 where another task made it, which is over. */
  function holder(c: Container): number {
    const prefix = nameOf(0).slice(0, -1);
    const renamed = c.name.startsWith(prefix) ? Number(c.name.slice(prefix.length)) : 0;
    return Math.max(renamed || 0, c.labels[LABELS.task] === task.id ? Number(c.labels[LABELS.attempt] ?? 0) : 0);
  }
  async function adopt(container: Container): Promise<boolean> {
    const name = nameOf(attempt);
    // Gone in this very moment: whoever had it was quicker.
    if (!(await docker.rename(container.id, name))) return false;
    given.add(name);
    adopted = container.id;
    say('deploy', `going on with ${container.name}, which an earlier attempt started`);
    return true;
  }

  return {
    async takeOver() {
      let found: Container | null = null;
      for (const container of await docker.list(ofDeployment, signal)) {
        // A later attempt is at work: we have lost the task, and are about to hear of it.
        if (holder(container) > attempt) continue;
        if (found === null && container.state === 'running' && container.image === payload.image) {
          if (await adopt(container)) found = container;
          continue;
        }
        say('deploy', `removing ${container.name}, which an earlier attempt left ${container.state}`);
        await docker.remove(container.id);
      }
      return found;
    },
    willStart: (name) => void given.add(name),
    async remove() {
      for (const c of await docker.list(ofDeployment)) {
        if (!given.has(c.name) || !(startedHere(c) || c.id === adopted)) continue;
        // By its name, not its id: see above.
        await docker.remove(c.name);
      }
    },
  };
}
