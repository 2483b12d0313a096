/**
 * Runs the tests of concurrent writes, and of rights on projects, again with a real PostgreSQL.
 * `onceOnly` leaves some out.
 */
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { afterAll, describe } from 'vitest';
import { emptiedDatabases } from '../store/emptied-databases.ts';
import { useDatabases } from './harness.ts';

const reason = whyNoPostgres();
const server = reason === undefined ? await startPostgres() : undefined;
afterAll(() => server?.stop());

describe.skipIf(server === undefined)(
  `on PostgreSQL${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  async () => {
    if (server === undefined) return;
    useDatabases(await emptiedDatabases(server));
    // In a describe of their own: the hooks of one file must not run before each test of the
    // others.
    describe('conditional', async () => void (await import('./conditional.test.ts')));
    describe('env', async () => void (await import('./env.test.ts')));
    describe('git-access', async () => void (await import('./git-access.slow.test.ts')));
    describe('events', async () => void (await import('./events.test.ts')));
    describe('hooks', async () => void (await import('./hooks.slow.test.ts')));
    describe('idempotency', async () => void (await import('./idempotency.slow.test.ts')));
    describe('commit-statuses', async () =>
      void (await import('../loops/commit-statuses.slow.test.ts')));
    describe('jobs', async () => void (await import('./jobs.slow.test.ts')));
    describe('names', async () => void (await import('./names.test.ts')));
    describe('secrets', async () => void (await import('./secrets.test.ts')));
    describe('node-secrets', async () => void (await import('./node-secrets.slow.test.ts')));
    describe('join-tokens', async () => void (await import('./join-tokens.slow.test.ts')));
    describe('rights', async () => void (await import('./rights.slow.test.ts')));
    describe('repository-looks', async () =>
      void (await import('./repository-looks.slow.test.ts')));
  },
);
