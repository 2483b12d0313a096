/**
 * `berth export` and `import` move an installation from SQLite to PostgreSQL and back: the API
 * answers the same.
 */
import { createReadStream, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { programsRoot } from '@berth/testbed/config';
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { run } from '@berth/testbed/process';
import { afterAll, expect, test } from 'vitest';
import { openPlain } from '../../src/store/backup/plain.ts';
import { importLines } from '../../src/store/backup/transfer.ts';
import { openTransfer } from '../../src/store/open.ts';
import { controlPlane, everything, fill, folders } from './support.ts';

const reason = whyNoPostgres();
const server = reason === undefined ? await startPostgres() : undefined;
afterAll(() => server?.stop());

async function berth(args: string[], databaseUrl: string, input?: Readable) {
  const argv = [process.execPath, join(programsRoot(), 'bin', 'berth'), ...args] as const;
  return run(argv, {
    env: { PATH: process.env['PATH'] ?? '', DATABASE_URL: databaseUrl },
    mayFail: true,
    ...(input === undefined ? {} : { input }),
  });
}

/** Exports to a file and returns its path. */
async function exported(databaseUrl: string, file: string, args: string[] = []): Promise<string> {
  const done = await berth(['export', ...args], databaseUrl);
  expect([done.code, done.stderr]).toEqual([0, '']);
  writeFileSync(file, done.stdout);
  return file;
}

const imported = async (file: string, databaseUrl: string): Promise<void> => {
  const done = await berth(['import'], databaseUrl, createReadStream(file));
  expect([done.code, done.stderr, done.stdout]).toEqual([
    0,
    '',
    expect.stringMatching(/^imported projects: 2, deployments: 2, users: \d+\n$/),
  ]);
};

test.skipIf(server === undefined)(
  `SQLite to PostgreSQL and back: every GET of the API answers the same, and numbers go on (${reason ?? 'PostgreSQL'})`,
  { timeout: 300_000 },
  async () => {
    const { dir, databaseUrl } = folders();
    const api = await controlPlane(databaseUrl);
    const [project = ''] = await fill(api);
    const before = await everything(api);
    const first = await exported(databaseUrl, join(dir, 'first'), ['--logs']);
    await api.close();
    expect(readFileSync(first, 'utf8')).not.toMatch(/"table":"(api_sessions|device_codes)"/);

    const other = (await server?.createDatabase('moved')) ?? '';
    await imported(first, other);
    const moved = await controlPlane(other);
    expect(await everything(moved)).toEqual(before);
    const next = await moved.call('createDeployment', { params: { id: project }, as: 'admin' });
    expect(next.status).toBe(201);
    const changed = await everything(moved);
    const second = await exported(other, join(dir, 'second'), ['--logs']);
    await moved.close();

    const back = folders();
    await berth(['import'], back.databaseUrl, createReadStream(second));
    const again = await controlPlane(back.databaseUrl);
    expect(await everything(again)).toEqual(changed);
    await again.close();
    const third = await exported(back.databaseUrl, join(dir, 'third'), ['--logs']);
    const rowsOf = (file: string): string[] =>
      readFileSync(file, 'utf8')
        .split('\n')
        // Each start of a control plane writes sessions, its clock and its check.
        .filter(
          (line) =>
            line.startsWith('{"table"') &&
            !/^\{"table":"(meta|uptime|nodes|users|events|audit_log)"/.test(line),
        )
        .sort();
    expect(rowsOf(third)).toEqual(rowsOf(second));
  },
);

test('import refuses a database in use, a truncated export, a changed one and another version, and changes nothing', {
  timeout: 200_000,
}, async () => {
  const { dir, databaseUrl } = folders();
  const api = await controlPlane(databaseUrl);
  await fill(api);
  const file = await exported(databaseUrl, join(dir, 'export'));
  await api.close();
  expect(readFileSync(file, 'utf8')).not.toContain('"table":"log_');
  const used = await berth(['import'], databaseUrl, createReadStream(file));
  expect([used.code, used.stderr]).toEqual([
    1,
    expect.stringMatching(/^berth import: the database has \d+ rows of users: import works only/),
  ]);

  const lines = readFileSync(file, 'utf8').trim().split('\n');
  const place = folders();
  const wrong: [string, string][] = [
    [lines.slice(0, -1).join('\n'), 'the export is truncated'],
    [
      lines.filter((line) => !line.startsWith('{"table":"routes"')).join('\n'),
      'does not have the number of rows',
    ],
    [
      lines.join('\n').replace(/"schema":"[^"]+"/, '"schema":"9999_x"'),
      'export and import with the same version',
    ],
    ['hello', 'no JSON object'],
    ['', 'the input is empty'],
  ];
  const empty = await openTransfer(place.databaseUrl, 'new');
  for (const [text, says] of wrong)
    await expect(importLines(empty, empty.schema, Readable.from(text.split('\n')))).rejects.toThrow(
      says,
    );
  await empty.close();
  const { db } = openPlain(place.databaseUrl);
  const users = await (
    db as never as { selectFrom(t: string): { selectAll(): { execute(): Promise<unknown[]> } } }
  )
    .selectFrom('users')
    .selectAll()
    .execute();
  expect(users).toEqual([]);
  await db.destroy();
  await imported(file, place.databaseUrl);
});
