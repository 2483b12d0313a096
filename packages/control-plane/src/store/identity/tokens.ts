/** What API tokens, device tokens and join tokens have in common. */
import { sql } from 'kysely';
import { DomainError } from '../../domain/errors.ts';
import type { Database } from '../engine/database.ts';
import type { Tx } from '../engine/tables.ts';

/** The column that names who a token belongs to; null: to the platform. */
const KINDS = {
  api_tokens: { owner: 'user_id', called: 'token' },
  device_tokens: { owner: 'email', called: 'device token' },
  join_tokens: { owner: null, called: 'join token' },
} as const;
type Kind = keyof typeof KINDS;

/** Whether the token belongs to this owner; null: anybody's. */
function ownedBy(kind: Kind, owner: string | null) {
  const { owner: column } = KINDS[kind];
  return owner === null || column === null ? sql<boolean>`1 = 1` : sql<boolean>`${sql.ref(column)} = ${owner}`;
}

/** Counts the tokens of this owner that have not expired. */
export async function countTokens(tx: Tx, kind: Kind, now: number, owner: string | null): Promise<number> {
  const { tokens } = await tx
    .selectFrom(kind)
    .select((eb) => eb.fn.countAll<number>().as('tokens'))
    .where('expires_at', '>', now)
    .where(ownedBy(kind, owner))
    .executeTakeFirstOrThrow();
  return tokens;
}

/** Throws not_found, also for the token of another owner. */
export async function deleteToken(db: Database, kind: Kind, id: string, owner: string | null): Promise<void> {
  const gone = await db.writeOne((kysely) =>
    kysely.deleteFrom(kind).where('id', '=', id).where(ownedBy(kind, owner)).returning('id').executeTakeFirst(),
  );
  if (gone === undefined) throw new DomainError('not_found', `no ${KINDS[kind].called} has the id ${id}`);
}
