/** Creates the first tables: projects, deployments, tasks, nodes, routes, logs, users. */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const mainJob = (capabilities: Capabilities): Migration => ({
  // A migration must not use the current type Tables: it creates the tables as they were at its own
  // version.
  async up(db: Kysely<unknown>) {
    await createProjects(db, capabilities);
    await createDeployments(db, capabilities);
    await createDeploymentEvents(db, capabilities);
    await createTasks(db, capabilities);
    await createNodes(db, capabilities);
    await createRoutes(db, capabilities);
    await createUsers(db, capabilities);
    await createMeta(db, capabilities);
    await createIdempotencyKeys(db, capabilities);
    await createLogs(db, capabilities);
  },
});

async function createProjects(db: Kysely<unknown>, { text }: Capabilities): Promise<void> {
  await db.schema
    .createTable('projects')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('name', text, (c) => c.notNull())
    .addColumn('git_url', text, (c) => c.notNull())
    .addColumn('branch', text, (c) => c.notNull())
    .addColumn('dockerfile_path', text, (c) => c.notNull())
    .addColumn('domain_prefix', text, (c) => c.notNull())
    .addColumn('container_port', 'integer', (c) => c.notNull())
    .addColumn('auth_required', 'integer', (c) => c.notNull())
    .addColumn('env', text, (c) => c.notNull())
    .addColumn('datasets', text, (c) => c.notNull())
    .addColumn('health_path', text)
    .addColumn('memory_bytes', 'bigint')
    .addColumn('cpus', 'double precision')
    .addColumn('drain_seconds', 'integer', (c) => c.notNull())
    .addColumn('stop_grace_seconds', 'integer', (c) => c.notNull())
    .addColumn('replace', text, (c) => c.notNull())
    .addColumn('flow_version', 'bigint', (c) => c.notNull())
    .addColumn('last_generation', 'bigint', (c) => c.notNull())
    .addColumn('deleting_at', 'bigint')
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addColumn('updated_at', 'bigint', (c) => c.notNull())
    .addUniqueConstraint('projects_name_unique', ['name'])
    .addUniqueConstraint('projects_domain_prefix_unique', ['domain_prefix'])
    .execute();
}

async function createDeployments(db: Kysely<unknown>, { text }: Capabilities): Promise<void> {
  await db.schema
    .createTable('deployments')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('project_id', text, (c) => c.notNull().references('projects.id').onDelete('cascade'))
    .addColumn('generation', 'bigint', (c) => c.notNull())
    .addColumn('status', text, (c) => c.notNull())
    .addColumn('settings', text, (c) => c.notNull())
    .addColumn('domain_prefix', text, (c) => c.notNull())
    .addColumn('requested_commit', text)
    .addColumn('note', text)
    .addColumn('rollback_of', text)
    .addColumn('error_code', text)
    .addColumn('error_message', text)
    .addColumn('cancel_requested_at', 'bigint')
    .addColumn('commit', text)
    .addColumn('image_tag', text)
    .addColumn('image_digest', text)
    .addColumn('builder_id', text)
    .addColumn('node_id', text)
    .addColumn('container_id', text)
    .addColumn('host_port', 'integer')
    .addColumn('route_published_at', 'bigint')
    .addColumn('placement', text)
    .addColumn('health_status', text)
    .addColumn('health_since', 'bigint')
    .addColumn('health_detail', text)
    .addColumn('losses', text, (c) => c.notNull())
    .addColumn('waiting', text)
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addColumn('state_since', 'bigint', (c) => c.notNull())
    .addColumn('finished_at', 'bigint')
    .addUniqueConstraint('deployments_generation_unique', ['project_id', 'generation'])
    .execute();
  // A constraint, not only an index: no plan can make two deployments of a project `running`.
  await db.schema
    .createIndex('deployments_one_running')
    .unique()
    .on('deployments')
    .column('project_id')
    .where(sql.ref('status'), '=', sql.lit('running'))
    .execute();
  await db.schema
    .createIndex('deployments_created')
    .on('deployments')
    .columns(['created_at', 'id'])
    .execute();
  await db.schema
    .createIndex('deployments_project_created')
    .on('deployments')
    .columns(['project_id', 'created_at', 'id'])
    .execute();
  await db.schema
    .createIndex('deployments_project_status')
    .on('deployments')
    .columns(['project_id', 'status'])
    .execute();
  await db.schema
    .createIndex('deployments_status_created')
    .on('deployments')
    .columns(['status', 'created_at', 'id'])
    .execute();
  await db.schema
    .createIndex('deployments_node')
    .on('deployments')
    .columns(['node_id', 'status'])
    .execute();
  await db.schema
    .createIndex('deployments_domain_prefix')
    .on('deployments')
    .columns(['domain_prefix', 'status'])
    .execute();
}

async function createDeploymentEvents(
  db: Kysely<unknown>,
  { autoNumber, text }: Capabilities,
): Promise<void> {
  await db.schema
    .createTable('deployment_events')
    .addColumn('id', autoNumber.type, autoNumber.with)
    .addColumn('deployment_id', text, (c) =>
      c.notNull().references('deployments.id').onDelete('cascade'),
    )
    .addColumn('at', 'bigint', (c) => c.notNull())
    .addColumn('kind', text, (c) => c.notNull())
    .addColumn('message', text, (c) => c.notNull())
    .execute();
  await db.schema
    .createIndex('deployment_events_deployment')
    .on('deployment_events')
    .columns(['deployment_id', 'id'])
    .execute();
}

async function createTasks(db: Kysely<unknown>, { autoNumber, text }: Capabilities): Promise<void> {
  await db.schema
    .createTable('tasks')
    .addColumn('seq', autoNumber.type, autoNumber.with)
    .addColumn('id', text, (c) => c.notNull().unique())
    .addColumn('kind', text, (c) => c.notNull())
    .addColumn('status', text, (c) => c.notNull())
    .addColumn('project_id', text, (c) => c.notNull().references('projects.id').onDelete('cascade'))
    .addColumn('deployment_id', text, (c) => c.references('deployments.id').onDelete('cascade'))
    // Has no foreign key, because a task outlives its node.
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
    .addCheckConstraint(
      'tasks_open_unfinished',
      sql`(status in ('pending', 'running')) = (finished_at is null)`,
    )
    .execute();
  // A partial index: a platform has few open tasks and a long history of finished ones.
  await db.schema
    .createIndex('tasks_open_node')
    .on('tasks')
    .columns(['node_id', 'seq'])
    .where(sql.ref('finished_at'), 'is', null)
    .execute();
  await db.schema
    .createIndex('tasks_open_project')
    .on('tasks')
    .columns(['project_id', 'seq'])
    .where(sql.ref('finished_at'), 'is', null)
    .execute();
  await db.schema
    .createIndex('tasks_project_kind')
    .on('tasks')
    .columns(['project_id', 'kind', 'finished_at'])
    .execute();
  await db.schema.createIndex('tasks_deployment').on('tasks').columns(['deployment_id']).execute();
}

async function createNodes(db: Kysely<unknown>, { text }: Capabilities): Promise<void> {
  await db.schema
    .createTable('nodes')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('hostname', text, (c) => c.notNull())
    .addColumn('role', text, (c) => c.notNull())
    .addColumn('host_ip', text, (c) => c.notNull())
    // Floating point, because agents can send a byte count as any JSON number.
    .addColumn('max_storage', 'double precision', (c) => c.notNull())
    .addColumn('free_storage', 'double precision')
    .addColumn('max_builds', 'integer', (c) => c.notNull())
    .addColumn('agent_version', text)
    .addColumn('boot_id', text)
    .addColumn('schedulable', 'integer', (c) => c.notNull())
    .addColumn('deleting_at', 'bigint')
    .addColumn('cached', text, (c) => c.notNull())
    .addColumn('containers', text, (c) => c.notNull())
    .addColumn('observed_at', 'bigint')
    .addColumn('last_seen_at', 'bigint', (c) => c.notNull())
    .addColumn('last_polled_at', 'bigint')
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addUniqueConstraint('nodes_hostname_role_unique', ['hostname', 'role'])
    .execute();
}

async function createRoutes(db: Kysely<unknown>, { text }: Capabilities): Promise<void> {
  await db.schema
    .createTable('routes')
    .addColumn('project_id', text, (c) =>
      c.primaryKey().references('projects.id').onDelete('cascade'),
    )
    .addColumn('deployment_id', text, (c) => c.notNull())
    .addColumn('node_id', text, (c) => c.notNull())
    .addColumn('domain_prefix', text, (c) => c.notNull())
    .addColumn('host_ip', text, (c) => c.notNull())
    .addColumn('host_port', 'integer', (c) => c.notNull())
    .addColumn('published_at', 'bigint', (c) => c.notNull())
    // If two projects had the same host name, the proxy would choose one at random.
    .addUniqueConstraint('routes_domain_prefix_unique', ['domain_prefix'])
    .execute();
  await db.schema.createIndex('routes_node').on('routes').columns(['node_id']).execute();
}

async function createUsers(db: Kysely<unknown>, { text }: Capabilities): Promise<void> {
  await db.schema
    .createTable('users')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('email', text, (c) => c.notNull())
    .addColumn('role', text, (c) => c.notNull())
    .addColumn('password_hash', text)
    .addColumn('disabled', 'integer', (c) => c.notNull())
    .addColumn('last_login_at', 'bigint')
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addUniqueConstraint('users_email_unique', ['email'])
    .execute();
}

async function createMeta(db: Kysely<unknown>, { text }: Capabilities): Promise<void> {
  await db.schema
    .createTable('meta')
    .addColumn('key', text, (c) => c.primaryKey())
    .addColumn('value', text, (c) => c.notNull())
    .execute();
}

async function createIdempotencyKeys(db: Kysely<unknown>, { text }: Capabilities): Promise<void> {
  await db.schema
    .createTable('idempotency_keys')
    .addColumn('project_id', text, (c) => c.notNull().references('projects.id').onDelete('cascade'))
    .addColumn('key', text, (c) => c.notNull())
    .addColumn('body_hash', text, (c) => c.notNull())
    .addColumn('deployment_id', text, (c) => c.notNull())
    .addColumn('expires_at', 'bigint', (c) => c.notNull())
    .addPrimaryKeyConstraint('idempotency_keys_primary', ['project_id', 'key'])
    .execute();
}

async function createLogs(db: Kysely<unknown>, { text }: Capabilities): Promise<void> {
  await db.schema
    .createTable('log_lines')
    .addColumn('deployment_id', text, (c) =>
      c.notNull().references('deployments.id').onDelete('cascade'),
    )
    .addColumn('seq', 'integer', (c) => c.notNull())
    .addColumn('at', 'bigint', (c) => c.notNull())
    .addColumn('stream', text, (c) => c.notNull())
    .addColumn('step', text)
    .addColumn('text', text, (c) => c.notNull())
    .addPrimaryKeyConstraint('log_lines_primary', ['deployment_id', 'seq'])
    .execute();
  await db.schema
    .createTable('log_heads')
    .addColumn('deployment_id', text, (c) =>
      c.primaryKey().references('deployments.id').onDelete('cascade'),
    )
    .addColumn('last_seq', 'integer', (c) => c.notNull())
    .addColumn('bytes', 'bigint', (c) => c.notNull())
    .addColumn('left_out', 'integer', (c) => c.notNull())
    .execute();
  await db.schema
    .createTable('log_marks')
    .addColumn('task_id', text, (c) => c.notNull())
    .addColumn('attempt', 'integer', (c) => c.notNull())
    .addColumn('deployment_id', text, (c) =>
      c.notNull().references('deployments.id').onDelete('cascade'),
    )
    .addColumn('next_line', 'bigint', (c) => c.notNull())
    .addPrimaryKeyConstraint('log_marks_primary', ['task_id', 'attempt'])
    .execute();
  await db.schema
    .createIndex('log_marks_deployment')
    .on('log_marks')
    .columns(['deployment_id'])
    .execute();
}
