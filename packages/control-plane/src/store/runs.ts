/**
 * Runs and their tasks (domain/runs/run-store.ts). A transaction that changes both changes the task
 * first, as a claim does.
 */
import { failPoint } from '@berth/kit/fail-point';
import { FAILURES, isFailureCode } from '@berth/wire/errors';
import { MAX_OPEN_RUNS } from '@berth/wire/run';
import { isExitCode, type RunPayload, type RunResult } from '@berth/wire/run-payload';
import type { TaskReport } from '@berth/wire/task';
import type { TaskState } from '@berth/wire/vocabulary';
import { sql } from 'kysely';
import type { Overdue } from '../domain/deployments/task-store.ts';
import type { Guarded } from '../domain/identity/access.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { Page, Paged } from '../domain/platform/page.ts';
import type { Failure, TaskRecord } from '../domain/platform/records.ts';
import {
  type NewRun,
  noRun,
  runIdOf,
  type RunEnd,
  type RunFilter,
  type RunOffer,
  type RunOnNode,
  type RunRecord,
  type RunStore,
} from '../domain/runs/run-store.ts';
import type { Database } from './engine/database.ts';
import type { Db, Row, Tx } from './engine/tables.ts';
import { appendLines, lastOutputTime, type LogTables, readLines } from './logs.ts';
import { newestFirst } from './pages.ts';
import { takeDevices } from './room.ts';
import { endDevices, freeDevices, freeDevicesOfTask } from './run-devices.ts';
import { decodeRow, encodeColumns, type Encoded } from './rows/columns.ts';
import { guardedOf } from './rows/project.ts';
import { newTaskColumns, taskOf } from './rows/task.ts';
import { changeOverdue, endReported, lostAt, repeatedReport, taskRow } from './task-row.ts';

/** Ended runs to keep: of each job, and of the runs of a project without a job. */
const KEPT = 100;
/** Maximum number of runs that one sweep removes, because each can have 16 MiB of output. */
const SWEPT_AT_ONCE = 5;

/** The tables have the columns of deployment logs, with the key `run_id`. */
const RUN_LOGS = {
  lines: 'run_log_lines',
  heads: 'run_log_heads',
  marks: 'run_log_marks',
  owner: 'run_id',
} as unknown as LogTables;

const ENCODED: Encoded<RunRecord> = {
  command: 'json',
  devices: 'json',
  env: 'json',
  env_names: 'json',
  losses: 'json',
  stdin: 'flag',
  error: 'json',
};
export const runOf = (row: Row<'runs'>): RunRecord => decodeRow<RunRecord>(row, ENCODED);
const isRun = sql<boolean>`kind = 'run'`;

export function createRunStore(db: Database): RunStore {
  return {
    create: (run, now) => createRun(db, run, now),
    get: async (id) => runOf(await runRow(db.kysely, id)),
    projectOf: (id) => projectOfRun(db, id),
    list: (projectId, filter, page) => listRuns(db, projectId, filter, page),
    open: () => openRuns(db),
    onNode: (nodeId) => runsOnNode(db, nodeId),
    offer: (offer, now) => offerRun(db, offer, now),
    endDevices: (at) => endDevices(db, at),
    freeDevices: (leases) => freeDevices(db, leases),
    setReason: (id, reason) => setRunReason(db, id, reason),
    cancel: (id, reason, now) => cancelRun(db, id, reason, now),
    end: (id, end, now) => endIdleRun(db, id, end, now),
    endTask: (taskId, leaseToken, report, now) => endRunTask(db, taskId, leaseToken, report, now),
    loseTask: (task, why, now, offerUntil) => loseRunTask(db, { task, why }, now, offerUntil),
    appendLog: (runId, source, lines, now) => appendRunLog(db, runId, { source, lines, now }),
    readLog: (runId, after, limit) => readLines(db, RUN_LOGS, runId, after, limit),
    sweep: () => sweepRuns(db),
  };
}

async function runRow(db: Db | Tx, id: string): Promise<Row<'runs'>> {
  const row = await db.selectFrom('runs').selectAll().where('id', '=', id).executeTakeFirst();
  if (row === undefined) throw new DomainError('not_found', noRun(id));
  return row;
}

/** Returns the record of a run that waits for a node. */
export const newRunRecord = (run: NewRun, now: number): RunRecord => ({
  ...run,
  env_names: Object.keys(run.env).sort(),
  status: 'pending',
  reason: null,
  attempt: 0,
  losses: [],
  deployment_id: null,
  node_id: null,
  task_id: null,
  cancel_requested_at: null,
  exit_code: null,
  error: null,
  logged_until: null,
  created_at: now,
  started_at: null,
  ended_at: null,
});

function createRun(db: Database, run: NewRun, now: number): Promise<RunRecord> {
  return db.write(async (tx) => {
    await lockRuns(db, tx, run.project_id);
    return insertRun(tx, run, now);
  });
}

/** Requests for runs of one project are handled one after the other. */
export const lockRuns = (db: Database, tx: Tx, projectId: string): Promise<void> =>
  db.capabilities.lockName(tx, `runs:${projectId}`);

/** Throws too_many_requests if the project has MAX_OPEN_RUNS open runs. Call lockRuns before it. */
export async function insertRun(tx: Tx, run: NewRun, now: number): Promise<RunRecord> {
  const { open } = await tx
    .selectFrom('runs')
    .select((eb) => eb.fn.countAll<number>().as('open'))
    .where('project_id', '=', run.project_id)
    .where('ended_at', 'is', null)
    .executeTakeFirstOrThrow();
  if (open >= MAX_OPEN_RUNS)
    throw new DomainError(
      'too_many_requests',
      `the project has ${MAX_OPEN_RUNS} runs that have not ended; wait for one or cancel one ` +
        '(berth runs list, berth runs cancel ID)',
    );
  const record = newRunRecord(run, now);
  await tx.insertInto('runs').values(encodeColumns(record)).execute();
  return record;
}

async function projectOfRun(db: Database, id: string): Promise<Guarded | null> {
  const row = await db.kysely
    .selectFrom('runs')
    .innerJoin('projects', 'projects.id', 'runs.project_id')
    .select(['projects.id', 'projects.members'])
    .where('runs.id', '=', id)
    .executeTakeFirst();
  return row === undefined ? null : guardedOf(row);
}

function listRuns(
  db: Database,
  projectId: string,
  { status, job }: RunFilter,
  page: Page,
): Promise<Paged<RunRecord>> {
  let query = db.kysely.selectFrom('runs').selectAll().where('project_id', '=', projectId);
  if (status !== undefined) query = query.where('status', '=', status);
  if (job !== undefined) query = query.where('job', '=', job);
  return newestFirst(query, page, runOf);
}

async function openRuns(db: Database): Promise<RunRecord[]> {
  const rows = await db.kysely
    .selectFrom('runs')
    .selectAll()
    .where('ended_at', 'is', null)
    .orderBy('queue_deadline_at')
    .orderBy('created_at')
    .orderBy('id')
    .execute();
  return rows.map(runOf);
}

async function runsOnNode({ kysely }: Database, nodeId: string): Promise<RunOnNode[]> {
  const rows = await kysely
    .selectFrom('tasks')
    .leftJoin('runs', 'runs.task_id', 'tasks.id')
    .select(['payload', 'runs.id', 'tasks.deployment_id'])
    .select('runs.deployment_id as deployment_of_run')
    .where('tasks.node_id', '=', nodeId)
    .where('tasks.finished_at', 'is', null)
    .where(isRun)
    .orderBy('tasks.created_at')
    .orderBy('tasks.id')
    .execute();
  return rows.map((row) => {
    const { project_id, project, timeout_seconds } = JSON.parse(row.payload) as RunPayload;
    return {
      project_id,
      project,
      timeout_seconds,
      run_id: row.id,
      deployment_id: row.deployment_id ?? row.deployment_of_run ?? '',
    };
  });
}

/** Returns the runs of a project that a node has: their commands may have started. */
export async function runsOnNodes(
  tx: Tx,
  projectId: string,
): Promise<{ id: string; node_id: string }[]> {
  const rows = await tx
    .selectFrom('runs')
    .select(['id', 'node_id'])
    .where('project_id', '=', projectId)
    .where('ended_at', 'is', null)
    .where('task_id', 'is not', null)
    .orderBy('created_at')
    .orderBy('id')
    .execute();
  return rows.flatMap(({ id, node_id }) => (node_id === null ? [] : [{ id, node_id }]));
}

/** Thrown to roll back the transaction. */
class DeviceTaken extends Error {}

async function offerRun(db: Database, offer: RunOffer, now: number): Promise<boolean> {
  try {
    const isOffered = await db.write((tx) => offerIn(tx, offer, now));
    if (isOffered) await failPoint('runs.offer.after');
    return isOffered;
  } catch (error) {
    if (error instanceof DeviceTaken) return false;
    throw error;
  }
}

async function offerIn(
  tx: Tx,
  { run_id, deployment_id, task, takes }: RunOffer,
  now: number,
): Promise<boolean> {
  const offered = await tx
    .updateTable('runs')
    .set((eb) => ({
      task_id: task.id,
      devices_task: task.id,
      node_id: task.node_id,
      deployment_id,
      // Placement counts them as held (store/room.ts).
      memory_bytes: task.payload.memory_bytes,
      cpus: task.payload.cpus,
      reason: null,
      attempt: eb('attempt', '+', 1),
    }))
    .where('id', '=', run_id)
    .where('task_id', 'is', null)
    .where('ended_at', 'is', null)
    .where('cancel_requested_at', 'is', null)
    .returning('id')
    .executeTakeFirst();
  if (offered === undefined) return false;
  await tx
    .insertInto('tasks')
    .values(newTaskColumns({ ...task, kind: 'run', deployment_id: null }, null, now))
    .execute();
  const leases = takes.map((take) => ({ ...take, run: { task_id: task.id } }));
  if (!(await takeDevices(tx, leases, now))) throw new DeviceTaken();
  await failPoint('runs.offer.before');
  return true;
}

async function setRunReason(db: Database, id: string, reason: string): Promise<void> {
  await db.writeOne((kysely) =>
    kysely
      .updateTable('runs')
      .set({ reason })
      .where('id', '=', id)
      .where('task_id', 'is', null)
      .where('ended_at', 'is', null)
      .execute(),
  );
}

function cancelRun(db: Database, id: string, reason: string, now: number): Promise<RunRecord> {
  return db.write(async (tx) => {
    const run = await cancelOpenRun(tx, id, reason, now);
    if (run !== null) return run;
    const { status } = await runRow(tx, id);
    throw new DomainError('wrong_state', `the run has already ended: it is ${status}`);
  });
}

/** Cancels a run and returns it; null if it has ended. */
export async function cancelOpenRun(
  tx: Tx,
  id: string,
  reason: string,
  now: number,
): Promise<RunRecord | null> {
  const run = await runRow(tx, id);
  if (run.ended_at !== null) return null;
  const isClaimed = run.task_id !== null && !(await withdrawTask(tx, run.task_id, now));
  if (!isClaimed) return endRow(tx, id, { status: 'cancelled', reason, error: null }, now);
  const asked = await tx
    .updateTable('runs')
    .set((eb) => ({
      cancel_requested_at: eb.fn.coalesce('cancel_requested_at', eb.val(now)),
      reason,
    }))
    .where('id', '=', id)
    .where('ended_at', 'is', null)
    .returningAll()
    .executeTakeFirst();
  return runOf(asked ?? (await runRow(tx, id)));
}

/** Ends a task that no agent has claimed, else requests its cancellation. Returns which. */
async function withdrawTask(tx: Tx, taskId: string, now: number): Promise<boolean> {
  const ended = await tx
    .updateTable('tasks')
    .set({ status: 'cancelled', finished_at: now, cancel_requested_at: now })
    .where('id', '=', taskId)
    .where('finished_at', 'is', null)
    .where('attempt', '=', 0)
    .returning('id')
    .executeTakeFirst();
  if (ended !== undefined) {
    await freeDevicesOfTask(tx, taskId);
    return true;
  }
  const asked = await tx
    .updateTable('tasks')
    .set((eb) => ({ cancel_requested_at: eb.fn.coalesce('cancel_requested_at', eb.val(now)) }))
    .where('id', '=', taskId)
    .where('finished_at', 'is', null)
    .returning('id')
    .executeTakeFirst();
  // A task whose row is gone, or that ended without a report, has no agent to stop it.
  return asked === undefined;
}

function endIdleRun(db: Database, id: string, end: RunEnd, now: number): Promise<boolean> {
  return db.write(async (tx) => {
    const run = await tx
      .selectFrom('runs')
      .leftJoin('tasks', 'tasks.id', 'runs.task_id')
      .select(['runs.ended_at', 'tasks.id as task', 'tasks.finished_at'])
      .where('runs.id', '=', id)
      .executeTakeFirst();
    if (run === undefined || run.ended_at !== null) return false;
    if (run.task !== null && run.finished_at === null) return false;
    await endRow(tx, id, end, now);
    return true;
  });
}

/** Ends an open run and returns it. */
async function endRow(
  tx: Tx,
  id: string,
  end: RunEnd & { exit_code?: number | null },
  now: number,
): Promise<RunRecord> {
  const row = await tx
    .updateTable('runs')
    .set({
      status: end.status,
      reason: end.reason,
      error: end.error === null ? null : JSON.stringify(end.error),
      exit_code: end.exit_code ?? null,
      env: '{}',
      ended_at: now,
    })
    .where('id', '=', id)
    .where('ended_at', 'is', null)
    .returningAll()
    .executeTakeFirst();
  return runOf(row ?? (await runRow(tx, id)));
}

/** Marks the run as running. Call it in the transaction of the claim of its task. */
export async function markRunStarted(tx: Tx, taskId: string, now: number): Promise<void> {
  await tx
    .updateTable('runs')
    .set((eb) => ({
      status: 'running',
      reason: null,
      started_at: eb.fn.coalesce('started_at', eb.val(now)),
    }))
    .where('task_id', '=', taskId)
    .where('ended_at', 'is', null)
    .execute();
}

const withoutEnv = (payload: string): string =>
  JSON.stringify({ ...(JSON.parse(payload) as RunPayload), env: {} } satisfies RunPayload);

/** Returns the run of a task; null if it was deleted with its project. */
async function runOfTask(tx: Tx, id: string): Promise<RunRecord | null> {
  const row = await tx.selectFrom('runs').selectAll().where('id', '=', id).executeTakeFirst();
  return row === undefined ? null : runOf(row);
}

async function endRunTask(
  db: Database,
  taskId: string,
  leaseToken: string | null,
  report: TaskReport,
  now: number,
): Promise<{ status: TaskState }> {
  const done = await db.write(async (tx) => {
    const task = await endReported(tx, isRun, { id: taskId, leaseToken, report }, now);
    if (task === undefined) return null;
    const { run_id } = JSON.parse(task.payload) as RunPayload;
    await tx
      .updateTable('tasks')
      .set({ payload: withoutEnv(task.payload) })
      .where('id', '=', taskId)
      .execute();
    if (isOver(report)) await freeDevicesOfTask(tx, taskId);
    const run = await runOfTask(tx, run_id);
    // Its project was deleted meanwhile, and the run with it.
    if (run === null) return task.status;
    const end = reportedEnd(run, report);
    if (end.status === 'lost' && mayRepeat(run)) await offerAgain(tx, run, now);
    else await endRow(tx, run_id, end, now);
    await failPoint('runs.end.before');
    return task.status;
  });
  await failPoint('runs.end.after');
  return {
    status: done ?? repeatedReport(taskOf(await taskRow(db.kysely, taskId)), leaseToken, report),
  };
}

/** Returns whether the report says that the command has ended, so that it has no device any more. */
const isOver = ({ status, result }: TaskReport): boolean =>
  (status === 'completed' && isResult(result)) ||
  ['cancelled', 'command_timeout'].includes(errorIn(result).code);

/** Returns how a report ends its run. An agent can report anything, so nothing is assumed. */
function reportedEnd(
  run: RunRecord,
  { status, result }: TaskReport,
): RunEnd & { exit_code: number | null } {
  if (status === 'completed' && isResult(result)) {
    const { exit_code, out_of_memory } = result;
    if (exit_code === 0) return { status: 'succeeded', reason: null, error: null, exit_code };
    const error = out_of_memory
      ? failure('command_out_of_memory')
      : failure('command_failed', `exit code ${exit_code}`);
    return { status: 'failed', reason: null, error, exit_code };
  }
  const { code, message } = errorIn(result);
  if (code === 'cancelled')
    return { status: 'cancelled', reason: run.reason, error: null, exit_code: null };
  return {
    status: code === 'run_lost' ? 'lost' : 'failed',
    reason: null,
    error: { code, message },
    exit_code: null,
  };
}

const isResult = (result: unknown): result is RunResult =>
  typeof result === 'object' &&
  result !== null &&
  isExitCode((result as { exit_code?: unknown }).exit_code);

function errorIn(result: TaskReport['result']): Failure {
  const error = typeof result === 'object' ? result?.error : undefined;
  if (error === undefined) return failure('task_failed', 'the agent reported no result');
  return isFailureCode(error.code)
    ? { code: error.code, message: error.message }
    : { code: 'task_failed', message: error.message };
}

const failure = (code: keyof typeof FAILURES, detail?: string): Failure => ({
  code,
  message: `${FAILURES[code]}${detail === undefined ? '' : `: ${detail}`}.`,
});

/** Only a lost run is repeated, and only within `retries`. */
const mayRepeat = ({ attempt, retries, cancel_requested_at }: RunRecord): boolean =>
  cancel_requested_at === null && attempt <= retries;

/** Makes the run wait for a node again. */
async function offerAgain(tx: Tx, run: RunRecord, now: number): Promise<void> {
  const losses = run.node_id === null ? [] : [{ node_id: run.node_id, at: now }];
  await tx
    .updateTable('runs')
    .set({
      status: 'pending',
      task_id: null,
      attempt: run.attempt,
      losses: JSON.stringify([...run.losses, ...losses].slice(-KEPT)),
    })
    .where('id', '=', run.id)
    .where('ended_at', 'is', null)
    .execute();
}

const LOST: Record<Overdue, Failure> = {
  queue: failure('run_lost', 'the agent of the node did not return'),
  lease: failure('run_lost', 'the agent of the node stopped reporting'),
  wall: failure('command_timeout', 'the agent of the node did not report its end'),
  attempts: failure('too_many_attempts'),
};

function loseRunTask(
  db: Database,
  { task, why }: { task: TaskRecord; why: Overdue },
  now: number,
  offerUntil: number,
): Promise<boolean> {
  return db.write(async (tx) => {
    const run = await runOfTask(tx, runIdOf(task));
    // The same node gets the task again: only its agent can tell whether the command started. A
    // run that was deleted with its project is over.
    const again = why === 'lease' && run !== null;
    const set = again
      ? {
          status: 'pending' as const,
          lease_token: null,
          lease_expires_at: null,
          queue_deadline_at: offerUntil,
        }
      : lostAt(now);
    const lost = await changeOverdue(tx, isRun, { task, why, set });
    if (lost === undefined) return false;
    // No agent has claimed it, so the command cannot have started.
    if (task.attempt === 0 && !again) await freeDevicesOfTask(tx, task.id);
    if (again || run === null) return true;
    if (run.cancel_requested_at !== null)
      await endRow(tx, run.id, { status: 'cancelled', reason: run.reason, error: null }, now);
    // No agent has claimed it, so the command cannot have started: another node can take it.
    else if (task.attempt === 0 && why === 'queue')
      await offerAgain(tx, { ...run, attempt: run.attempt - 1 }, now);
    else if (why !== 'wall' && mayRepeat(run)) await offerAgain(tx, run, now);
    else
      await endRow(
        tx,
        run.id,
        { status: why === 'wall' ? 'failed' : 'lost', reason: null, error: LOST[why] },
        now,
      );
    return true;
  });
}

function appendRunLog(
  db: Database,
  runId: string,
  batch: Parameters<typeof appendLines>[3],
): Promise<number> {
  if (batch.lines.length === 0) return Promise.resolve(0);
  return db.write(async (tx) => {
    const run = await tx.selectFrom('runs').select('id').where('id', '=', runId).executeTakeFirst();
    if (run === undefined) throw new DomainError('not_found', noRun(runId));
    const stored = await appendLines(tx, RUN_LOGS, runId, batch);
    const logged_until = lastOutputTime(stored);
    if (logged_until !== undefined)
      await tx.updateTable('runs').set({ logged_until }).where('id', '=', runId).execute();
    return stored.length;
  });
}

/**
 * The newest runs are those with the latest deadline: the uptime clock is never set back, as the
 * machine's clock can be.
 */
async function sweepRuns(db: Database): Promise<number> {
  const { rows } = await sql<{ id: string }>`
    select id from (
      select id, row_number() over (
        partition by project_id, coalesce(job, '')
        order by queue_deadline_at desc, scheduled_for desc, created_at desc, id desc) as place
      from runs where ended_at is not null) as ranked
    where place > ${KEPT} limit ${SWEPT_AT_ONCE}`.execute(db.kysely);
  for (const { id } of rows)
    await db.write(async (tx) => {
      const run = await tx
        .deleteFrom('runs')
        .where('id', '=', id)
        .returning('task_id')
        .executeTakeFirst();
      if (run !== undefined && run.task_id !== null)
        await tx.deleteFrom('tasks').where('id', '=', run.task_id).where(isRun).execute();
    });
  return rows.length;
}
