/**
 * Restores an admin account for an operator on the control plane's machine (admin.ts). A running
 * control plane notices the change within seconds.
 */
import type { AuditRecord } from '../../domain/identity/identity-records.ts';
import { raiseAccessVersion } from './access-version.ts';
import type { Database } from '../engine/database.ts';
import { writeEvents } from '../events.ts';
import type { NewId } from '../ids.ts';
import { ADMINS, endDevices, userEvent } from './users.ts';

export type Recovery = {
  /** In lower case. */
  email: string;
  passwordHash: string;
  /** Whether to delete the API tokens and device tokens of this person too. */
  endTokens: boolean;
  audit: Pick<AuditRecord, 'address' | 'request_id'>;
};

/** `sessions` and `tokens`: number of ended sessions and tokens. */
export type Recovered = { created: boolean; sessions: number; tokens: number };

/**
 * Creates the account, or makes it an enabled admin with this password. Like every change of a
 * password, this ends the account's API sessions.
 */
export const createRecovery =
  (db: Database, newId: NewId) =>
  ({ email, passwordHash, endTokens, audit }: Recovery, now: number): Promise<Recovered> =>
    db.write(async (tx) => {
      await db.capabilities.lockName(tx, ADMINS);
      const before = await tx
        .selectFrom('users')
        .selectAll()
        .where('email', '=', email)
        .executeTakeFirst();
      const set = { role: 'admin', disabled: 0, password_hash: passwordHash } as const;
      const user =
        before === undefined
          ? await tx
              .insertInto('users')
              .values({ id: newId(), email, ...set, last_login_at: null, created_at: now })
              .returningAll()
              .executeTakeFirstOrThrow()
          : await tx
              .updateTable('users')
              .set(set)
              .where('id', '=', before.id)
              .returningAll()
              .executeTakeFirstOrThrow();
      const ended = await tx
        .deleteFrom('api_sessions')
        .where('user_id', '=', user.id)
        .returning('id')
        .execute();
      let tokens = 0;
      if (endTokens) {
        tokens += (
          await tx.deleteFrom('api_tokens').where('user_id', '=', user.id).returning('id').execute()
        ).length;
        tokens += await endDevices(tx, email);
      }
      await raiseAccessVersion(tx);
      await tx
        .insertInto('audit_log')
        .values({
          at: now,
          email: null,
          via: 'host',
          action: 'recoverAdmin',
          target: email,
          ...audit,
          outcome: 'done',
          status: 200,
          code: null,
        })
        .execute();
      await writeEvents(db, tx, [
        userEvent(user, before === undefined ? 'created' : 'changed', now),
      ]);
      return { created: before === undefined, sessions: ended.length, tokens };
    });
