import type { MetaStore } from '../domain/platform/meta-store.ts';
import type { Database } from './engine/database.ts';
import type { Db } from './engine/tables.ts';

export function createMetaStore(db: Database): MetaStore {
  const valueOf = async (kysely: Db, key: string): Promise<string | null> =>
    (await kysely.selectFrom('meta').select('value').where('key', '=', key).executeTakeFirst())
      ?.value ?? null;
  return {
    get: (key) => valueOf(db.kysely, key),

    async setOnce(key, value) {
      const existing = await valueOf(db.kysely, key);
      if (existing !== null) return existing;
      return db.write(async (tx) => {
        await tx
          .insertInto('meta')
          .values({ key, value })
          .onConflict((oc) => oc.column('key').doNothing())
          .execute();
        return (await valueOf(tx, key)) ?? value;
      });
    },

    async set(key, value) {
      await db.writeOne((kysely) =>
        kysely
          .insertInto('meta')
          .values({ key, value })
          .onConflict((oc) => oc.column('key').doUpdateSet({ value }))
          .execute(),
      );
    },

    startingWith: (prefix) =>
      db.kysely
        .selectFrom('meta')
        .select(['key', 'value'])
        .where('key', '>=', prefix)
        .where('key', '<', `${prefix}\uffff`)
        .orderBy('key')
        .execute(),

    async remove(key) {
      const value = await valueOf(db.kysely, key);
      if (value === null) return;
      await db.write(async (tx) => {
        await tx
          .updateTable('meta')
          .set({ value: '0'.repeat(value.length) })
          .where('key', '=', key)
          .execute();
        await tx.deleteFrom('meta').where('key', '=', key).execute();
      });
    },
  };
}
