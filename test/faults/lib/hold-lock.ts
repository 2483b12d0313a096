/** Another program that keeps the write lock of a SQLite file (argv[2]) until it is killed; says so when it has it. */
import { DatabaseSync } from 'node:sqlite';

const database = new DatabaseSync(process.argv[2] ?? '', { timeout: 10_000 });
database.exec('begin exclusive');
process.stdout.write('locked\n');
setInterval(() => undefined, 60_000);
