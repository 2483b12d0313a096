import { AUDIT_OUTCOMES } from '@berth/wire/audit';
import type { AuditStore } from '../../domain/identity/identity-stores.ts';
import type { Database } from '../engine/database.ts';
import { keyAfter, paged } from '../pages.ts';

export const createAuditStore = (db: Database): AuditStore => ({
  async append(entry) {
    await db.writeOne((kysely) => kysely.insertInto('audit_log').values(entry).execute());
  },

  async list({ email, action, target, outcome, since, until }, page) {
    const after = keyAfter(page.cursor, ['number', 'number']);
    let query = db.kysely.selectFrom('audit_log').selectAll();
    if (email !== undefined) query = query.where('email', '=', email.toLowerCase());
    if (action !== undefined) query = query.where('action', '=', action);
    if (target !== undefined) query = query.where('target', '=', target);
    if (outcome !== undefined) query = query.where('outcome', '=', outcome);
    if (since !== undefined) query = query.where('at', '>=', since);
    if (until !== undefined) query = query.where('at', '<', until);
    if (after !== null)
      query = query.where((eb) => eb(eb.refTuple('at', 'id'), '<', eb.tuple(after[0], after[1])));
    const rows = await query
      .orderBy('at', 'desc')
      .orderBy('id', 'desc')
      .limit(page.limit + 1)
      .execute();
    return paged(
      rows,
      page,
      (row) => [row.at, row.id],
      (row) => row,
    );
  },

  async sweep(before, rows) {
    const old = await db.writeOne((kysely) =>
      kysely.deleteFrom('audit_log').where('at', '<', before).executeTakeFirstOrThrow(),
    );
    let gone = Number(old.numDeletedRows);
    // Each outcome has its own limit, so that thousands of refusals do not push out the lines about
    // completed actions.
    for (const outcome of AUDIT_OUTCOMES) {
      const first = await db.kysely
        .selectFrom('audit_log')
        .select('at')
        .where('outcome', '=', outcome)
        .orderBy('at', 'desc')
        .orderBy('id', 'desc')
        .limit(1)
        .offset(rows[outcome])
        .executeTakeFirst();
      if (first === undefined) continue;
      const surplus = await db.writeOne((kysely) =>
        kysely
          .deleteFrom('audit_log')
          .where('outcome', '=', outcome)
          .where('at', '<=', first.at)
          .executeTakeFirstOrThrow(),
      );
      gone += Number(surplus.numDeletedRows);
    }
    return gone;
  },
});
