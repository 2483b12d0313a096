/**
 * After a start, removes containers that a previous agent process created but never started, if
 * their task has ended. A task that is still open adopts its own container (tasks/deploy.ts). The
 * agent reports all other containers, and the control plane decides. It never touches containers
 * without the label of this node.
 */
import { failPoint } from '@berth/kit/fail-point';
import type { Logger } from '@berth/kit/log';
import type { Task } from '@berth/wire/task';
import { LABELS } from '@berth/wire/vocabulary';
import type { Container, Docker } from './docker.ts';

export async function reconcile(
  docker: Docker,
  nodeId: string,
  open: readonly Task[],
  log: Logger,
  signal: AbortSignal,
): Promise<void> {
  for (const container of neverStarted(
    await docker.list({ [LABELS.node]: nodeId }, signal),
    open,
  )) {
    log.info(
      { container: container.name },
      'removing a container that was created but never started',
    );
    await failPoint('reconcile.before');
    await docker.remove(container.id);
    await failPoint('reconcile.after');
  }
}

export function neverStarted(containers: readonly Container[], open: readonly Task[]): Container[] {
  return containers.filter((c) => c.state === 'created' && !open.some((t) => isOf(t, c)));
}

/** Returns whether the task can adopt the container. */
const isOf = (task: Task, { labels }: Container): boolean =>
  task.deployment_id === labels[LABELS.deployment] &&
  (task.kind !== 'deploy' ||
    (task.payload.instance?.id ?? null) === (labels[LABELS.instance] ?? null));
