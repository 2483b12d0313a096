/**
 * Sealed values, the keys that wrap them, and the start of a control plane with the right and with
 * a wrong SECRETS_KEY.
 */
import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLogger, silentLogger } from '@berth/kit/log';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type App, createApp } from '../../src/app.ts';
import { readConfig } from '../../src/config.ts';
import type { Vault } from '../../src/domain/secrets/vault.ts';
import { openVault } from '../../src/secrets/open.ts';
import { openStores } from '../../src/store/open.ts';
import { ENV } from '../api/harness.ts';

const CANARY = 'canary-7f3a9c';
const key = (): string => randomBytes(32).toString('base64');

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'berth-vault-'));
  return () => rm(folder, { recursive: true, force: true });
});
let apps: App[] = [];
afterEach(async () => {
  for (const app of apps) await app.close();
  apps = [];
});

async function start(
  secretsKey?: string,
  log = silentLogger(),
): Promise<{ app: App; vault: Vault; projectId: string }> {
  const config = readConfig({
    ...ENV,
    SECRETS_KEY: secretsKey,
    DATABASE_URL: `sqlite:${folder}/berth.db`,
  });
  const app = await createApp(config, { log, loops: false, passwordCost: { logN: 4, r: 8, p: 1 } });
  apps.push(app);
  const id = await app.stores.projects.idOf('shop');
  const input = { name: 'shop', git_url: 'https://git.test/shop.git', domain_prefix: 'shop' };
  const projectId = id ?? (await app.stores.projects.create(input, 1)).id;
  return { app, vault: await vaultOf(app, secretsKey), projectId };
}
/** A second vault on the stores of a running control plane. */
const vaultOf = ({ stores }: App, secretsKey?: string): Promise<Vault> =>
  openVault({
    given:
      secretsKey === undefined ? null : secretsKey.split(',').map((k) => Buffer.from(k, 'base64')),
    folder,
    isShared: false,
    keys: stores.projectKeys,
    meta: stores.meta,
    now: () => 1,
    log: silentLogger(),
  });
async function restart(
  secretsKey?: string,
  log = silentLogger(),
): Promise<{ app: App; vault: Vault; projectId: string }> {
  for (const app of apps) await app.close();
  apps = [];
  return start(secretsKey, log);
}
async function readyz(
  app: App,
): Promise<{ parts: { name: string; ok: boolean; detail: string }[] }> {
  return (await app.server.inject({ url: '/readyz' })).json();
}
const secretsPart = async (app: App) =>
  (await readyz(app)).parts.find(({ name }) => name === 'secrets');

describe('a sealed value', () => {
  test('opens only for its project and its name, and not after a change of one character', async () => {
    const { app, vault, projectId } = await start(key());
    const other = await app.stores.projects.create(
      { name: 'other', git_url: 'https://git.test/o.git', domain_prefix: 'other' },
      1,
    );
    const sealed = await vault.seal(projectId, 'secret:A', CANARY);
    expect((await vault.open(projectId, 'secret:A', sealed)).toString()).toBe(CANARY);
    const another = sealed.at(-3) === 'A' ? 'B' : 'A';
    const wrong: [string, string, string][] = [
      [projectId, 'secret:B', sealed],
      [other.id, 'secret:A', sealed],
      [projectId, 'secret:A', sealed.slice(0, -3) + another + sealed.slice(-2)],
      [projectId, 'secret:A', ''],
      [projectId, 'secret:A', sealed.replace('v1.', 'v2.')],
    ];
    for (const [id, name, text] of wrong)
      await expect(vault.open(id, name, text), text).rejects.toMatchObject({
        code: 'secrets_locked',
      });
  });

  test('differs each time, keeps every byte, and its fingerprint depends on project, name and value alone', async () => {
    const { app, vault, projectId } = await start(key());
    const other = await app.stores.projects.create(
      { name: 'other', git_url: 'https://git.test/o.git', domain_prefix: 'other' },
      1,
    );
    expect(await vault.seal(projectId, 'a', CANARY)).not.toBe(
      await vault.seal(projectId, 'a', CANARY),
    );
    const bytes = randomBytes(65_536);
    expect(await vault.open(projectId, 'a', await vault.seal(projectId, 'a', bytes))).toEqual(
      bytes,
    );
    expect(await vault.open(projectId, 'a', await vault.seal(projectId, 'a', ''))).toEqual(
      Buffer.alloc(0),
    );
    const print = await vault.fingerprint(projectId, 'a', CANARY);
    expect(await vault.fingerprint(projectId, 'a', CANARY)).toBe(print);
    const others = [
      await vault.fingerprint(projectId, 'b', CANARY),
      await vault.fingerprint(projectId, 'a', `${CANARY} `),
      await vault.fingerprint(other.id, 'a', CANARY),
    ];
    expect(new Set([print, ...others]).size).toBe(4);
  });

  test('of a project that does not exist is not_found', async () => {
    const { vault } = await start(key());
    await expect(vault.seal('nope', 'a', CANARY)).rejects.toMatchObject({ code: 'not_found' });
  });
});

describe('SECRETS_KEY', () => {
  test.each([
    ['31 bytes', randomBytes(31).toString('base64')],
    ['33 bytes', randomBytes(33).toString('base64')],
    ['hex', randomBytes(32).toString('hex')],
    ['a newline inside', `${key().slice(0, 20)}\n${key().slice(20)}`],
    ['a good key and a bad one', `${key()},short`],
    ['no padding', key().replace('=', '')],
  ])('%s: the error names the rule and not the value', (_, value) => {
    const message = messageOf(() => readConfig({ ...ENV, SECRETS_KEY: value }));
    expect(message).toContain('SECRETS_KEY: each key must be exactly 32 bytes in base64');
    expect(message).not.toContain(value.slice(0, 10));
  });

  test('from a file, with spaces after the comma', async () => {
    await writeFile(join(folder, 'k'), `${key()}, ${key()}\n`);
    expect(
      readConfig({ ...ENV, SECRETS_KEY: undefined, SECRETS_KEY_FILE: join(folder, 'k') })
        .SECRETS_KEY,
    ).toHaveLength(2);
  });

  test('changes: the next start wraps all project keys again, /readyz and a metric count, and the earlier key can go', async () => {
    const [old, fresh] = [key(), key()];
    const { vault, projectId } = await start(old);
    const sealed = await vault.seal(projectId, 'a', CANARY);
    // Another control plane, which still wraps with the old key.
    const both = await restart(`${fresh},${old}`);
    const other = await both.app.stores.projects.create(
      { name: 'other', git_url: 'https://git.test/o.git', domain_prefix: 'o' },
      1,
    );
    await (await vaultOf(both.app, `${old},${fresh}`)).seal(other.id, 'a', CANARY);
    expect((await secretsPart(both.app))?.detail).toMatch(
      /^[12] of 2 project keys are wrapped by an earlier SECRETS_KEY$/,
    );
    const metrics = (await both.app.server.inject({ url: '/metrics' })).body;
    expect(metrics).toMatch(/berth_project_keys\{wrapped_by="earlier"\} [12]/);
    const again = await restart(`${fresh},${old}`);
    expect((await secretsPart(again.app))?.detail).toBe(
      '0 of 2 project keys are wrapped by an earlier SECRETS_KEY',
    );
    const after = await restart(fresh);
    expect((await after.vault.open(projectId, 'a', sealed)).toString()).toBe(CANARY);
  });

  test('a wrong one: the control plane does not start, names the missing key, and the right one still works', async () => {
    const good = key();
    const { vault, projectId } = await start(good);
    const sealed = await vault.seal(projectId, 'a', CANARY);
    await expect(restart(key())).rejects.toThrow(
      /does not have the key that encrypts the secrets.*missing key id: [0-9a-f]{16}/,
    );
    const back = await restart(good);
    expect((await back.vault.open(projectId, 'a', sealed)).toString()).toBe(CANARY);
  });

  test('another one before the first secret is no problem', async () => {
    await start(key());
    await expect(restart(key())).resolves.toBeDefined();
  });
});

describe('the generated key', () => {
  test('is a file of mode 0600 beside the database; the log of each start has its path, and the public /readyz has not; a restart uses it', async () => {
    const lines: string[] = [];
    const log = createLogger({
      name: 'cp',
      level: 'info',
      format: 'json',
      destination: { write: (line) => lines.push(line) },
    });
    const { app, vault, projectId } = await start(undefined, log);
    const path = join(folder, 'secrets-key');
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect(Buffer.from(await readFile(path, 'utf8'), 'base64')).toHaveLength(32);
    expect(lines.join('')).toContain(path);
    expect(lines.join('')).not.toContain((await readFile(path, 'utf8')).trim());
    expect(JSON.stringify(await readyz(app))).not.toContain(folder);
    const sealed = await vault.seal(projectId, 'a', CANARY);
    lines.length = 0;
    const again = await restart(undefined, log);
    expect((await again.vault.open(projectId, 'a', sealed)).toString()).toBe(CANARY);
    expect(lines.join('')).toContain(path);
    expect(JSON.stringify(await readyz(again.app))).not.toContain(folder);
  });

  test('is missing: the control plane does not start, says which file, and writes no other one', async () => {
    const { vault, projectId } = await start();
    await vault.seal(projectId, 'a', CANARY);
    await rm(join(folder, 'secrets-key'));
    await expect(restart()).rejects.toThrow(
      /secrets-key is missing, and the database needs it \(key id [0-9a-f]{16}\): restore the file/,
    );
    expect(await readdir(folder)).not.toContain('secrets-key');
  });

  test('is written by another control plane that starts at the same moment: this one uses it', async () => {
    const { app, vault, projectId } = await start();
    const sealed = await vault.seal(projectId, 'a', CANARY);
    const [path, hidden] = [join(folder, 'secrets-key'), join(folder, 'not-yet')];
    await rename(path, hidden);
    const { projectKeys } = app.stores;
    let isWritten = false;
    const second = await openVault({
      given: null,
      folder,
      isShared: true,
      // The other one writes the file and its check after this one found no file.
      keys: {
        ...projectKeys,
        async counts() {
          if (!isWritten) await rename(hidden, path);
          isWritten = true;
          return projectKeys.counts();
        },
      },
      meta: app.stores.meta,
      now: () => 1,
      log: silentLogger(),
    });
    expect((await second.open(projectId, 'a', sealed)).toString()).toBe(CANARY);
  });

  test('is not set as SECRETS_KEY: the error says that the file has the missing key', async () => {
    const { vault, projectId } = await start();
    await vault.seal(projectId, 'a', CANARY);
    await expect(restart(key())).rejects.toThrow(
      /secrets-key has it: append its content to SECRETS_KEY/,
    );
    const moved = await restart(
      `${key()},${(await readFile(join(folder, 'secrets-key'), 'utf8')).trim()}`,
    );
    expect((await secretsPart(moved.app))?.detail).toBe(
      '0 of 1 project keys are wrapped by an earlier SECRETS_KEY',
    );
  });

  test('is damaged: the error does not repeat it', async () => {
    await writeFile(join(folder, 'secrets-key'), `${CANARY}\n`, { mode: 0o600 });
    const error = await start().catch((e: unknown) => e);
    expect(String(error)).toMatch(
      /secrets-key is not 32 bytes in base64. Restore the file from a backup, or set SECRETS_KEY/,
    );
    expect(String(error)).not.toContain(CANARY);
  });
});

test('a deleted project takes its key with it', async () => {
  const { app, vault, projectId } = await start(key());
  const sealed = await vault.seal(projectId, 'a', CANARY);
  await app.stores.projects.markDeleting(projectId, 1);
  expect(await app.stores.projects.removeIfGone(projectId)).toBe(true);
  expect(await app.stores.projectKeys.counts()).toEqual(new Map());
  await expect(vault.open(projectId, 'a', sealed)).rejects.toMatchObject({ code: 'not_found' });
});

test('two control planes that start on one new database with different keys: the second does not start', async () => {
  const stores = await openStores({ databaseUrl: 'sqlite::memory:', log: silentLogger() });
  const open = (secretsKey: string) =>
    openVault({
      given: [Buffer.from(secretsKey, 'base64')],
      folder: null,
      isShared: true,
      keys: stores.projectKeys,
      meta: stores.meta,
      now: () => 1,
      log: silentLogger(),
    });
  await open(key());
  await expect(open(key())).rejects.toThrow(/start with the key of the other control planes/);
  await stores.close();
});

function messageOf(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    return String(error);
  }
  throw new Error('nothing was thrown');
}
