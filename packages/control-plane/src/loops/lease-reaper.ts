/**
 * Ends tasks that their nodes did not claim, renew or finish in time, by the uptime clock
 * (domain/platform/uptime.ts).
 */
import { failPoint } from '@berth/kit/fail-point';
import { isRepositoryLook, type RepositoryLookStore } from '../domain/git/repository-looks.ts';
import type { CleanUpStore } from '../domain/deployments/clean-up.ts';
import type { Limits } from '../domain/deployments/facts.ts';
import type { TaskStore } from '../domain/deployments/task-store.ts';
import type { Changes } from '../domain/platform/changes.ts';
import type { Telemetry } from '../domain/platform/telemetry.ts';
import type { UptimeClock } from '../domain/platform/uptime.ts';
import { runIdOf, type RunStore } from '../domain/runs/run-store.ts';
import type { Driver } from '../flow/driver.ts';
import type { Logger } from '@berth/kit/log';
import type { LoopRun } from '@berth/kit/loop';
import { each } from './each.ts';

/**
 * Silence in ms after which an agent without leases counts as dead. It must poll (every 5 s by
 * docs/contract.md "Agent API"), or register while its poll is held.
 */
const SILENT_MS = 90_000;

export type Deps = {
  tasks: Pick<TaskStore, 'loseSync' | 'overdue'>;
  repositoryLooks: Pick<RepositoryLookStore, 'loseTask'>;
  cleanUps: Pick<CleanUpStore, 'loseTask'>;
  runs: Pick<RunStore, 'loseTask'>;
  driver: Pick<Driver, 'advance' | 'lookLost'>;
  changes: Pick<Changes, 'notify'>;
  limits: Limits;
  /** Uptime clock, used for every deadline. */
  uptime: Pick<UptimeClock, 'now'>;
  telemetry?: Pick<Telemetry, 'emit'>;
  log: Logger;
  now: () => number;
};

export const leaseReaper = ({
  tasks,
  repositoryLooks,
  cleanUps,
  runs,
  driver,
  changes,
  limits,
  now,
  uptime,
  telemetry,
  log,
}: Deps): LoopRun => {
  return async (signal) => {
    const at = now();
    const times = { uptime: await uptime.now(), now: at, silentSince: at - SILENT_MS };
    return each(await tasks.overdue(times, limits), signal, {
      async step({ task, why }) {
        telemetry?.emit({ what: 'task lost', kind: task.kind, why });
        log.warn(
          {
            task_id: task.id,
            kind: task.kind,
            node_id: task.node_id,
            deployment_id: task.deployment_id,
            why,
          },
          'task lost',
        );
        await failPoint('lease.lost');
        if (task.deployment_id !== null)
          await driver.advance(task.deployment_id, { type: 'task_lost', task, why });
        else if (isRepositoryLook(task)) {
          if (await repositoryLooks.loseTask(task, why, at))
            changes.notify('looks', `node:${task.node_id}`);
        } else if (task.kind === 'look') await driver.lookLost(task, why);
        else if (task.kind === 'clean') {
          const offerUntil = times.uptime.at + limits.claimMs;
          if (await cleanUps.loseTask(task, why, at, offerUntil))
            changes.notify(`node:${task.node_id}`, 'work');
        } else if (task.kind === 'run') {
          // Only the agent of this node can tell whether the command started.
          const offerUntil = times.uptime.at + limits.returnMs;
          if (await runs.loseTask(task, why, at, offerUntil))
            changes.notify(`node:${task.node_id}`, `logs:${runIdOf(task)}`, 'work');
        }
        // A sync task belongs to a node, so no deployment decides about it.
        else if (task.kind === 'sync' && (await tasks.loseSync(task, why, at)))
          changes.notify(`node:${task.node_id}`);
      },
      failed: (err, { task }) =>
        log.error({ err, task_id: task.id }, 'could not handle a lost task; will retry'),
    });
  };
};
