/** Reads the control plane's database file. */
import { DatabaseSync } from 'node:sqlite';

export type Query = (sql: string) => Record<string, string | number | null>[];

/** Opens the file for each query, because the process that owns it is killed and restarted. */
export const createQuery =
  (path: string): Query =>
  (sql) => {
    const database = new DatabaseSync(path, { readOnly: true });
    try {
      return database.prepare(sql).all() as ReturnType<Query>;
    } finally {
      database.close();
    }
  };
