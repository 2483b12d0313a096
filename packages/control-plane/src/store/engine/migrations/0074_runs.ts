/**
 * Adds runs (commands in containers of their own) and their output. An earlier version does not
 * know them: its agents stop the commands, because it does not list their tasks.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const runs = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await createRuns(db, text);
    await createLogs(db, text);
  },
});

async function createRuns(db: Kysely<unknown>, text: Capabilities['text']): Promise<void> {
  await db.schema
    .createTable('runs')
    .addColumn('id', text, (c) => c.primaryKey().notNull())
    .addColumn('project_id', text, (c) => c.notNull().references('projects.id').onDelete('cascade'))
    .addColumn('job', text)
    .addColumn('trigger', text, (c) => c.notNull())
    .addColumn('command', text, (c) => c.notNull())
    .addColumn('env', text, (c) => c.notNull())
    .addColumn('env_names', text, (c) => c.notNull())
    .addColumn('status', text, (c) => c.notNull())
    .addColumn('reason', text)
    .addColumn('scheduled_for', 'bigint')
    .addColumn('timeout_seconds', 'integer', (c) => c.notNull())
    .addColumn('memory_bytes', 'bigint')
    .addColumn('cpus', 'double precision')
    .addColumn('retries', 'integer', (c) => c.notNull())
    .addColumn('attempt', 'integer', (c) => c.notNull())
    .addColumn('losses', text, (c) => c.notNull())
    .addColumn('deployment_id', text)
    .addColumn('node_id', text)
    .addColumn('task_id', text)
    .addColumn('cancel_requested_at', 'bigint')
    .addColumn('exit_code', 'integer')
    .addColumn('error', text)
    .addColumn('logged_until', text)
    .addColumn('created_by', text)
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addColumn('queue_deadline_at', 'bigint', (c) => c.notNull())
    .addColumn('started_at', 'bigint')
    .addColumn('ended_at', 'bigint')
    // A time of a job has one run, also with several control planes. Others have no time (null).
    .addUniqueConstraint('runs_scheduled', ['project_id', 'job', 'scheduled_for'])
    .execute();
  for (const [name, columns] of [
    ['runs_project', ['project_id', 'created_at', 'id']],
    ['runs_open', ['ended_at']],
    ['runs_task', ['task_id']],
  ] as const)
    await db.schema
      .createIndex(name)
      .on('runs')
      .columns([...columns])
      .execute();
}

/** Creates the same tables as the logs of deployments have, with another key. */
async function createLogs(db: Kysely<unknown>, text: Capabilities['text']): Promise<void> {
  await db.schema
    .createTable('run_log_lines')
    .addColumn('run_id', text, (c) => c.notNull().references('runs.id').onDelete('cascade'))
    .addColumn('seq', 'integer', (c) => c.notNull())
    .addColumn('at', 'bigint', (c) => c.notNull())
    .addColumn('stream', text, (c) => c.notNull())
    .addColumn('step', text)
    .addColumn('text', text, (c) => c.notNull())
    .addPrimaryKeyConstraint('run_log_lines_primary', ['run_id', 'seq'])
    .execute();
  await db.schema
    .createTable('run_log_heads')
    .addColumn('run_id', text, (c) => c.primaryKey().references('runs.id').onDelete('cascade'))
    .addColumn('last_seq', 'integer', (c) => c.notNull())
    .addColumn('bytes', 'bigint', (c) => c.notNull())
    .addColumn('left_out', 'integer', (c) => c.notNull())
    .execute();
  await db.schema
    .createTable('run_log_marks')
    .addColumn('task_id', text, (c) => c.notNull())
    .addColumn('attempt', 'integer', (c) => c.notNull())
    .addColumn('run_id', text, (c) => c.notNull().references('runs.id').onDelete('cascade'))
    .addColumn('next_line', 'bigint', (c) => c.notNull())
    .addPrimaryKeyConstraint('run_log_marks_primary', ['task_id', 'attempt'])
    .execute();
  await db.schema
    .createIndex('run_log_marks_run')
    .on('run_log_marks')
    .columns(['run_id'])
    .execute();
}
