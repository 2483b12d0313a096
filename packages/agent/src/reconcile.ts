/**
 * After a start: what an earlier process of ours left on the engine. A container of an open task is taken over by the task
 * (tasks/deploy.ts); one that was made but never started, of a task that is over, is removed here; everything else is
 * reported and the control plane decides. What has not our node's label is never touched.
 */
import { failPoint } from '@berth/kit/fail-point';
import type { Logger } from '@berth/kit/log';
import type { Task } from '@berth/wire/task';
import { LABELS } from '@berth/wire/vocabulary';
import type { Container, Docker } from './tools/docker.ts';

export async function reconcile(docker: Docker, nodeId: string, open: readonly Task[], log: Logger, signal: AbortSignal): Promise<void> {
  for (const container of leftBehind(await docker.list({ [LABELS.node]: nodeId }, signal), open)) {
    log.info({ container: container.name }, 'removing a container that was made but never started');
    await failPoint('reconcile.before');
    await docker.remove(container.id);
    await failPoint('reconcile.after');
  }
}

export function leftBehind(containers: readonly Container[], open: readonly Task[]): Container[] {
  const wanted = new Set(open.map((t) => t.deployment_id));
  return containers.filter((c) => c.state === 'created' && !wanted.has(c.labels[LABELS.deployment] ?? null));
}
