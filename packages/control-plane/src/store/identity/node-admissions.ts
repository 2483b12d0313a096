/**
 * Admissions of contract-only nodes that can use the shared secret while REQUIRE_NODE_SECRETS is
 * on.
 */
import type { AdmissionStore } from '../../domain/nodes/join-stores.ts';
import { DomainError } from '../../domain/platform/errors.ts';
import type { Database } from '../engine/database.ts';
import type { NewId } from '../ids.ts';

/** Maximum number of admissions, which admins enter one by one. */
const MAX_ADMISSIONS = 10_000;

export const createAdmissionStore = (db: Database, newId: NewId): AdmissionStore => ({
  create({ hostname, role }, now) {
    return db.write(async (tx) => {
      await db.capabilities.lockName(tx, 'node-admissions');
      const earlierAdmission = await tx
        .selectFrom('node_admissions')
        .selectAll()
        .where('hostname', '=', hostname)
        .where('role', '=', role)
        .executeTakeFirst();
      if (earlierAdmission !== undefined) return earlierAdmission;
      const { rows } = await tx
        .selectFrom('node_admissions')
        .select((eb) => eb.fn.countAll<number>().as('rows'))
        .executeTakeFirstOrThrow();
      if (rows >= MAX_ADMISSIONS)
        throw new DomainError(
          'wrong_state',
          `the limit of ${MAX_ADMISSIONS} admissions is reached; delete some first`,
        );
      const row = { id: newId(), hostname, role, address: null, created_at: now };
      return tx.insertInto('node_admissions').values(row).returningAll().executeTakeFirstOrThrow();
    });
  },

  list: () =>
    db.kysely
      .selectFrom('node_admissions')
      .selectAll()
      .orderBy('hostname')
      .orderBy('role')
      .execute(),

  async remove(id) {
    const gone = await db.writeOne((kysely) =>
      kysely.deleteFrom('node_admissions').where('id', '=', id).returning('id').executeTakeFirst(),
    );
    if (gone === undefined) throw new DomainError('not_found', 'the admission does not exist');
  },

  async has(hostname, role) {
    const row = await db.kysely
      .selectFrom('node_admissions')
      .select('id')
      .where('hostname', '=', hostname)
      .where('role', '=', role)
      .executeTakeFirst();
    return row !== undefined;
  },

  async hasAddress(address) {
    const row = await db.kysely
      .selectFrom('node_admissions')
      .select('id')
      .where('address', '=', address)
      .limit(1)
      .executeTakeFirst();
    return row !== undefined;
  },
});
