/**
 * Begins the clean-ups of the registry that are due, and starts those that wait. Of several control
 * planes, one at a time does it.
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
} from '../domain/deployments/clean-up.ts';
import { isOnline } from '../domain/nodes/placement.ts';
import type { LoopDeps } from './deps.ts';

export const cleanUps = ({
  stores,
  driver,
  changes,
  limits,
  clean,
  now,
  uptime,
  log,
}: LoopDeps) => {
  async function request(): Promise<void> {
    if (clean.intervalMs === null) return;
    const since = Number(await stores.meta.setOnce(CLEANS_SINCE, String(now())));
    const due = nextCleanUpAt(await stores.cleanUps.list(), clean.intervalMs, since);
    // Without an agent on the registry's machine there is nothing to start. GET /api/clean-up says
    // so.
    if (due === null || due > now() || !(await stores.nodes.all()).some(cleansRegistry)) return;
    await stores.cleanUps.request({ id: driver.newId(), by: null }, now());
  }

  async function start(open: CleanUpRecord): Promise<void> {
    const chosen = cleanerOf(await stores.nodes.all(), (node) => isOnline(node, now(), limits));
    const waitedMs = now() - open.requested_at;
    if ('why' in chosen) {
      const { why, several } = chosen;
      if (!several && waitedMs < AWAY_MS) return stores.cleanUps.setWaiting(open.id, why);
      await stores.cleanUps.fail(
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
    const result = await stores.cleanUps.start(input, now());
    if (result === 'started') {
      log.info(
        { clean_up: open.id, node: node.hostname },
        'clean-up of the registry started; new builds wait',
      );
      changes.notify(`node:${node.id}`);
    }
    if (result !== 'builds') return;
    await stores.cleanUps.setWaiting(open.id, 'waits for running builds to end');
    if (!open.holds_builds && waitedMs > PATIENCE_MS) await stores.cleanUps.holdBuilds(open.id);
  }

  return async (_signal: AbortSignal): Promise<void> => {
    const open = await stores.cleanUps.open();
    if (open === null) return request();
    if (open.state === 'waiting') return start(open);
    if (open.task_id === null) return;
    const task = await stores.tasks.get(open.task_id).catch(() => null);
    // The node was removed with its tasks.
    if (task === null || task.finished_at !== null) {
      await stores.cleanUps.fail(
        open.id,
        { code: 'node_lost', message: 'its task ended without a report' },
        now(),
      );
      return changes.notify('work');
    }
    // An agent that died did not come back in time. lease-reaper.ts handles a task that was never
    // claimed.
    if (
      task.status === 'pending' &&
      task.attempt > 0 &&
      task.queue_deadline_at < (await uptime.now()).at
    ) {
      log.warn(
        { clean_up: open.id, node_id: task.node_id },
        'clean-up of the registry lost: its agent does not answer',
      );
      if (await stores.cleanUps.loseTask(task, 'queue', now(), 0))
        changes.notify(`node:${task.node_id}`, 'work');
    }
  };
};
