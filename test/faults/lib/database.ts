/** What the control plane's database holds, read beside it. */
import { DatabaseSync } from 'node:sqlite';

export type Query = (sql: string) => Record<string, string | number | null>[];

/** Opened for each question: the process that owns the file dies and comes back. */
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
