// The SQLite file on the volume. WAL lets the web server read while the worker writes.
import { DatabaseSync } from 'node:sqlite';

export function openDatabase() {
  const db = new DatabaseSync(process.env.DATABASE ?? '/data/app.db');
  db.exec('PRAGMA journal_mode = WAL; PRAGMA busy_timeout = 5000');
  return db;
}
