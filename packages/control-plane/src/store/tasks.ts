/**
 * Tasks and their leases: offers, claims and renewals. Only a plan creates and ends tasks
 * (commit-plan.ts), except tasks without a project, such as `sync` tasks.
 */
import { failPoint } from '@berth/kit/fail-point';
import type { TaskProgress } from '@berth/wire/dataset';
import { MAX_HOLD_SECONDS } from '@berth/wire/route';
import { openTasksText } from '@berth/wire/task';
import type { TaskKind } from '@berth/wire/vocabulary';
import type { Claim, Overdue, TaskStore } from '../domain/deployments/task-store.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { TaskRecord } from '../domain/platform/records.ts';
import { isPast, type Uptime } from '../domain/platform/uptime.ts';
import { syncMethods } from './datasets/syncs.ts';
import type { Database } from './engine/database.ts';
import type { Db, Row, Tx } from './engine/tables.ts';
import { writeEvents } from './events.ts';
import type { NodeMemory } from './memory/node-memory.ts';
import { taskOf } from './rows/task.ts';
import { markRunStarted } from './runs.ts';
import { writeStoryLine } from './story.ts';
import { taskRow } from './task-row.ts';

const CONTRACT_KINDS: readonly TaskKind[] = ['build', 'deploy'];
const CLAIMED: Record<TaskKind, string> = {
  build: 'took the build',
  deploy: 'took the deployment',
  retire: 'started to remove old containers',
  sync: 'started to copy',
  look: 'started to check the branch',
  clean: 'started to clean the registry',
  move: 'started to copy the volumes',
  run: 'started the command',
};

/**
 * Longest time in ms between two polls of an agent: a long poll is held for up to MAX_HOLD_SECONDS.
 */
const LONGEST_POLL_MS = (MAX_HOLD_SECONDS + 30) * 1000;

type TaskStoreParts = {
  readonly db: Database;
  /** The last answer of `openByNode`; null before the first call. */
  open: Map<string, string> | null;
};

export function createTaskStore(db: Database, memory: NodeMemory): TaskStore {
  const tasks: TaskStoreParts = { db, open: null };
  return {
    ...syncMethods(db),
    get: (id) => getTask(tasks, id),
    openFor: (nodeId, now) => openTasksFor(tasks, memory, nodeId, now),
    openByNode: () => openTasksByNode(tasks),
    moving: (projectIds) => projectsMovingVolumes(tasks, projectIds),
    lastOpen: (nodeId) => (tasks.open === null ? null : (tasks.open.get(nodeId) ?? '')),
    claim: (id, lease, now, maxAttempts) => claimTask(tasks, id, lease, now, maxAttempts),
    renew: (id, token, expiresAt, now) => renewLease(tasks, id, token, expiresAt, now),
    progress: (id, token, progress, now) => storeProgress(tasks, id, token, progress, now),
    progressOf: (deploymentIds) => progressOfDeployments(tasks, deploymentIds),
    overdue: (at, limits) => overdueTasks(tasks, memory, at, limits),
  };
}

async function getTask(tasks: TaskStoreParts, id: string): Promise<TaskRecord> {
  return taskOf(await taskRow(tasks.db.kysely, id));
}

async function openTasksFor(
  tasks: TaskStoreParts,
  memory: NodeMemory,
  nodeId: string,
  now: number,
): Promise<TaskRecord[]> {
  const node =
    memory.get(nodeId) ??
    (await tasks.db.kysely
      .selectFrom('nodes')
      .select('agent_version')
      .where('id', '=', nodeId)
      .executeTakeFirst());
  if (node === undefined)
    throw new DomainError('not_found', 'the node does not exist; register again');
  memory.mark(nodeId, { last_polled_at: now });
  let query = tasks.db.kysely
    .selectFrom('tasks')
    .selectAll()
    .where('node_id', '=', nodeId)
    .where('finished_at', 'is', null);
  if (node.agent_version === null) query = query.where('kind', 'in', [...CONTRACT_KINDS]);
  const rows = await query.orderBy('seq').execute();
  return rows.map(taskOf);
}

async function openTasksByNode(tasks: TaskStoreParts): Promise<Map<string, string>> {
  const rows = await tasks.db.kysely
    .selectFrom('tasks')
    .select(['node_id', 'id', 'attempt', 'cancel_requested_at'])
    .where('finished_at', 'is', null)
    .execute();
  const byNode = Map.groupBy(
    rows.map((row) => ({ ...row, cancel_requested: row.cancel_requested_at !== null })),
    (task) => task.node_id,
  );
  tasks.open = new Map([...byNode].map(([node, tasks]) => [node, openTasksText(tasks)]));
  return tasks.open;
}

async function projectsMovingVolumes(
  tasks: TaskStoreParts,
  projectIds: readonly string[],
): Promise<Set<string>> {
  if (projectIds.length === 0) return new Set();
  const rows = await tasks.db.kysely
    .selectFrom('tasks')
    .select('project_id')
    .where('project_id', 'in', [...projectIds])
    .where('kind', '=', 'move')
    .where('finished_at', 'is', null)
    .execute();
  return new Set(rows.flatMap(({ project_id }) => project_id ?? []));
}

function claimTask(
  tasks: TaskStoreParts,
  id: string,
  lease: { token: string; expires_at: number },
  now: number,
  maxAttempts: number,
): Promise<Claim> {
  return tasks.db.write(async (tx) => {
    const claimed = await tx
      .updateTable('tasks')
      .set((eb) => ({
        attempt: eb('attempt', '+', 1),
        status: 'running',
        lease_token: lease.token,
        lease_expires_at: lease.expires_at,
        started_at: eb.fn.coalesce('started_at', eb.val(now)),
      }))
      .where('id', '=', id)
      .where('finished_at', 'is', null)
      .where('attempt', '<', maxAttempts)
      .returningAll()
      .executeTakeFirst();
    if (claimed === undefined) throw await whyNotClaimed(tx, id, maxAttempts);
    if (claimed.kind === 'run') await markRunStarted(tx, claimed.id, now);
    await tellClaim(tasks.db, tx, claimed, now);
    await failPoint('claim.before', () => claimed.kind);
    return {
      attempt: claimed.attempt,
      lease_token: lease.token,
      lease_expires_at: lease.expires_at,
    };
  });
}

async function renewLease(
  tasks: TaskStoreParts,
  id: string,
  token: string,
  expiresAt: number,
  _now: number,
): Promise<{ cancel_requested: boolean }> {
  const renewed = await tasks.db.writeOne((kysely) =>
    kysely
      .updateTable('tasks')
      .set({ lease_expires_at: expiresAt })
      .where('id', '=', id)
      .where('lease_token', '=', token)
      .where('finished_at', 'is', null)
      .returning('cancel_requested_at')
      .executeTakeFirst(),
  );
  if (renewed !== undefined) return { cancel_requested: renewed.cancel_requested_at !== null };
  throw await whyNotHeld(tasks.db.kysely, id);
}

async function storeProgress(
  tasks: TaskStoreParts,
  id: string,
  token: string,
  progress: TaskProgress,
  now: number,
): Promise<TaskRecord> {
  const copied =
    progress.datasets.length > 0 && progress.datasets.every((d) => d.step === 'done')
      ? { copied_at: now }
      : {};
  // Does not wait for the disk, because the agent soon sends newer progress.
  const updated = await tasks.db.writeOne((kysely) =>
    tasks.db.capabilities.unsynced(kysely, (one) =>
      one
        .updateTable('tasks')
        .set({ progress: JSON.stringify({ ...progress, ...copied }) })
        .where('id', '=', id)
        .where('lease_token', '=', token)
        .where('finished_at', 'is', null)
        .returningAll()
        .executeTakeFirst(),
    ),
  );
  if (updated !== undefined) return taskOf(updated);
  throw await whyNotHeld(tasks.db.kysely, id);
}

async function progressOfDeployments(
  tasks: TaskStoreParts,
  deploymentIds: readonly string[],
): Promise<Map<string, TaskProgress>> {
  if (deploymentIds.length === 0) return new Map();
  const rows = await tasks.db.kysely
    .selectFrom('tasks')
    .select(['deployment_id', 'progress'])
    .where('deployment_id', 'in', [...deploymentIds])
    .where('kind', '=', 'deploy')
    .where('finished_at', 'is', null)
    .execute();
  return new Map(
    rows.flatMap((t) => {
      if (t.deployment_id === null || t.progress === null) return [];
      const { copied_at: _ours, ...progress } = JSON.parse(t.progress) as NonNullable<
        TaskRecord['progress']
      >;
      return [[t.deployment_id, progress] as const];
    }),
  );
}

async function overdueTasks(
  tasks: TaskStoreParts,
  memory: NodeMemory,
  { uptime, now, silentSince }: { uptime: Uptime; now: number; silentSince: number },
  limits: { leaseMs: number; maxAttempts: number },
): Promise<{ task: TaskRecord; why: Overdue }[]> {
  await memory.flush();
  const rows = await tasks.db.kysely
    .selectFrom('tasks')
    .leftJoin('nodes', 'nodes.id', 'tasks.node_id')
    .selectAll('tasks')
    .select(['nodes.agent_version', 'nodes.last_polled_at', 'nodes.last_seen_at'])
    .where('tasks.finished_at', 'is', null)
    .where((eb) =>
      eb.or([
        eb('wall_deadline_at', '<', uptime.at),
        eb('lease_expires_at', '<', uptime.at),
        eb.and([eb('attempt', '=', 0), eb('queue_deadline_at', '<', uptime.at)]),
      ]),
    )
    .execute();
  // Sorted here: with an ORDER BY, SQLite would read every task that ever existed.
  rows.sort((a, b) => a.seq - b.seq);
  return rows.flatMap(({ agent_version, last_polled_at, last_seen_at, ...row }) => {
    const task = taskOf(row);
    const polledAt = last_polled_at ?? Number.NEGATIVE_INFINITY;
    // Both times are by the wall clock. If it was set forward, the uptime clock still shows when
    // the agent last registered, but the time of its last poll is unknown.
    const heardAt = memory.heardAt(row.node_id);
    const hasJumped =
      (last_seen_at ?? 0) < silentSince &&
      heardAt !== null &&
      uptime.at - heardAt <= now - silentSince;
    const polls =
      hasJumped ||
      (polledAt >= now - LONGEST_POLL_MS && Math.max(polledAt, last_seen_at ?? 0) >= silentSince);
    const why = whyOverdue(task, uptime, limits, agent_version !== null || !polls);
    return why === null ? [] : [{ task, why }];
  });
}

/**
 * Returns why the task is overdue. `isUnclaimed`: no claim means that no agent works on the task.
 * (A contract-only agent that polls can work without a claim.)
 */
function whyOverdue(
  task: TaskRecord,
  uptime: Uptime,
  { leaseMs, maxAttempts }: { leaseMs: number; maxAttempts: number },
  isUnclaimed: boolean,
): Overdue | null {
  const passed = (deadline: number): boolean => isPast(deadline, uptime, leaseMs);
  if (passed(task.wall_deadline_at)) return 'wall';
  if (task.status === 'running' && task.lease_expires_at !== null && passed(task.lease_expires_at))
    return task.attempt >= maxAttempts ? 'attempts' : 'lease';
  if (
    task.status === 'pending' &&
    task.attempt === 0 &&
    passed(task.queue_deadline_at) &&
    isUnclaimed
  )
    return 'queue';
  return null;
}

async function whyNotHeld(db: Db, id: string): Promise<DomainError> {
  const task = await taskRow(db, id);
  return new DomainError(task.finished_at !== null ? 'task_over' : 'stale_lease');
}

async function whyNotClaimed(tx: Tx, id: string, maxAttempts: number): Promise<DomainError> {
  const task = await taskRow(tx, id);
  return new DomainError(
    'task_over',
    task.finished_at === null ? `it was started ${maxAttempts} times without finishing` : undefined,
  );
}

async function tellClaim(db: Database, tx: Tx, task: Row<'tasks'>, now: number): Promise<void> {
  if (task.deployment_id === null) return;
  const node = await tx
    .selectFrom('nodes')
    .select('hostname')
    .where('id', '=', task.node_id)
    .executeTakeFirst();
  const hostname = node?.hostname ?? 'a deleted node';
  const attempt = task.attempt === 1 ? '' : ` (attempt ${task.attempt})`;
  const line = {
    deployment_id: task.deployment_id,
    kind: 'task_claimed',
    message: `${hostname} ${CLAIMED[task.kind]}${attempt}`,
  };
  // A failed removal is retried at each report of its node, without limit, so equal lines count as
  // repetitions.
  await writeStoryLine(tx, line, now, task.kind === 'retire' ? 'words' : null);
  if (task.kind === 'retire') return;
  await writeEvents(db, tx, [
    {
      ...line,
      at: now,
      kind: `deployment.${line.kind}`,
      project_id: task.project_id,
      node_id: task.node_id,
    },
  ]);
}
