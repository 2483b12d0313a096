/**
 * Keyset pagination: the cursor is the sort key of the last row of a page, so added or deleted rows
 * never cause another row to be repeated or skipped. The cursor is opaque to callers (base64url of
 * a JSON array).
 */
import { type SelectQueryBuilder, sql } from 'kysely';
import { invalid } from '../domain/platform/errors.ts';
import type { Page, Paged } from '../domain/platform/page.ts';
import type { Tables } from './engine/tables.ts';

type Key = readonly (string | number)[];

/**
 * Decodes a cursor. `shape`: the types of the key's parts. Throws validation for the field
 * `cursor`.
 */
export function keyAfter<const S extends readonly ('string' | 'number')[]>(
  cursor: string | null,
  shape: S,
): { -readonly [I in keyof S]: S[I] extends 'number' ? number : string } | null {
  if (cursor === null) return null;
  const key = parse(cursor);
  if (
    !Array.isArray(key) ||
    key.length !== shape.length ||
    key.some((part, i) => typeof part !== shape[i] || !isSortKey(part))
  ) {
    throw invalid('cursor', 'format', 'must be the next_cursor of an earlier page');
  }
  return key as { -readonly [I in keyof S]: S[I] extends 'number' ? number : string };
}

/**
 * Returns whether a column can hold this value. For other values, PostgreSQL returns an error
 * instead of an empty page.
 */
const isSortKey = (part: unknown): boolean =>
  typeof part === 'number'
    ? Number.isSafeInteger(part)
    : typeof part === 'string' && part.isWellFormed() && !part.includes('\0');

function parse(cursor: string): unknown {
  try {
    return JSON.parse(Buffer.from(cursor, 'base64url').toString());
  } catch {
    return null;
  }
}

/** Returns a page. `rows` must have one row more than the page if there is a next page. */
export function paged<R, T>(
  rows: readonly R[],
  page: Page,
  keyOf: (row: R) => Key,
  recordOf: (row: R) => T,
): Paged<T> {
  const items = rows.slice(0, page.limit);
  const last = items.at(-1);
  const next =
    rows.length > items.length && last !== undefined
      ? Buffer.from(JSON.stringify(keyOf(last))).toString('base64url')
      : null;
  return { items: items.map(recordOf), next };
}

/**
 * Returns a page of the query's rows, newest first. `query`: on one table with the columns
 * `created_at` and `id`.
 */
export async function newestFirst<
  TB extends keyof Tables,
  R extends { created_at: number; id: string },
  T,
>(
  query: SelectQueryBuilder<Tables, TB, R>,
  page: Page,
  recordOf: (row: R) => T,
): Promise<Paged<T>> {
  const after = keyAfter(page.cursor, ['number', 'string']);
  const rows = await (after === null
    ? query
    : query.where(sql<boolean>`(created_at, id) < (${after[0]}, ${after[1]})`)
  )
    .orderBy(sql`created_at`, 'desc')
    .orderBy(sql`id`, 'desc')
    .limit(page.limit + 1)
    .execute();
  return paged(rows, page, (row) => [row.created_at, row.id], recordOf);
}
