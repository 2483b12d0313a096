/** Runs the tests of concurrent writes again with a real PostgreSQL. */
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { afterAll, describe } from 'vitest';
import { emptiedDatabases } from '../store/emptied-databases.ts';
import { useDatabases } from './harness.ts';

const reason = whyNoPostgres();
const server = reason === undefined ? await startPostgres() : undefined;
afterAll(() => server?.stop());

describe.skipIf(server === undefined)(`on PostgreSQL${reason === undefined ? '' : ` (skipped: ${reason})`}`, async () => {
  if (server === undefined) return;
  useDatabases(await emptiedDatabases(server));
  await import('./conditional.test.ts');
  await import('./env.test.ts');
  await import('./git-access.test.ts');
  await import('./events.test.ts');
  await import('./hooks.test.ts');
  await import('./idempotency.test.ts');
  await import('../loops/commit-statuses.test.ts');
  await import('./names.test.ts');
  await import('./secrets.test.ts');
  await import('./node-secrets.test.ts');
  await import('./join-tokens.test.ts');
  await import('./repository-looks.test.ts');
});
