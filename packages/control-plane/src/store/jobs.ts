/** Jobs and their runs (domain/runs/job-store.ts). */
import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import { MAX_JOBS } from '@berth/wire/job';
import { sql } from 'kysely';
import { DomainError } from '../domain/platform/errors.ts';
import { overlapReason } from '../domain/runs/due-runs.ts';
import { movesTimes, type NewFileJobs, refuseOfFile } from '../domain/runs/file-jobs.ts';
import {
  type BegunRun,
  type DueJob,
  type DueRun,
  type FailingRun,
  type JobRecord,
  type JobRun,
  type JobStore,
  NEXT_BEGAN,
} from '../domain/runs/job-store.ts';
import type { RunRecord } from '../domain/runs/run-store.ts';
import type { Database } from './engine/database.ts';
import type { Db, Row, Tx } from './engine/tables.ts';
import { decodeRow, encodeColumns, type Encoded } from './rows/columns.ts';
import { cancelOpenRun, insertRun, lockRuns, newRunRecord, runOf } from './runs.ts';

const ENCODED: Encoded<JobRecord> = { command: 'json', devices: 'json', enabled: 'flag' };
const jobOf = (row: Row<'jobs'>): JobRecord => decodeRow<JobRecord>(row, ENCODED);

async function noJob(db: Database, projectId: string, name: string): Promise<DomainError> {
  const names = (await listJobs(db, projectId)).map((job) => job.name);
  const others = names.length === 0 ? 'it has none' : `its jobs are ${names.join(', ')}`;
  return new DomainError('not_found', `the project has no job ${name}; ${others}`);
}

export function createJobStore(db: Database): JobStore {
  return {
    create: (job) => createJob(db, job),
    get: (projectId, name) => getJob(db, projectId, name),
    list: (projectId) => listJobs(db, projectId),
    change: (projectId, name, set) => changeJob(db, projectId, name, set),
    delete: (projectId, name) => deleteJob(db, projectId, name),
    enabled: () => enabledJobs(db),
    openRuns: (projectId, name) => openRunsOf(db.kysely, projectId, name),
    begin: (run, overlap, now) => beginRun(db, run, overlap, now),
    lastRuns: (projectId) => lastRunsOf(db, projectId),
    due: (job, times, plan, now) => recordDue(db, { job, times, plan }, now),
    failing: () => failingRuns(db),
  };
}

/**
 * Writes the jobs of the file of a version that goes live. A job of the same name that a person made
 * belongs to the file from now on. A job of an earlier file is deleted; its runs stay.
 */
export async function writeFileJobs(
  tx: Tx,
  projectId: string,
  { file, commit, jobs }: NewFileJobs,
  now: number,
): Promise<void> {
  const rows = await tx
    .selectFrom('jobs')
    .selectAll()
    .where('project_id', '=', projectId)
    .execute();
  const before = new Map(rows.map(jobOf).map((job) => [job.name, job]));
  const names = new Set(jobs.map(({ name }) => name));
  for (const { name, config_file } of before.values())
    if (config_file !== null && !names.has(name))
      await tx
        .deleteFrom('jobs')
        .where('project_id', '=', projectId)
        .where('name', '=', name)
        .execute();
  for (const { next_at, ...job } of jobs) {
    const origin = { config_file: file, config_commit: commit };
    const present = before.get(job.name);
    if (present === undefined)
      await tx
        .insertInto('jobs')
        .values(
          encodeColumns({
            ...job,
            ...origin,
            project_id: projectId,
            next_at,
            created_by: null,
            created_at: now,
            updated_at: now,
          } satisfies JobRecord),
        )
        .execute();
    else
      await tx
        .updateTable('jobs')
        .set(
          encodeColumns({
            ...job,
            ...origin,
            ...defined({ next_at: movesTimes(present, job) ? next_at : undefined }),
            updated_at: now,
          }),
        )
        .where('project_id', '=', projectId)
        .where('name', '=', job.name)
        .execute();
  }
}

function createJob(db: Database, job: JobRecord): Promise<void> {
  return db.write(async (tx) => {
    await db.capabilities.lockName(tx, `jobs:${job.project_id}`);
    const { count } = await tx
      .selectFrom('jobs')
      .select((eb) => eb.fn.countAll<number>().as('count'))
      .where('project_id', '=', job.project_id)
      .executeTakeFirstOrThrow();
    if (count >= MAX_JOBS)
      throw new DomainError('too_many_requests', `the project already has ${MAX_JOBS} jobs`);
    const created = await tx
      .insertInto('jobs')
      .values(encodeColumns(job))
      .onConflict((oc) => oc.columns(['project_id', 'name']).doNothing())
      .returning('name')
      .executeTakeFirst();
    if (created === undefined)
      throw new DomainError('job_name_taken', undefined, [
        { field: 'name', rule: 'unique', message: `the project already has a job ${job.name}` },
      ]);
  });
}

async function getJob(db: Database, projectId: string, name: string): Promise<JobRecord> {
  const row = await db.kysely
    .selectFrom('jobs')
    .selectAll()
    .where('project_id', '=', projectId)
    .where('name', '=', name)
    .executeTakeFirst();
  if (row === undefined) throw await noJob(db, projectId, name);
  return jobOf(row);
}

async function listJobs({ kysely }: Database, projectId: string): Promise<JobRecord[]> {
  const rows = await kysely
    .selectFrom('jobs')
    .selectAll()
    .where('project_id', '=', projectId)
    .orderBy('name')
    .execute();
  return rows.map(jobOf);
}

async function changeJob(
  db: Database,
  projectId: string,
  name: string,
  set: Parameters<JobStore['change']>[2],
): Promise<void> {
  const changed = await db.writeOne((kysely) =>
    kysely
      .updateTable('jobs')
      .set(encodeColumns(set))
      .where('project_id', '=', projectId)
      .where('name', '=', name)
      .where('config_file', 'is', null)
      .returning('name')
      .executeTakeFirst(),
  );
  if (changed === undefined) await refuseChange(db, projectId, name);
}

/** A version with a file can have gone live since the caller read the job. */
async function refuseChange(db: Database, projectId: string, name: string): Promise<never> {
  refuseOfFile(await getJob(db, projectId, name));
  throw await noJob(db, projectId, name);
}

async function deleteJob(db: Database, projectId: string, name: string): Promise<void> {
  const deleted = await db.writeOne((kysely) =>
    kysely
      .deleteFrom('jobs')
      .where('project_id', '=', projectId)
      .where('name', '=', name)
      .where('config_file', 'is', null)
      .returning('name')
      .executeTakeFirst(),
  );
  if (deleted === undefined) await refuseChange(db, projectId, name);
}

async function enabledJobs({ kysely }: Database): Promise<JobRecord[]> {
  const rows = await kysely
    .selectFrom('jobs')
    .innerJoin('projects', 'projects.id', 'jobs.project_id')
    .selectAll('jobs')
    .where('jobs.next_at', 'is not', null)
    .where('projects.deleting_at', 'is', null)
    .orderBy('jobs.next_at')
    .execute();
  return rows.map(jobOf);
}

async function openRunsOf(db: Db | Tx, projectId: string, name: string): Promise<RunRecord[]> {
  const rows = await db
    .selectFrom('runs')
    .selectAll()
    .where('project_id', '=', projectId)
    .where('job', '=', name)
    .where('ended_at', 'is', null)
    .orderBy('queue_deadline_at')
    .orderBy('created_at')
    .orderBy('id')
    .execute();
  return rows.map(runOf);
}

function beginRun(
  db: Database,
  run: JobRun,
  overlap: JobRecord['overlap'],
  now: number,
): Promise<BegunRun> {
  return db.write(async (tx) => {
    await lockRuns(db, tx, run.project_id);
    const open = await openRunsOf(tx, run.project_id, run.job);
    const reason = overlapReason(overlap, open);
    if (reason !== null) throw new DomainError('wrong_state', reason);
    const cancelled: RunRecord[] = [];
    if (overlap === 'cancel')
      for (const { id } of open) {
        const earlier = await cancelOpenRun(tx, id, NEXT_BEGAN, now);
        if (earlier !== null) cancelled.push(earlier);
      }
    return { run: await insertRun(tx, run, now), cancelled };
  });
}

async function lastRunsOf(
  { kysely }: Database,
  projectId: string,
): Promise<Map<string, RunRecord>> {
  const { rows } = await sql<Row<'runs'>>`
    select runs.* from jobs join runs on runs.id = (
      select id from runs as newest
      where newest.project_id = jobs.project_id and newest.job = jobs.name
      order by queue_deadline_at desc, created_at desc, id desc limit 1)
    where jobs.project_id = ${projectId}`.execute(kysely);
  return new Map(rows.map((row) => [row.job ?? '', runOf(row)]));
}

async function recordDue(
  db: Database,
  {
    job,
    times,
    plan,
  }: {
    job: DueJob;
    times: { from: number | null; next: number | null };
    plan: Parameters<JobStore['due']>[2];
  },
  now: number,
): Promise<boolean> {
  const isRecorded = await db.write(async (tx) => {
    if (!(await isStillPlan(db, tx, job, plan.open))) return false;
    const moved = await tx
      .updateTable('jobs')
      .set({ next_at: times.next })
      .where('project_id', '=', job.project_id)
      .where('name', '=', job.name)
      .where('next_at', 'is not distinct from', times.from)
      .where('schedule', '=', job.schedule)
      .where('timezone', '=', job.timezone)
      .returning('name')
      .executeTakeFirst();
    if (moved === undefined) return false;
    let begins = false;
    for (const run of plan.runs)
      if ((await insertDue(tx, run, now)) && run.not === null) begins = true;
    // A time comes again when the machine's clock was set back.
    if (begins) for (const id of plan.cancel) await cancelOpenRun(tx, id, NEXT_BEGAN, now);
    await failPoint('jobs.due.before');
    return true;
  });
  if (isRecorded) await failPoint('jobs.due.after');
  return isRecorded;
}

/** Returns whether no other run of the job began, for example because a person started one. */
async function isStillPlan(
  db: Database,
  tx: Tx,
  { project_id, name }: DueJob,
  planned: readonly string[] | undefined,
): Promise<boolean> {
  if (planned === undefined) return true;
  await lockRuns(db, tx, project_id);
  return (await openRunsOf(tx, project_id, name)).every(({ id }) => planned.includes(id));
}

/** Returns false if the time has a run already. */
async function insertDue(tx: Tx, { not, ...run }: DueRun, now: number): Promise<boolean> {
  const record = newRunRecord(run, now);
  const inserted = await tx
    .insertInto('runs')
    .values(
      encodeColumns(
        not === null
          ? record
          : { ...record, status: not.status, reason: not.reason, ended_at: now },
      ),
    )
    .onConflict((oc) => oc.columns(['project_id', 'job', 'scheduled_for']).doNothing())
    .returning('id')
    .executeTakeFirst();
  return inserted !== undefined;
}

async function failingRuns({ kysely }: Database): Promise<FailingRun[]> {
  const { rows } = await sql<Row<'runs'> & { project: string }>`
    select runs.*, projects.name as project from jobs
    join projects on projects.id = jobs.project_id
    join runs on runs.id = (
      select id from runs as newest
      where newest.project_id = jobs.project_id and newest.job = jobs.name
        and newest.status in ('succeeded', 'failed', 'lost')
      order by queue_deadline_at desc, created_at desc, id desc limit 1)
    where runs.status in ('failed', 'lost')`.execute(kysely);
  return rows.map(({ project, ...row }) => ({ ...runOf(row), project }));
}
