/**
 * Bytes of a log line's row and index entry, without its text. Measured: 115 on SQLite, 180 on
 * PostgreSQL.
 */
const LINE_BYTES = 180;

/** Returns the size of the stored lines of a log, in bytes. */
export const linesSize = (head: { bytes: number; last_seq: number; left_out: number }): number =>
  head.bytes + (head.last_seq - head.left_out) * LINE_BYTES;
