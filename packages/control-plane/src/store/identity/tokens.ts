/**
 * Counts and deletes API tokens, device tokens and join tokens. The three tables have different
 * owner columns and names for messages.
 */
import { sql } from 'kysely';
import { DomainError } from '../../domain/platform/errors.ts';
import type { Database } from '../engine/database.ts';
import type { Tx } from '../engine/tables.ts';

/**
 * `owner`: the column with the owner (null if the token belongs to the platform). `label`: name of
 * the token in error messages.
 */
const KINDS = {
  api_tokens: { owner: 'user_id', label: 'token' },
  device_tokens: { owner: 'email', label: 'device token' },
  join_tokens: { owner: null, label: 'join token' },
} as const;
type Kind = keyof typeof KINDS;

/**
 * Returns the condition that the token belongs to `owner`. If `owner` is null, it matches every
 * token.
 */
function ownedBy(kind: Kind, owner: string | null) {
  const { owner: column } = KINDS[kind];
  return owner === null || column === null
    ? sql<boolean>`1 = 1`
    : sql<boolean>`${sql.ref(column)} = ${owner}`;
}

/** Returns the number of the owner's tokens that have not expired. */
export async function countTokens(
  tx: Tx,
  kind: Kind,
  now: number,
  owner: string | null,
): Promise<number> {
  const { tokens } = await tx
    .selectFrom(kind)
    .select((eb) => eb.fn.countAll<number>().as('tokens'))
    .where('expires_at', '>', now)
    .where(ownedBy(kind, owner))
    .executeTakeFirstOrThrow();
  return tokens;
}

/** Deletes the token. Throws `not_found` if it does not exist or belongs to another owner. */
export async function deleteToken(
  db: Database,
  kind: Kind,
  id: string,
  owner: string | null,
): Promise<void> {
  const deleted = await db.writeOne((kysely) =>
    kysely
      .deleteFrom(kind)
      .where('id', '=', id)
      .where(ownedBy(kind, owner))
      .returning('id')
      .executeTakeFirst(),
  );
  if (deleted === undefined)
    throw new DomainError('not_found', `no ${KINDS[kind].label} has the id ${id}`);
}
