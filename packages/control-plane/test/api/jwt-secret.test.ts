/**
 * The secret that signs API tokens, and the ids of sessions: a copy of the database gives no
 * access.
 */
import { createHash } from 'node:crypto';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createSecretWatch, jwtSecretIn } from '../../src/api/auth/jwt-secret.ts';
import { type App, createApp } from '../../src/app.ts';
import { readConfig } from '../../src/config.ts';
import type { MetaStore } from '../../src/domain/platform/meta-store.ts';
import { openStores } from '../../src/store/open.ts';
import { claimsOf, ENV, jwt, PASSWORD } from './harness.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'berth-jwt-'));
  return () => rm(folder, { recursive: true, force: true });
});
let apps: App[] = [];
afterEach(async () => {
  for (const app of apps) await app.close();
  apps = [];
});
const log = silentLogger();
async function start(): Promise<App> {
  const config = readConfig({ ...ENV, JWT_SECRET: '', DATABASE_URL: `sqlite:${folder}/berth.db` });
  const app = await createApp(config, { log, loops: false, passwordCost: { logN: 4, r: 8, p: 1 } });
  apps.push(app);
  return app;
}
async function stop(app: App): Promise<void> {
  apps = apps.filter((other) => other !== app);
  await app.close();
}
type Tokens = { token: string; refresh_token: string };
async function login(app: App): Promise<Tokens> {
  const payload = { email: 'admin@example.com', password: PASSWORD };
  return (
    await app.server.inject({ method: 'POST', url: '/api/auth/login', payload })
  ).json<Tokens>();
}
const me = async (app: App, token: string): Promise<number> =>
  (await app.server.inject({ url: '/api/auth/me', headers: { authorization: `Bearer ${token}` } }))
    .statusCode;
/** Reads all files of the database. */
async function database(): Promise<string> {
  const names = (await readdir(folder)).filter((name) => name.startsWith('berth.db'));
  return (await Promise.all(names.map((name) => readFile(join(folder, name), 'latin1')))).join('');
}
/** Creates `meta` for a test without a database. */
function metaOf(entries: Record<string, string> = {}): MetaStore & { rows: Map<string, string> } {
  const rows = new Map(Object.entries(entries));
  return {
    rows,
    get: (key) => Promise.resolve(rows.get(key) ?? null),
    set: (key, value) => Promise.resolve(void rows.set(key, value)),
    setOnce: (key, value) => Promise.resolve(rows.get(key) ?? (rows.set(key, value), value)),
    remove: (key) => Promise.resolve(void rows.delete(key)),
    startingWith: (prefix) =>
      Promise.resolve(
        [...rows].filter(([key]) => key.startsWith(prefix)).map(([key, value]) => ({ key, value })),
      ),
  };
}

describe('a copy of the database', () => {
  test('contains neither the secret nor the id of a session', async () => {
    const app = await start();
    const { token, refresh_token } = await login(app);
    const { sid } = claimsOf(token);
    const secret = (await readFile(join(folder, 'jwt-secret'), 'utf8')).trim();
    expect(secret.length).toBeGreaterThanOrEqual(43);
    expect((await stat(join(folder, 'jwt-secret'))).mode & 0o777).toBe(0o600);
    expect(await me(app, token)).toBe(200);
    await stop(app);
    const bytes = await database();
    for (const [what, text] of Object.entries({ secret, sid, refresh_token }))
      expect([what, bytes.includes(text)]).toEqual([what, false]);
    // Sessions survive, and a restart creates no new secret.
    const again = await start();
    expect(await me(again, token)).toBe(200);
    // The digest in the database is not valid as a session.
    const digest = createHash('sha256').update(sid).digest('hex');
    expect(await me(again, jwt({ ...claimsOf(token), sid: digest }, { secret }))).toBe(401);
  });

  test('a start moves the secret and hashes the ids of an older version; sessions survive', async () => {
    const before = await openStores({ databaseUrl: `sqlite:${folder}/berth.db`, log });
    const old = await before.meta.setOnce('jwt_secret', 'o'.repeat(64));
    const user = await before.users.create(
      { email: 'admin@example.com', role: 'admin', password_hash: null },
      Date.now(),
    );
    await before.close();
    const sid = 'abcdef0123456789abcdef01';
    const { default: Sqlite } = await import('better-sqlite3');
    const raw = new Sqlite(join(folder, 'berth.db'));
    raw
      .prepare(
        'insert into api_sessions (id, user_id, refresh_hash, address, created_at, ' +
          'refreshed_at, expires_at) values (?,?,?,?,?,?,?)',
      )
      .run(sid, user.id, 'x', '::1', Date.now(), Date.now(), Date.now() + 3_600_000);
    raw.close();
    const app = await start();
    expect((await readFile(join(folder, 'jwt-secret'), 'utf8')).trim()).toBe(old);
    expect(await me(app, jwt({ sub: user.id, sid }, { secret: old }))).toBe(200);
    expect(await app.stores.meta.get('jwt_secret')).toBeNull();
    await stop(app);
    const bytes = await database();
    expect([bytes.includes(old), bytes.includes(sid)]).toEqual([false, false]);
  });
});

describe('the file of the secret', () => {
  const path = (): string => join(folder, 'jwt-secret');
  const read = (meta: MetaStore = metaOf(), at = folder): Promise<string> =>
    jwtSecretIn(at, meta, log);

  test('twenty processes that start at once use the same secret', async () => {
    const found = await Promise.all(Array.from({ length: 20 }, () => read()));
    expect(new Set(found).size).toBe(1);
    expect((await readFile(path(), 'utf8')).trim()).toBe(found[0]);
    expect(await readdir(folder)).toEqual(['jwt-secret']);
  });
  test('wins over a secret in the database, which is removed', async () => {
    await writeFile(path(), `${'f'.repeat(40)}\n`, { mode: 0o600 });
    const meta = metaOf({ jwt_secret: 'd'.repeat(40) });
    expect(await read(meta)).toBe('f'.repeat(40));
    expect(meta.rows.has('jwt_secret')).toBe(false);
  });
  test.each([0o644, 0o640, 0o604, 0o660])('with mode %o gets mode 0600', async (mode) => {
    await writeFile(path(), 'f'.repeat(40));
    await chmod(path(), mode);
    const lines: string[] = [];
    const warned = {
      ...log,
      warn: (_fields: object, message: string) => void lines.push(message),
    } as unknown as typeof log;
    expect(await jwtSecretIn(folder, metaOf(), warned)).toBe('f'.repeat(40));
    expect((await stat(path())).mode & 0o777).toBe(0o600);
    expect(lines.join()).toMatch(/readable by other users/);
  });
  test.each([
    ['empty', ''],
    ['short', 'short'],
    ['of two lines', `${'a'.repeat(40)}\n${'b'.repeat(40)}`],
  ])('that is %s stops the start, and names the file and what to do', async (_, text) => {
    await writeFile(path(), text, { mode: 0o600 });
    const failure = await read().catch((error: unknown) => String(error));
    expect(failure).toContain(path());
    expect(failure).toMatch(/32 characters.*JWT_SECRET/);
    expect(failure).not.toContain('aaaa');
  });
  test('that cannot be written stops the start before the database loses its secret', async () => {
    await mkdir(path());
    await writeFile(join(folder, 'file'), '');
    // Root can write to any folder, so the test uses a path that is not a folder.
    for (const at of [join(folder, 'file', 'state'), folder]) {
      const meta = metaOf({ jwt_secret: 'd'.repeat(40) });
      await expect(read(meta, at)).rejects.toThrow(
        /the JWT secret .* cannot be (written|read).*JWT_SECRET/,
      );
      expect(meta.rows.get('jwt_secret')).toBe('d'.repeat(40));
    }
  });
  test('is not created if JWT_SECRET is set', async () => {
    const config = readConfig({ ...ENV, DATABASE_URL: `sqlite:${folder}/berth.db` });
    apps.push(
      await createApp(config, { log, loops: false, passwordCost: { logN: 4, r: 8, p: 1 } }),
    );
    expect(await readdir(folder)).not.toContain('jwt-secret');
  });
});

describe('two control planes with one database', () => {
  const [A, B] = ['a'.repeat(40), 'b'.repeat(40)];
  let now = 1_000_000_000_000;
  const watch = (meta: MetaStore, ...secrets: string[]) =>
    createSecretWatch({ meta, secrets: () => secrets, now: () => now });

  test('both report while their secrets differ, and no longer when one has stopped', async () => {
    const meta = metaOf();
    const [one, two] = [watch(meta, A), watch(meta, B)];
    await one.look();
    expect(one.problem()).toBeNull();
    await two.look();
    await one.look();
    for (const each of [one, two])
      expect(each.problem()).toMatch(
        /another control plane signs with another JWT secret.*jwt-secret/,
      );
    for (const secret of [A, B]) expect(JSON.stringify([...meta.rows])).not.toContain(secret);
    await two.close();
    await one.look();
    expect(one.problem()).toBeNull();
  });
  test('a dead control plane is forgotten after some minutes', async () => {
    const meta = metaOf();
    await watch(meta, B).look();
    const one = watch(meta, A);
    await one.look();
    expect(one.problem()).not.toBeNull();
    now += 5 * 60_000;
    await one.look();
    expect([one.problem(), meta.rows.size]).toEqual([null, 1]);
  });
  test('a control plane that also verifies with the other secret is no problem: a rotation is in progress', async () => {
    const meta = metaOf();
    const [changed, other] = [watch(meta, B, A), watch(meta, A)];
    await other.look();
    await changed.look();
    await other.look();
    expect(changed.problem()).toBeNull();
    // The other one cannot verify tokens that the first one signs now.
    expect(other.problem()).not.toBeNull();
  });
});
