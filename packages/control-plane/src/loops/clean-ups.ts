/**
 * Starts registry clean-ups that are due or waiting. If there are several control planes, one at a
 * time does it.
 */
import {
  AWAY_MS,
  CLEAN_MS,
  CLEANS_SINCE,
  cleanerOf,
  cleansRegistry,
  type CleanUpRecord,
  nextCleanUpAt,
  PATIENCE_MS,
  type CleanSettings,
  type CleanUpStore,
} from '../domain/deployments/clean-up.ts';
import { isOnline } from '../domain/nodes/placement.ts';
import type { Limits } from '../domain/deployments/facts.ts';
import type { TaskStore } from '../domain/deployments/task-store.ts';
import type { NodeStore } from '../domain/nodes/node-store.ts';
import type { Changes } from '../domain/platform/changes.ts';
import type { MetaStore } from '../domain/platform/meta-store.ts';
import type { UptimeClock } from '../domain/platform/uptime.ts';
import type { Driver } from '../flow/driver.ts';
import type { Logger } from '@berth/kit/log';

export type Deps = {
  meta: Pick<MetaStore, 'setOnce'>;
  cleanUps: Pick<
    CleanUpStore,
    'fail' | 'holdBuilds' | 'list' | 'loseTask' | 'open' | 'request' | 'setWaiting' | 'start'
  >;
  nodes: Pick<NodeStore, 'all'>;
  tasks: Pick<TaskStore, 'get'>;
  driver: Pick<Driver, 'newId'>;
  changes: Pick<Changes, 'notify'>;
  limits: Limits;
  /** Uptime clock, used for every deadline. */
  uptime: Pick<UptimeClock, 'now'>;
  clean: CleanSettings;
  log: Logger;
  now: () => number;
};

export const cleanUps = ({
  meta,
  cleanUps,
  nodes,
  tasks,
  driver,
  changes,
  limits,
  clean,
  now,
  uptime,
  log,
}: Deps) => {
  async function request(): Promise<void> {
    if (clean.intervalMs === null) return;
    const since = Number(await meta.setOnce(CLEANS_SINCE, String(now())));
    const due = nextCleanUpAt(await cleanUps.list(), clean.intervalMs, since);
    // Without an agent on the registry's machine, no clean-up can start; GET /api/clean-up says so.
    if (due === null || due > now() || !(await nodes.all()).some(cleansRegistry)) return;
    await cleanUps.request({ id: driver.newId(), by: null }, now());
  }

  async function start(open: CleanUpRecord): Promise<void> {
    const chosen = cleanerOf(await nodes.all(), (node) => isOnline(node, now(), limits));
    const waitedMs = now() - open.requested_at;
    if ('why' in chosen) {
      const { why, several } = chosen;
      if (!several && waitedMs < AWAY_MS) return cleanUps.setWaiting(open.id, why);
      await cleanUps.fail(
        open.id,
        { code: several ? 'registry_agents' : 'node_lost', message: why },
        now(),
      );
      return changes.notify('work');
    }
    const { node } = chosen;
    const at = (await uptime.now()).at;
    const deadlines = { queue_deadline_at: at + limits.claimMs, wall_deadline_at: at + CLEAN_MS };
    const input = {
      id: open.id,
      taskId: driver.newId(),
      nodeId: node.id,
      keepReleases: clean.keepReleases,
      ...deadlines,
    };
    const result = await cleanUps.start(input, now());
    if (result === 'started') {
      log.info(
        { clean_up: open.id, node: node.hostname },
        'clean-up of the registry started; new builds wait',
      );
      changes.notify(`node:${node.id}`);
    }
    if (result !== 'builds') return;
    await cleanUps.setWaiting(open.id, 'waits for running builds to end');
    if (!open.holds_builds && waitedMs > PATIENCE_MS) await cleanUps.holdBuilds(open.id);
  }

  return async (_signal: AbortSignal): Promise<void> => {
    const open = await cleanUps.open();
    if (open === null) return request();
    if (open.state === 'waiting') return start(open);
    if (open.task_id === null) return;
    const task = await tasks.get(open.task_id).catch(() => null);
    // The task ended without a report, or its row was deleted together with its node.
    if (task === null || task.finished_at !== null) {
      await cleanUps.fail(
        open.id,
        { code: 'node_lost', message: 'its task ended without a report' },
        now(),
      );
      return changes.notify('work');
    }
    // Fail the clean-up of an agent that died and did not return in time. lease-reaper.ts handles a
    // task that was never claimed.
    if (
      task.status === 'pending' &&
      task.attempt > 0 &&
      task.queue_deadline_at < (await uptime.now()).at
    ) {
      log.warn(
        { clean_up: open.id, node_id: task.node_id },
        'clean-up of the registry lost: its agent does not answer',
      );
      if (await cleanUps.loseTask(task, 'queue', now(), 0))
        changes.notify(`node:${task.node_id}`, 'work');
    }
  };
};
