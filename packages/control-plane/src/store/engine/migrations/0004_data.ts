/**
 * Adds datasets with versions and history, columns for datasets in other tables, and tasks that
 * belong to a node and no project.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const data = (capabilities: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    const { text, bytes } = capabilities;
    await db.schema
      .createTable('datasets')
      .addColumn('id', text, (c) => c.primaryKey())
      .addColumn('name', text, (c) => c.notNull())
      .addColumn('nfs_path', text, (c) => c.notNull())
      .addColumn('status', text, (c) => c.notNull())
      .addColumn('problem', text)
      .addColumn('version', 'bigint')
      .addColumn('manifest_digest', text)
      .addColumn('files', 'bigint', (c) => c.notNull())
      .addColumn('bytes', 'bigint', (c) => c.notNull())
      .addColumn('skipped', text, (c) => c.notNull())
      .addColumn('share', text)
      .addColumn('scan_requested_at', 'bigint')
      .addColumn('scan_full', 'integer', (c) => c.notNull())
      .addColumn('accept_loss', 'integer', (c) => c.notNull())
      .addColumn('scanning_by', text)
      .addColumn('scanning_until', 'bigint')
      .addColumn('last_scanned_at', 'bigint')
      .addColumn('next_scan_at', 'bigint', (c) => c.notNull())
      .addColumn('deleting_at', 'bigint')
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .addColumn('updated_at', 'bigint', (c) => c.notNull())
      .addUniqueConstraint('datasets_name_unique', ['name'])
      .execute();

    await db.schema
      .createTable('dataset_versions')
      .addColumn('dataset_id', text, (c) =>
        c.notNull().references('datasets.id').onDelete('cascade'),
      )
      .addColumn('version', 'bigint', (c) => c.notNull())
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .addColumn('files', 'bigint', (c) => c.notNull())
      .addColumn('bytes', 'bigint', (c) => c.notNull())
      .addColumn('manifest_digest', text, (c) => c.notNull())
      .addPrimaryKeyConstraint('dataset_versions_primary', ['dataset_id', 'version'])
      .execute();
    await db.schema
      .createTable('dataset_trees')
      .addColumn('dataset_id', text, (c) =>
        c.notNull().references('datasets.id').onDelete('cascade'),
      )
      .addColumn('digest', text, (c) => c.notNull())
      .addColumn('body', bytes, (c) => c.notNull())
      .addPrimaryKeyConstraint('dataset_trees_primary', ['dataset_id', 'digest'])
      .execute();
    // The primary key is the only index: pages are sorted by version, then by path
    // (store/datasets/dataset-versions.ts).
    await db.schema
      .createTable('dataset_history')
      .addColumn('dataset_id', text, (c) =>
        c.notNull().references('datasets.id').onDelete('cascade'),
      )
      .addColumn('version', 'bigint', (c) => c.notNull())
      // Shortened to the length limit of an index (store/datasets/history-path.ts); `long_path` has
      // the whole path.
      .addColumn('path', text, (c) => c.notNull())
      .addColumn('long_path', text)
      .addColumn('change', text, (c) => c.notNull())
      .addColumn('size', 'bigint')
      .addColumn('checksum', text)
      .addColumn('previous_checksum', text)
      .addPrimaryKeyConstraint('dataset_history_primary', ['dataset_id', 'version', 'path'])
      .execute();

    await db.schema
      .alterTable('projects')
      .addColumn('on_dataset_change', text, (c) => c.notNull().defaultTo('tell'))
      .execute();
    await db.schema.alterTable('deployments').addColumn('datasets', text).execute();
    await db.schema.alterTable('nodes').addColumn('copy_rate', 'double precision').execute();
    await db.schema.alterTable('nodes').addColumn('drain', text).execute();
    await db.schema
      .createIndex('nodes_drain')
      .on('nodes')
      .columns(['id'])
      .where(sql.ref('drain'), 'is not', null)
      .execute();
    await nodeTasks(db, capabilities);
    await db.schema
      .createIndex('tasks_sync')
      .on('tasks')
      .columns(['node_id', 'seq'])
      .where(sql.ref('kind'), '=', sql.lit('sync'))
      .execute();
  },
});

/** Makes `project_id` of tasks nullable, and adds a column for the progress of copies. */
async function nodeTasks(db: Kysely<unknown>, capabilities: Capabilities): Promise<void> {
  if (!capabilities.dropsNotNull) return rebuildTasks(db, capabilities);
  await db.schema
    .alterTable('tasks')
    .alterColumn('project_id', (c) => c.dropNotNull())
    .execute();
  await db.schema.alterTable('tasks').addColumn('progress', capabilities.text).execute();
}

/**
 * Copies the table of 0001 with changed columns
 * (https://sqlite.org/lang_altertable.html#otheralter). No foreign key refers to it.
 */
async function rebuildTasks(
  db: Kysely<unknown>,
  { autoNumber, text }: Capabilities,
): Promise<void> {
  await db.schema
    .createTable('tasks_anew')
    .addColumn('seq', autoNumber.type, autoNumber.with)
    .addColumn('id', text, (c) => c.notNull().unique())
    .addColumn('kind', text, (c) => c.notNull())
    .addColumn('status', text, (c) => c.notNull())
    .addColumn('project_id', text, (c) => c.references('projects.id').onDelete('cascade'))
    .addColumn('deployment_id', text, (c) => c.references('deployments.id').onDelete('cascade'))
    .addColumn('node_id', text, (c) => c.notNull())
    .addColumn('attempt', 'integer', (c) => c.notNull())
    .addColumn('payload', text, (c) => c.notNull())
    .addColumn('lease_token', text)
    .addColumn('lease_expires_at', 'bigint')
    .addColumn('queue_deadline_at', 'bigint', (c) => c.notNull())
    .addColumn('wall_deadline_at', 'bigint', (c) => c.notNull())
    .addColumn('cancel_requested_at', 'bigint')
    .addColumn('report', text)
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addColumn('started_at', 'bigint')
    .addColumn('finished_at', 'bigint')
    .addColumn('progress', text)
    .addCheckConstraint(
      'tasks_open_unfinished',
      sql`(status in ('pending', 'running')) = (finished_at is null)`,
    )
    .execute();
  const columns = sql.raw(
    'seq, id, kind, status, project_id, deployment_id, node_id, attempt, payload, lease_token, ' +
      'lease_expires_at, ' +
      'queue_deadline_at, wall_deadline_at, cancel_requested_at, report, created_at, ' +
      'started_at, finished_at',
  );
  await sql`insert into tasks_anew (${columns}) select ${columns} from tasks`.execute(db);
  // Keeps the last number, even if its row was deleted, so that no number is reused.
  await sql`delete from sqlite_sequence where name = 'tasks_anew'`.execute(db);
  await sql`insert into sqlite_sequence (name, seq)
    select 'tasks_anew', seq from sqlite_sequence where name = 'tasks'`.execute(db);
  await db.schema.dropTable('tasks').execute();
  await db.schema.alterTable('tasks_anew').renameTo('tasks').execute();
  for (const [name, columns] of [
    ['tasks_open_node', ['node_id', 'seq']],
    ['tasks_open_project', ['project_id', 'seq']],
  ] as const)
    await db.schema
      .createIndex(name)
      .on('tasks')
      .columns([...columns])
      .where(sql.ref('finished_at'), 'is', null)
      .execute();
  await db.schema
    .createIndex('tasks_project_kind')
    .on('tasks')
    .columns(['project_id', 'kind', 'finished_at'])
    .execute();
  await db.schema.createIndex('tasks_deployment').on('tasks').columns(['deployment_id']).execute();
}
