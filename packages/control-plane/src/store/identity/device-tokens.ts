import type { DeviceScope, Identity } from '@berth/wire/gateway';
import type { Asker, DeviceTokenRecord } from '../../domain/identity/identity-records.ts';
import type { DeviceTokenStore, NewDeviceToken } from '../../domain/identity/identity-stores.ts';
import type { Database } from '../engine/database.ts';
import type { Tx } from '../engine/tables.ts';
import { newestFirst } from '../pages.ts';
import { removeExpired } from '../sweep.ts';
import { deleteToken } from './tokens.ts';
import type { Row } from '../engine/tables.ts';

/** Maximum number of tokens of one person. Each token is a line in the policy of every gateway. */
export const MAX_DEVICE_TOKENS = 100;

const tokenOf = ({
  hash: _h,
  email: _e,
  identity,
  scope,
  ...row
}: Row<'device_tokens'>): DeviceTokenRecord => ({
  ...row,
  identity: JSON.parse(identity) as Identity,
  scope: scope ?? 'projects',
});

export const createDeviceTokenStore = (db: Database): DeviceTokenStore => ({
  async find(hash, now) {
    const row = await db.kysely
      .selectFrom('device_tokens')
      .selectAll('device_tokens')
      .where('hash', '=', hash)
      .where('expires_at', '>', now)
      .where(({ not, exists, selectFrom }) =>
        not(
          exists(
            selectFrom('users')
              .select('users.id')
              .whereRef('users.email', '=', 'device_tokens.email')
              .where('disabled', '=', 1),
          ),
        ),
      )
      .executeTakeFirst();
    return row === undefined ? null : tokenOf(row);
  },

  async isValid(id, now) {
    const row = await db.kysely
      .selectFrom('device_tokens')
      .select('id')
      .where('id', '=', id)
      .where('expires_at', '>', now)
      .executeTakeFirst();
    return row !== undefined;
  },

  list({ email }, now, page) {
    const all = db.kysely.selectFrom('device_tokens').selectAll().where('expires_at', '>', now);
    return newestFirst(
      email === undefined ? all : all.where('email', '=', email.toLowerCase()),
      page,
      tokenOf,
    );
  },

  revoke: (id, email) => deleteToken(db, 'device_tokens', id, email?.toLowerCase() ?? null),

  async used(items) {
    if (items.length === 0) return;
    await db.write(async (tx) => {
      // Sorted, so that two gateways that report the same tokens cannot deadlock.
      for (const { id, at } of items.toSorted((a, b) => (a.id < b.id ? -1 : 1)))
        await tx
          .updateTable('device_tokens')
          .set({ last_used_at: at })
          .where('id', '=', id)
          .where((eb) => eb.or([eb('last_used_at', 'is', null), eb('last_used_at', '<', at)]))
          .execute();
    });
  },

  sweep: (now) => removeExpired(db, 'device_tokens', now),
});

export async function insertDeviceToken(
  tx: Tx,
  token: NewDeviceToken & Asker & { identity: Identity; scope: DeviceScope },
  now: number,
): Promise<void> {
  const { id, hash, expires_at, identity, address, user_agent, scope } = token;
  await tx
    .insertInto('device_tokens')
    .values({
      id,
      hash,
      email: identity.email.toLowerCase(),
      identity: JSON.stringify(identity),
      address,
      user_agent,
      scope,
      created_at: now,
      expires_at,
      last_used_at: null,
    })
    .execute();
}
