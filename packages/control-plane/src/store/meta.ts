import type { MetaStore } from '../domain/stores.ts';
import type { Database, Db } from './database.ts';

export function createMetaStore(db: Database): MetaStore {
  const valueOf = async (kysely: Db, key: string): Promise<string | null> =>
    (await kysely.selectFrom('meta').select('value').where('key', '=', key).executeTakeFirst())?.value ?? null;
  return {
    get: (key) => valueOf(db.kysely, key),

    async setOnce(key, value) {
      const known = await valueOf(db.kysely, key);
      if (known !== null) return known;
      return db.write(async (tx) => {
        await tx
          .insertInto('meta')
          .values({ key, value })
          .onConflict((oc) => oc.column('key').doNothing())
          .execute();
        return (await valueOf(tx, key)) ?? value;
      });
    },
  };
}
