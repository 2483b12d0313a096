import { DomainError, invalid } from '../domain/errors.ts';
import type { UserRecord } from '../domain/records.ts';
import type { UserStore } from '../domain/stores.ts';
import type { Database } from './database.ts';
import { newId } from './ids.ts';
import type { Row } from './tables.ts';

const userOf = (row: Row<'users'>): UserRecord => ({ ...row, disabled: row.disabled !== 0 });

export function createUserStore(db: Database): UserStore {
  return {
    async findByEmail(email) {
      const row = await db.kysely.selectFrom('users').selectAll().where('email', '=', email.toLowerCase()).executeTakeFirst();
      return row === undefined ? null : userOf(row);
    },

    async get(id) {
      const row = await db.kysely.selectFrom('users').selectAll().where('id', '=', id).executeTakeFirst();
      if (row === undefined) throw new DomainError('not_found', 'There is no such user');
      return userOf(row);
    },

    async count() {
      const row = await db.kysely
        .selectFrom('users')
        .select((eb) => eb.fn.countAll<number>().as('users'))
        .executeTakeFirstOrThrow();
      return row.users;
    },

    async create(input, now) {
      const row = { id: newId(), ...input, email: input.email.toLowerCase(), disabled: 0, last_login_at: null, created_at: now };
      try {
        return userOf(await db.writeOne((kysely) => kysely.insertInto('users').values(row).returningAll().executeTakeFirstOrThrow()));
      } catch (error) {
        if (db.capabilities.violatesUnique(error, 'users', 'email')) throw invalid('email', 'unique', 'somebody has this address already');
        throw error;
      }
    },

    async setLastLogin(id, now) {
      await db.writeOne((kysely) => kysely.updateTable('users').set({ last_login_at: now }).where('id', '=', id).execute());
    },
  };
}
