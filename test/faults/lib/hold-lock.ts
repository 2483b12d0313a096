/**
 * A separate program that holds the write lock of a SQLite file (argv[2]) until it is killed.
 * Prints `locked` when it has the lock.
 */
import { DatabaseSync } from 'node:sqlite';

const database = new DatabaseSync(process.argv[2] ?? '', { timeout: 10_000 });
database.exec('begin exclusive');
process.stdout.write('locked\n');
setInterval(() => undefined, 60_000);
