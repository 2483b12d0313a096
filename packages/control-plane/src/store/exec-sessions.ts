/** Table `exec_sessions`: tickets, and the sessions that wait for their agent. */
import type { ExecRecord, ExecSessionStore } from '../domain/exec/exec-sessions.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { Database } from './engine/database.ts';
import type { Row } from './engine/tables.ts';

/** Maximum number of rows. A row lives for seconds. */
const MOST = 500;
/** Time in ms after which a row is removed, whatever happened to its session. */
const KEPT_MS = 60_000;

const recordOf = (row: Row<'exec_sessions'>): ExecRecord => ({
  ...row,
  agent_order: JSON.parse(row.agent_order) as ExecRecord['agent_order'],
  credential: JSON.parse(row.credential) as ExecRecord['credential'],
  place: JSON.parse(row.place) as ExecRecord['place'],
});

export const createExecSessionStore = (db: Database): ExecSessionStore => ({
  async create(record, uptime) {
    await db.writeUnsynced(async (tx) => {
      await tx
        .deleteFrom('exec_sessions')
        .where('expires_at', '<=', uptime - KEPT_MS)
        .execute();
      const { count } = await tx
        .selectFrom('exec_sessions')
        .select((eb) => eb.fn.countAll().as('count'))
        .executeTakeFirstOrThrow();
      if (Number(count) >= MOST)
        throw new DomainError('too_many_requests', 'too many exec sessions are being opened');
      await tx
        .insertInto('exec_sessions')
        .values({
          ...record,
          agent_order: JSON.stringify(record.agent_order),
          credential: JSON.stringify(record.credential),
          place: JSON.stringify(record.place),
        })
        .execute();
    });
  },
  async get(id) {
    const row = await db.kysely
      .selectFrom('exec_sessions')
      .selectAll()
      .where('id', '=', id)
      .executeTakeFirst();
    return row === undefined ? null : recordOf(row);
  },
  async use(id, uptime) {
    const used = await db.writeUnsynced((tx) =>
      tx
        .updateTable('exec_sessions')
        .set({ used_at: uptime })
        .where('id', '=', id)
        .where('used_at', 'is', null)
        .where('expires_at', '>', uptime)
        .executeTakeFirst(),
    );
    return used.numUpdatedRows > 0n;
  },
  waiting: (since) =>
    db.kysely
      .selectFrom('exec_sessions')
      .select(['id', 'node_id'])
      .where('used_at', '>', since)
      .orderBy('id')
      .execute(),
  async remove(id) {
    await db.writeUnsynced((tx) => tx.deleteFrom('exec_sessions').where('id', '=', id).execute());
  },
});
