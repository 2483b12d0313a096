/**
 * `scan_full` and `accept_loss` of a dataset are bitmasks: each bit says for which scan the option
 * is requested. If a scan does not end, its bit applies to the next scan.
 */
import { type RawBuilder, sql } from 'kysely';

/** The running scan, or the next one if none is running. */
const CURRENT_SCAN = 0b01;
/** The scan after the current one: the option was requested while a scan was running. */
const FOLLOWING_SCAN = 0b10;

/** Returns the flags after a request. `scanning`: a scan is running. */
export const requestedFlag = (before: number, requested: boolean, scanning: boolean): number => {
  if (!requested) return before;
  return before | (scanning ? FOLLOWING_SCAN : CURRENT_SCAN);
};

/** Returns the flags after a claim: all requests up to now apply to the scan that begins. */
export const claimedFlag = (column: 'scan_full' | 'accept_loss'): RawBuilder<number> =>
  sql<number>`case when ${sql.ref(column)} = 0 then 0 else ${sql.lit(CURRENT_SCAN)} end`;

/** Returns the flags after the end of a scan: the following scan becomes the current one. */
export const remainingFlag = (before: number): number =>
  (before & FOLLOWING_SCAN) === 0 ? 0 : CURRENT_SCAN;
