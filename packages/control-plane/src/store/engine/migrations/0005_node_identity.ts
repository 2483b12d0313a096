/**
 * Adds the data that agents report about their node, node secrets, join tokens, admissions of nodes
 * by an admin, and the architecture of images.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const nodeIdentity = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    for (const column of ['arch', 'engine', 'capabilities', 'disk', 'secret_hash', 'boots'])
      await db.schema.alterTable('nodes').addColumn(column, text).execute();
    // `boots`: other agent processes that use the name of this node
    // (domain/nodes/duplicate-agents.ts), as JSON. The index is partial, because few nodes have a
    // value.
    await db.schema
      .createIndex('nodes_boots')
      .on('nodes')
      .columns(['id'])
      .where(sql.ref('boots'), 'is not', null)
      .execute();
    await db.schema.alterTable('nodes').addColumn('secret_used', 'integer').execute();
    await db.schema.alterTable('nodes').addColumn('secret_reset_at', 'bigint').execute();
    await db.schema.alterTable('deployments').addColumn('image_arch', text).execute();

    await db.schema
      .createTable('join_tokens')
      .addColumn('id', text, (c) => c.primaryKey())
      .addColumn('hash', text, (c) => c.notNull())
      .addColumn('role', text, (c) => c.notNull())
      .addColumn('name', text)
      .addColumn('created_by', text)
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .addColumn('expires_at', 'bigint', (c) => c.notNull())
      .addColumn('used_at', 'bigint')
      .addColumn('boot_id', text)
      .addColumn('node_id', text)
      .execute();
    await db.schema
      .createIndex('join_tokens_expires')
      .on('join_tokens')
      .columns(['expires_at', 'id'])
      .execute();
    await db.schema
      .createIndex('join_tokens_created')
      .on('join_tokens')
      .columns(['created_at', 'id'])
      .execute();

    await db.schema
      .createTable('node_admissions')
      .addColumn('id', text, (c) => c.primaryKey())
      .addColumn('hostname', text, (c) => c.notNull())
      .addColumn('role', text, (c) => c.notNull())
      .addColumn('address', text)
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .addUniqueConstraint('node_admissions_hostname_role_unique', ['hostname', 'role'])
      .execute();
    await db.schema
      .createIndex('node_admissions_address')
      .on('node_admissions')
      .column('address')
      .execute();
  },
});
