/** Takes tasks away from nodes that did not claim, renew or end them in time, by the uptime clock (domain/uptime.ts). */
import { failPoint } from '@berth/kit/fail-point';
import type { LoopDeps } from './deps.ts';

/** An agent that never leases shows that it lives by polling, every 5 s by the contract; where it lets us hold its request, by its registers meanwhile. */
const SILENT_MS = 90_000;

export const leaseReaper = ({
  stores,
  driver,
  changes,
  limits,
  now,
  uptime,
  telemetry,
  log,
}: LoopDeps): ((signal: AbortSignal) => Promise<void>) => {
  return async (signal) => {
    const at = now();
    const times = { uptime: await uptime.now(), now: at, silentSince: at - SILENT_MS };
    for (const { task, why } of await stores.tasks.overdue(times, limits)) {
      if (signal.aborted) return;
      telemetry?.tell({ what: 'task lost', kind: task.kind, why });
      log.warn({ task_id: task.id, kind: task.kind, node_id: task.node_id, deployment_id: task.deployment_id, why }, 'a task was lost');
      await failPoint('lease.lost');
      try {
        if (task.deployment_id !== null) await driver.advance(task.deployment_id, { type: 'task_lost', task, why });
        // Of the node alone: no deployment decides about it.
        else if (task.kind === 'sync' && (await stores.tasks.loseSync(task, why, at))) changes.notify(`node:${task.node_id}`);
      } catch (error) {
        // One task that cannot be decided about must not hold up the others; the next run sees it again.
        log.error({ err: error, task_id: task.id }, 'a lost task could not be taken away');
      }
    }
  };
};
