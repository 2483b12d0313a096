/**
 * What differs between the engines, by name. The rest of store/ asks these and never which engine it is; a value is
 * portable where it can be: ids and JSON are text, times are integers (ms), booleans are 0 and 1.
 */
import type { ColumnDefinitionBuilder } from 'kysely';

export type Capabilities = {
  engine: 'sqlite' | 'postgres';
  /** Several control planes may use one database; without it the file is locked at open. */
  sharedByControlPlanes: boolean;
  /** A primary key that numbers its rows by itself, rising. */
  autoNumber: { type: 'integer' | 'bigserial'; with: (column: ColumnDefinitionBuilder) => ColumnDefinitionBuilder };
  /** Whether this error says that a row with the same value in that unique column is there. */
  violatesUnique: (error: unknown, table: string, column: string) => boolean;
  /** The transaction did nothing and may be run again: the lock was taken, a deadlock was broken, a snapshot was too old. */
  isTransient: (error: unknown) => boolean;
};

const codeOf = (error: unknown): string => (error instanceof Error && 'code' in error ? String(error.code) : '');

export const SQLITE: Capabilities = {
  engine: 'sqlite',
  sharedByControlPlanes: false,
  // AUTOINCREMENT: a number is never used twice, also not after the last row was deleted.
  autoNumber: { type: 'integer', with: (column) => column.primaryKey().autoIncrement() },
  violatesUnique: (error, table, column) =>
    codeOf(error).startsWith('SQLITE_CONSTRAINT') &&
    error instanceof Error &&
    error.message === `UNIQUE constraint failed: ${table}.${column}`,
  // Only BEGIN IMMEDIATE can meet a foreign lock; a transaction that has begun has it.
  isTransient: (error) => codeOf(error).startsWith('SQLITE_BUSY'),
};
