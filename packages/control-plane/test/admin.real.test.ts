/**
 * `bin/berth admin recover` as an operator runs it: beside a running control plane and without one,
 * on both database engines.
 */
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { silentLogger } from '@berth/kit/log';
import { programsRoot } from '@berth/testbed/config';
import { run } from '@berth/testbed/process';
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import { openStores } from '../src/store/open.ts';
import { type Api, createApi, PASSWORD } from './api/harness.ts';

const reason = whyNoPostgres();
const server = reason === undefined ? await startPostgres() : undefined;
afterAll(() => server?.stop());
let databases = 0;

function folder(): string {
  const dir = mkdtempSync(join(tmpdir(), 'berth-admin-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

async function berth(args: string[], databaseUrl: string, input?: string) {
  const stdin = input === undefined ? {} : { input: Readable.from([input]) };
  const argv = [process.execPath, join(programsRoot(), 'bin', 'berth'), 'admin', ...args] as const;
  return run(argv, { env: { DATABASE_URL: databaseUrl }, mayFail: true, ...stdin });
}

const generated = (stdout: string): string =>
  /^password: (\S{24})$/m.exec(stdout)?.[1] ?? `no password in: ${stdout}`;

async function signIn(api: Api, email: string, password: string): Promise<number> {
  return (await api.call('login', { body: { email, password }, as: null })).status;
}

const ENGINES: [string, () => string | Promise<string>][] = [
  ['SQLite', () => `sqlite:${join(folder(), 'berth.db')}`],
  ...(server === undefined
    ? []
    : ([['PostgreSQL', () => server.createDatabase(`recover${databases++}`)]] as [
        string,
        () => Promise<string>,
      ][])),
];

describe.each(ENGINES)('on %s', (_, url) => {
  test('a locked-out admin gets a new password while the control plane runs; sessions end, tokens only if asked', async () => {
    const databaseUrl = await url();
    const api = await createApi({ databaseUrl });
    onTestFinished(() => api.close());
    const admin = await api.stores.users.findByEmail('admin@example.com');
    // The identity provider's group changed: no account is an admin any more.
    await api.stores.users.create(
      { email: 'other@example.com', role: 'admin', password_hash: null },
      Date.now(),
    );
    await api.stores.users.patch(admin?.id ?? '', { role: 'viewer', disabled: true });
    await api.stores.users.patch(admin?.id ?? '', { disabled: false });
    await api.signIn('admin');
    expect((await api.call('me', { as: 'admin' })).status).toBe(200);
    const token = (
      await api.call('createToken', {
        body: {
          name: 'ci',
          role: 'viewer',
          expires_at: new Date(Date.now() + 86_400_000).toISOString(),
        },
        as: 'admin',
      })
    ).json;
    expect(token).toHaveProperty('token');

    const done = await berth(['recover', 'Admin@example.com'], databaseUrl);
    expect([done.code, done.stderr]).toEqual([0, '']);
    expect(done.stdout).toMatch(
      /^recovered admin admin@example\.com; ended sessions: \d+, ended tokens: 0$/m,
    );
    expect(await signIn(api, 'admin@example.com', PASSWORD)).toBe(401);
    const password = generated(done.stdout);
    const reply = await api.call('login', {
      body: { email: 'admin@example.com', password },
      as: null,
    });
    expect(reply.status).toBe(200);
    const authorization = `Bearer ${String(reply.json['token'])}`;
    const users = await api.call('listUsers', { as: null, headers: { authorization } });
    expect(
      (users.json['items'] as { email: string }[]).find((u) => u.email === 'admin@example.com'),
    ).toMatchObject({
      role: 'admin',
      disabled: false,
    });
    const log = (
      await api.call('audit', {
        as: null,
        headers: { authorization },
        query: { action: 'recoverAdmin' },
      })
    ).json['items'];
    expect(log).toMatchObject([
      {
        user: null,
        via: 'host',
        target: 'admin@example.com',
        outcome: 'done',
        address: expect.stringContaining('@'),
      },
    ]);
    expect(JSON.stringify(log)).not.toContain(password);
    const feed = (await api.call('events', { as: null, headers: { authorization } })).json[
      'items'
    ] as { kind: string }[];
    expect(feed.at(-1)).toMatchObject({
      kind: 'user.changed',
      message: 'user admin@example.com changed',
    });
    const bearer = { authorization: `Bearer ${String(token['token'])}` };
    expect((await api.call('me', { as: null, headers: bearer })).status).toBe(200);

    expect(
      (await berth(['recover', 'admin@example.com', '--end-tokens'], databaseUrl)).stdout,
    ).toContain('ended tokens: 1');
    // The control plane remembers a caller for 2 s.
    api.pass(3_000);
    await expect
      .poll(async () => (await api.call('me', { as: null, headers: bearer })).status, {
        timeout: 10_000,
      })
      .toBe(401);
  });

  test('an account is created with a password from standard input while the control plane does not run', async () => {
    const databaseUrl = await url();
    await (await openStores({ databaseUrl, log: silentLogger() })).close();
    const done = await berth(
      ['recover', 'new@example.com', '--password-stdin'],
      databaseUrl,
      'a password of mine\n',
    );
    expect([done.code, done.stdout]).toEqual([
      0,
      'created admin new@example.com; ended sessions: 0, ended tokens: 0\n',
    ]);
    const api = await createApi({ databaseUrl });
    onTestFinished(() => api.close());
    expect(await signIn(api, 'new@example.com', 'a password of mine')).toBe(200);
    expect(await signIn(api, 'new@example.com', 'a password of mine\n')).toBe(401);
  });
});

test.each([
  [['recover'], 'recover needs exactly one e-mail address'],
  [['recover', 'a@example.com', 'b@example.com'], 'recover needs exactly one e-mail address'],
  [['recover', 'nobody'], '“nobody” is not an e-mail address'],
  [['recover', 'a@example.com', '--force'], "Unknown option '--force'"],
  [['promote', 'a@example.com'], 'unknown command “promote”'],
  [[], 'a command is missing'],
])('%j is wrong usage: exit code 2, and nothing is opened', async (args, says) => {
  const dir = folder();
  const done = await berth(args, `sqlite:${join(dir, 'berth.db')}`);
  expect([done.code, done.stdout]).toEqual([2, '']);
  expect(done.stderr).toContain(says);
  expect(readdirSync(dir)).toEqual([]);
});

test('a short password, and an address without a database, are refused in one line', async () => {
  const dir = folder();
  const databaseUrl = `sqlite:${join(dir, 'berth.db')}`;
  expect(
    await berth(['recover', 'a@example.com', '--password-stdin'], databaseUrl, 'short'),
  ).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('10 to 1024 characters'),
  });
  const none = await berth(['recover', 'a@example.com'], databaseUrl);
  expect([none.code, none.stdout]).toEqual([1, '']);
  expect(none.stderr).toMatch(/^berth admin: the database \S+berth\.db cannot be opened: .*\n$/);
  expect(existsSync(join(dir, 'berth.db'))).toBe(false);
});

test.skipIf(process.getuid?.() !== 0)(
  'run as root, it leaves no file that the account of the control plane cannot open',
  async () => {
    const dir = folder();
    const path = join(dir, 'berth.db');
    await (await openStores({ databaseUrl: `sqlite:${path}`, log: silentLogger() })).close();
    const names = readdirSync(dir);
    for (const name of names) chownSync(join(dir, name), 65_534, 65_534);
    expect((await berth(['recover', 'a@example.com'], `sqlite:${path}`)).code).toBe(0);
    expect(readdirSync(dir)).toEqual(names);
    expect(statSync(path).uid).toBe(65_534);
  },
);
