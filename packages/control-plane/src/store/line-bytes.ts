/**
 * Bytes of a log line's row and index entry, without its text. Measured: 115 on SQLite, 180 on
 * PostgreSQL.
 */
export const LINE_BYTES = 180;
