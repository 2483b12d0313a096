/**
 * `scan_full` and `accept_loss` of a dataset: 1 for the scan that begins next or is under way, 2 for the one after it, 3 for both.
 * One that did not end leaves what it was to do to the next.
 */
import { type RawBuilder, sql } from 'kysely';

const THIS_ONE = 1;
const NEXT_ONE = 2;

/** `during`: while one is under way. */
export const askedFor = (before: number, asked: boolean, during: boolean): number => before | (asked ? (during ? NEXT_ONE : THIS_ONE) : 0);

/** Whatever was asked for before a scan begins is that scan's. */
export const takenUp = (column: 'scan_full' | 'accept_loss'): RawBuilder<number> =>
  sql<number>`case when ${sql.ref(column)} = 0 then 0 else ${sql.lit(THIS_ONE)} end`;

/** When one has ended. */
export const leftFor = (before: number): number => ((before & NEXT_ONE) === 0 ? 0 : THIS_ONE);
