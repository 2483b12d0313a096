/** Takes tasks away from nodes that did not claim, renew or end them in time, by the control plane's clock alone. */
import type { LoopDeps } from './index.ts';

/** An agent that never leases shows that it lives by polling (every 5 s by the contract). */
const SILENT_POLLS_MS = 60_000;

export const leaseReaper =
  ({ stores, driver, limits, now, log }: LoopDeps) =>
  async (signal: AbortSignal): Promise<void> => {
    const at = now();
    for (const { task, why } of await stores.tasks.overdue(at, at - SILENT_POLLS_MS, limits.maxAttempts)) {
      if (signal.aborted) return;
      if (task.deployment_id === null) continue;
      log.warn({ task_id: task.id, kind: task.kind, node_id: task.node_id, deployment_id: task.deployment_id, why }, 'a task was lost');
      await driver.advance(task.deployment_id, { type: 'task_lost', task, why });
    }
  };
