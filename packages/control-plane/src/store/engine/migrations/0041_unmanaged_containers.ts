/**
 * Adds the containers that contract-only agents might have started, including those of earlier
 * deployments.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const unmanagedContainers = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .createTable('unmanaged_containers')
      .addColumn('node_id', text, (c) => c.notNull())
      .addColumn('container', text, (c) => c.notNull())
      .addColumn('project_id', text, (c) => c.notNull())
      .addColumn('project', text, (c) => c.notNull())
      .addColumn('deployment_id', text, (c) => c.notNull())
      .addColumn('placed_at', 'bigint', (c) => c.notNull())
      .addColumn('labelled', 'integer', (c) => c.notNull())
      .addColumn('confirmed_at', 'bigint')
      .addPrimaryKeyConstraint('unmanaged_containers_pk', ['node_id', 'container', 'project_id'])
      .execute();
    await db.schema
      .createIndex('unmanaged_containers_project')
      .on('unmanaged_containers')
      .columns(['project_id'])
      .execute();
    // Containers of deleted projects cannot be added: the database no longer has them.
    await sql`
      insert into unmanaged_containers
        (node_id, container, project_id, project, deployment_id, placed_at, labelled)
      select d.node_id, 'svc-' || d.domain_prefix, d.project_id, p.name, max(d.id),
        max(d.created_at), 0
      from deployments d join nodes n on n.id = d.node_id join projects p on p.id = d.project_id
      where n.agent_version is null and n.role = 'deploy'
      group by d.node_id, d.domain_prefix, d.project_id, p.name`.execute(db);
  },
});
