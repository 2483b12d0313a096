import type { DeviceScope, Identity } from '@berth/wire/gateway';
import { DomainError } from '../../domain/errors.ts';
import type { Asker, DeviceTokenRecord } from '../../domain/identity-records.ts';
import type { DeviceTokenStore, NewDeviceToken } from '../../domain/identity-stores.ts';
import type { Database } from '../engine/database.ts';
import type { Tx } from '../engine/tables.ts';
import { keyAfter, paged } from '../pages.ts';
import { removeEnded } from '../sweep.ts';
import type { Row } from '../engine/tables.ts';

/** Tokens of one person. Each is a line in the policy of every gateway. */
export const MAX_DEVICE_TOKENS = 100;

const tokenOf = ({ hash: _h, email: _e, identity, scope, ...row }: Row<'device_tokens'>): DeviceTokenRecord => ({
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
        not(exists(selectFrom('users').select('users.id').whereRef('users.email', '=', 'device_tokens.email').where('disabled', '=', 1))),
      )
      .executeTakeFirst();
    return row === undefined ? null : tokenOf(row);
  },

  async stands(id, now) {
    const row = await db.kysely
      .selectFrom('device_tokens')
      .select('id')
      .where('id', '=', id)
      .where('expires_at', '>', now)
      .executeTakeFirst();
    return row !== undefined;
  },

  async list({ email }, now, page) {
    const after = keyAfter(page.cursor, ['number', 'string']);
    let query = db.kysely.selectFrom('device_tokens').selectAll().where('expires_at', '>', now);
    if (email !== undefined) query = query.where('email', '=', email.toLowerCase());
    if (after !== null) query = query.where((eb) => eb(eb.refTuple('created_at', 'id'), '<', eb.tuple(after[0], after[1])));
    const rows = await query
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(page.limit + 1)
      .execute();
    return paged(rows, page, (row) => [row.created_at, row.id], tokenOf);
  },

  async revoke(id, email) {
    const gone = await db.writeOne((kysely) =>
      kysely
        .deleteFrom('device_tokens')
        .where('id', '=', id)
        .$if(email !== null, (q) => q.where('email', '=', (email ?? '').toLowerCase()))
        .returning('id')
        .executeTakeFirst(),
    );
    if (gone === undefined) throw new DomainError('not_found', `There is no device token with the id ${id}`);
  },

  async used(items) {
    if (items.length === 0) return;
    await db.write(async (tx) => {
      // Sorted, so that two gateways that report the same tokens do not deadlock.
      for (const { id, at } of items.toSorted((a, b) => (a.id < b.id ? -1 : 1)))
        await tx
          .updateTable('device_tokens')
          .set({ last_used_at: at })
          .where('id', '=', id)
          .where((eb) => eb.or([eb('last_used_at', 'is', null), eb('last_used_at', '<', at)]))
          .execute();
    });
  },

  sweep: (now) => removeEnded(db, 'device_tokens', now),
});

export async function countTokensOf(tx: Tx, email: string, now: number): Promise<number> {
  const { tokens } = await tx
    .selectFrom('device_tokens')
    .select((eb) => eb.fn.countAll<number>().as('tokens'))
    .where('email', '=', email)
    .where('expires_at', '>', now)
    .executeTakeFirstOrThrow();
  return tokens;
}

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
