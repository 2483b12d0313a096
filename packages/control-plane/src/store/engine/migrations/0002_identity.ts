/** Adds sessions, tokens, the device flow, revocations for the gateways, and the audit log. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const identity = (capabilities: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await createRevokedSessions(db, capabilities);
    await createUsedCodes(db, capabilities);
    await createDeviceCodes(db, capabilities);
    await createDeviceTokens(db, capabilities);
    await createApiSessions(db, capabilities);
    await createApiTokens(db, capabilities);
    await createAuditLog(db, capabilities);
    // For the policy of the gateways, which lists the disabled users.
    await db.schema.createIndex('users_disabled').on('users').column('disabled').execute();
  },
});

async function createRevokedSessions(db: Kysely<unknown>, { text }: Capabilities): Promise<void> {
  await db.schema
    .createTable('revoked_sessions')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('email', text, (c) => c.notNull())
    .addColumn('revoked_at', 'bigint', (c) => c.notNull())
    .addColumn('expires_at', 'bigint', (c) => c.notNull())
    .execute();
  await db.schema
    .createIndex('revoked_sessions_expires')
    .on('revoked_sessions')
    .columns(['expires_at', 'id'])
    .execute();
  await db.schema
    .createIndex('revoked_sessions_email')
    .on('revoked_sessions')
    .columns(['email', 'expires_at'])
    .execute();
}

async function createUsedCodes(db: Kysely<unknown>, { text }: Capabilities): Promise<void> {
  await db.schema
    .createTable('used_codes')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('expires_at', 'bigint', (c) => c.notNull())
    .execute();
  await db.schema.createIndex('used_codes_expires').on('used_codes').column('expires_at').execute();
}

async function createDeviceCodes(db: Kysely<unknown>, { text }: Capabilities): Promise<void> {
  await db.schema
    .createTable('device_codes')
    .addColumn('device_hash', text, (c) => c.primaryKey())
    .addColumn('user_hash', text, (c) => c.notNull())
    .addColumn('status', text, (c) => c.notNull())
    .addColumn('address', text, (c) => c.notNull())
    .addColumn('user_agent', text, (c) => c.notNull())
    .addColumn('identity', text)
    .addColumn('poll_seconds', 'integer', (c) => c.notNull())
    .addColumn('polled_at', 'bigint')
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addColumn('expires_at', 'bigint', (c) => c.notNull())
    .addUniqueConstraint('device_codes_user_hash_unique', ['user_hash'])
    .execute();
  await db.schema
    .createIndex('device_codes_expires')
    .on('device_codes')
    .column('expires_at')
    .execute();
}

async function createDeviceTokens(db: Kysely<unknown>, { text }: Capabilities): Promise<void> {
  await db.schema
    .createTable('device_tokens')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('hash', text, (c) => c.notNull())
    .addColumn('email', text, (c) => c.notNull())
    .addColumn('identity', text, (c) => c.notNull())
    .addColumn('address', text, (c) => c.notNull())
    .addColumn('user_agent', text, (c) => c.notNull())
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addColumn('expires_at', 'bigint', (c) => c.notNull())
    .addColumn('last_used_at', 'bigint')
    .addUniqueConstraint('device_tokens_hash_unique', ['hash'])
    .execute();
  await db.schema
    .createIndex('device_tokens_expires')
    .on('device_tokens')
    .columns(['expires_at', 'id'])
    .execute();
  await db.schema
    .createIndex('device_tokens_email')
    .on('device_tokens')
    .columns(['email', 'created_at', 'id'])
    .execute();
  await db.schema
    .createIndex('device_tokens_created')
    .on('device_tokens')
    .columns(['created_at', 'id'])
    .execute();
}

async function createApiSessions(db: Kysely<unknown>, { text }: Capabilities): Promise<void> {
  await db.schema
    .createTable('api_sessions')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('user_id', text, (c) => c.notNull().references('users.id').onDelete('cascade'))
    .addColumn('refresh_hash', text, (c) => c.notNull())
    .addColumn('address', text, (c) => c.notNull())
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addColumn('refreshed_at', 'bigint', (c) => c.notNull())
    .addColumn('expires_at', 'bigint', (c) => c.notNull())
    .execute();
  await db.schema
    .createIndex('api_sessions_expires')
    .on('api_sessions')
    .column('expires_at')
    .execute();
  await db.schema
    .createIndex('api_sessions_user')
    .on('api_sessions')
    .columns(['user_id', 'created_at', 'id'])
    .execute();
}

async function createApiTokens(db: Kysely<unknown>, { text }: Capabilities): Promise<void> {
  await db.schema
    .createTable('api_tokens')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('user_id', text, (c) => c.notNull().references('users.id').onDelete('cascade'))
    .addColumn('name', text, (c) => c.notNull())
    .addColumn('hash', text, (c) => c.notNull())
    .addColumn('role', text, (c) => c.notNull())
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addColumn('expires_at', 'bigint', (c) => c.notNull())
    .addColumn('last_used_at', 'bigint')
    .addUniqueConstraint('api_tokens_hash_unique', ['hash'])
    .execute();
  await db.schema.createIndex('api_tokens_expires').on('api_tokens').column('expires_at').execute();
  await db.schema
    .createIndex('api_tokens_user')
    .on('api_tokens')
    .columns(['user_id', 'created_at', 'id'])
    .execute();
}

async function createAuditLog(
  db: Kysely<unknown>,
  { autoNumber, text }: Capabilities,
): Promise<void> {
  await db.schema
    .createTable('audit_log')
    .addColumn('id', autoNumber.type, autoNumber.with)
    .addColumn('at', 'bigint', (c) => c.notNull())
    .addColumn('email', text)
    .addColumn('via', text, (c) => c.notNull())
    .addColumn('action', text, (c) => c.notNull())
    .addColumn('target', text)
    .addColumn('address', text, (c) => c.notNull())
    .addColumn('outcome', text, (c) => c.notNull())
    .addColumn('status', 'integer', (c) => c.notNull())
    .addColumn('code', text)
    .addColumn('request_id', text, (c) => c.notNull())
    .execute();
  await db.schema.createIndex('audit_log_at').on('audit_log').columns(['at', 'id']).execute();
  await db.schema
    .createIndex('audit_log_email')
    .on('audit_log')
    .columns(['email', 'at', 'id'])
    .execute();
  await db.schema
    .createIndex('audit_log_action')
    .on('audit_log')
    .columns(['action', 'at', 'id'])
    .execute();
  await db.schema
    .createIndex('audit_log_outcome')
    .on('audit_log')
    .columns(['outcome', 'at', 'id'])
    .execute();
}
