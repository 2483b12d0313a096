/** Runs the tests of concurrent writes again with a real PostgreSQL. */
import { silentLogger } from '@berth/kit/log';
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { afterAll, describe } from 'vitest';
import { openStores } from '../../src/store/open.ts';
import { useDatabases } from './harness.ts';

const reason = whyNoPostgres();
const server = reason === undefined ? await startPostgres() : undefined;
afterAll(() => server?.stop());

describe.skipIf(server === undefined)(`on PostgreSQL${reason === undefined ? '' : ` (skipped: ${reason})`}`, async () => {
  if (server === undefined) return;
  await (await openStores({ databaseUrl: await server.createDatabase('ready'), log: silentLogger() })).close();
  let made = 0;
  useDatabases(() => server.createDatabase(`t${made++}`, 'ready'));
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
});
