// The release command: brings the tables to the form that this version needs. Berth runs it once for
// each new version, before the version starts. A rollback does not undo it, so each step only adds.
import { openDatabase } from './database.js';

const STEPS = [
  `CREATE TABLE orders (
     id INTEGER PRIMARY KEY, item TEXT NOT NULL, amount INTEGER NOT NULL,
     status TEXT NOT NULL DEFAULT 'waiting', price INTEGER)`,
  `CREATE TABLE reports (id INTEGER PRIMARY KEY, at TEXT NOT NULL, orders INTEGER NOT NULL, sum INTEGER NOT NULL)`,
];

const db = openDatabase();
const { user_version: before } = db.prepare('PRAGMA user_version').get();
for (const [i, step] of STEPS.entries()) {
  if (i < before) continue;
  db.exec(`BEGIN; ${step}; PRAGMA user_version = ${i + 1}; COMMIT`);
  console.log(`step ${i + 1} of ${STEPS.length} done`);
}
console.log(before === STEPS.length ? 'nothing to migrate' : 'the database is ready');
