/**
 * Backup, verify and restore of a control plane on SQLite. backup.real.test.ts does the same with
 * PostgreSQL and with the programs.
 */
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { generateIdentity, identityToRecipient } from 'age-encryption';
import { openFilesBelow } from '@berth/testbed/open-files';
import Database from 'better-sqlite3';
import { expect, test } from 'vitest';
import { write } from '../../src/backup/make.ts';
import type { Target } from '../../src/backup/target.ts';
import { targetOf } from '../../src/backup/targets.ts';
import { SETTINGS } from '../../src/config.ts';
import { openPlain } from '../../src/store/backup/plain.ts';
import { ENV } from '../api/harness.ts';
import {
  backUp,
  configOf,
  controlPlane,
  everything,
  fill,
  folders,
  NO_ETC,
  restore,
  verify,
} from './support.ts';

/** Each test opens databases on the disk, which takes long while others use it. */
const SLOW = { timeout: 60_000 };

const OTHER_KEY = Buffer.alloc(32, 9).toString('base64');

test(
  'a backup of a running control plane restores to the same answers of every route, and every secret opens',
  SLOW,
  async () => {
    const { backups, databaseUrl } = folders();
    const api = await controlPlane(databaseUrl);
    const ids = await fill(api);
    const before = await everything(api);
    const { name, rows } = await backUp(databaseUrl, backups);
    expect(rows).toMatchObject({ projects: 2, deployments: 2, project_secrets: 2 });
    expect(readdirSync(backups)).toEqual([name]);
    expect(statSync(join(backups, name)).mode & 0o777).toBe(0o600);
    // Changes after the backup are not in it.
    await api.call('deleteProject', { params: { id: ids[0] ?? '' }, as: 'admin' });
    await api.close();

    expect(await verify(join(backups, name))).toMatchObject({
      has_keys: false,
      opened: 2,
      manifest: { rows, settings: { BASE_DOMAIN: 'berth.localhost' } },
    });
    const place = folders();
    const { written } = await restore(join(backups, name), place.databaseUrl);
    expect(written).toEqual([join(place.dir, 'restored-settings.env')]);
    expect(readFileSync(written[0] ?? '', 'utf8')).toBe(
      `BASE_DOMAIN=berth.localhost\nBERTH_ETC=${NO_ETC}\n`,
    );
    expect(readdirSync(place.dir).sort()).toEqual(['backups', 'berth.db', 'restored-settings.env']);
    expect(statSync(join(place.dir, 'berth.db')).mode & 0o777).toBe(0o600);
    const restored = await controlPlane(place.databaseUrl);
    expect(await everything(restored)).toEqual(before);
    const secret = await restored.stores.secrets.list(ids[1] ?? '');
    expect(secret).toHaveLength(1);
  },
);

test(
  'without the key, verify and restore say which key is missing, and restore leaves nothing',
  SLOW,
  async () => {
    const { backups, databaseUrl } = folders();
    const api = await controlPlane(databaseUrl);
    await fill(api);
    const made = await backUp(databaseUrl, backups);
    const at = join(backups, made.name);
    const place = folders();
    for (const key of [undefined, OTHER_KEY]) {
      const failure = {
        code: 'missing_key',
        message: expect.stringMatching(
          /need the key with the id [0-9a-f]{16}, and the backup does not/,
        ),
      };
      await expect(verify(at, { env: { SECRETS_KEY: key } })).rejects.toMatchObject(failure);
      await expect(
        restore(at, place.databaseUrl, { env: { SECRETS_KEY: key } }),
      ).rejects.toMatchObject(failure);
    }
    expect(readdirSync(place.dir)).toEqual(['backups']);
    // An earlier key of SECRETS_KEY is enough.
    expect(
      (await verify(at, { env: { SECRETS_KEY: `${OTHER_KEY},${ENV.SECRETS_KEY}` } })).opened,
    ).toBe(2);

    // A text that the key did not seal: the id alone proves nothing.
    const { db } = openPlain(databaseUrl);
    await (
      db as never as { updateTable(t: string): { set(v: object): { execute(): Promise<void> } } }
    )
      .updateTable('project_keys')
      .set({ wrapped: `v1.${'0'.repeat(16)}.AAAA` })
      .execute();
    await db.destroy();
    const changed = await backUp(databaseUrl, backups);
    await expect(verify(join(backups, changed.name))).rejects.toMatchObject({
      code: 'missing_key',
      message: expect.stringContaining('cannot be decrypted'),
    });
  },
);

test(
  'a backup with keys needs nothing else; it opens only with its age identity',
  SLOW,
  async () => {
    const identity = await generateIdentity();
    const { backups, databaseUrl } = folders();
    const api = await controlPlane(databaseUrl);
    await fill(api);
    const env = { AGENT_SECRET: "it's a secret of the agents", JWT_SECRET: 'j'.repeat(40) };
    const made = await backUp(databaseUrl, backups, {
      env,
      withKeys: true,
      recipients: [await identityToRecipient(identity)],
    });
    expect(made.name).toMatch(/\.tar\.gz\.age$/);
    const at = join(backups, made.name);
    expect(readFileSync(at).includes(ENV.SECRETS_KEY)).toBe(false);
    await expect(verify(at)).rejects.toMatchObject({
      code: 'wrong_identity',
      message: expect.stringContaining('--identity'),
    });
    const without = { env: { SECRETS_KEY: undefined }, identities: [identity] };
    expect(await verify(at, without)).toMatchObject({
      has_keys: true,
      opened: 2,
      key_from: 'the backup',
    });
    const place = folders();
    const { written } = await restore(at, place.databaseUrl, without);
    expect(written.map((path) => path.slice(place.dir.length + 1))).toEqual([
      'secrets-key',
      'jwt-secret',
      'restored-settings.env',
    ]);
    for (const path of written) expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(readFileSync(written[0] ?? '', 'utf8').trim()).toBe(ENV.SECRETS_KEY);
    expect(readFileSync(written[2] ?? '', 'utf8')).toContain(
      `AGENT_SECRET='it'\\''s a secret of the agents'\n`,
    );
  },
);

test('restore works only into an empty place', SLOW, async () => {
  const { backups, databaseUrl } = folders();
  const api = await controlPlane(databaseUrl);
  const { name } = await backUp(databaseUrl, backups);
  await expect(restore(join(backups, name), databaseUrl)).rejects.toMatchObject({
    code: 'not_empty',
  });
  await api.close();
  const place = folders();
  writeFileSync(join(place.dir, 'berth.db-wal'), 'left behind');
  await expect(restore(join(backups, name), place.databaseUrl)).rejects.toMatchObject({
    code: 'not_empty',
    message: expect.stringContaining('berth.db-wal exists'),
  });
});

test(
  'a folder that is missing is named, and the record says so; a backup of a newer database is refused',
  SLOW,
  async () => {
    const { backups, databaseUrl } = folders();
    const api = await controlPlane(databaseUrl);
    await expect(backUp(databaseUrl, join(backups, 'not-mounted'))).rejects.toMatchObject({
      code: 'target_unavailable',
      message: expect.stringContaining('create it, or mount its disk'),
    });
    const [failed] = await api.stores.backups.list();
    expect(failed).toMatchObject({
      scheduled: false,
      name: null,
      error: expect.stringContaining('not-mounted'),
    });
    await api.close();

    const good = await backUp(databaseUrl, backups);
    const { db } = openPlain(databaseUrl);
    await (
      db as never as { insertInto(t: string): { values(v: object): { execute(): Promise<void> } } }
    )
      .insertInto('berth_migrations')
      .values({ name: '9999_of_the_future', timestamp: 'x' })
      .execute();
    await db.destroy();
    await expect(backUp(databaseUrl, backups)).rejects.toMatchObject({ code: 'newer_database' });
    await rm(join(backups, good.name));
    expect(readdirSync(backups)).toEqual([]);
  },
);

test(
  '--as-new: sessions end, the secret of the old machine stays away, and the backups of both machines stay apart',
  SLOW,
  async () => {
    const { backups, databaseUrl } = folders();
    const api = await controlPlane(databaseUrl);
    await fill(api);
    const made = await backUp(databaseUrl, backups, {
      withKeys: true,
      env: { JWT_SECRET: 'j'.repeat(40) },
    });
    const place = folders();
    const { written } = await restore(join(backups, made.name), place.databaseUrl, { asNew: true });
    expect(written).toEqual([join(place.dir, 'restored-settings.env')]);
    const { db } = openPlain(place.databaseUrl);
    const count = async (table: string): Promise<unknown> =>
      (
        await (
          db as never as {
            selectFrom(t: string): { selectAll(): { execute(): Promise<unknown[]> } };
          }
        )
          .selectFrom(table)
          .selectAll()
          .execute()
      ).length;
    expect([
      await count('api_sessions'),
      await count('api_tokens'),
      await count('projects'),
    ]).toEqual([0, 1, 2]);
    await db.destroy();
    const next = await controlPlane(place.databaseUrl);
    expect((await next.call('readyz')).json['notes']).toContainEqual(
      expect.stringMatching(
        /^restored on 20\S+ from the backup of 20\S+: Berth does not know what was deployed after that$/,
      ),
    );
    await next.close();
    const own = await backUp(place.databaseUrl, backups);
    expect(own.name.split('-')[1]).not.toBe(made.name.split('-')[1]);
  },
);

/** /etc/berth as `berth install` writes it, and a file with secrets that a person wrote. */
function machineSettings(dir: string): string {
  const etc = join(dir, 'etc');
  for (const folder of ['traefik/dynamic', 'secrets/gateway'])
    mkdirSync(join(etc, folder), { recursive: true });
  const write = (path: string, text: string, mode: number): void =>
    writeFileSync(join(etc, path), text, { mode });
  write(
    'gateway.env',
    'LISTEN=127.0.0.1:4180\nGATEWAY_SECRET_FILE=/etc/berth/secrets/gateway/GATEWAY_SECRET\n',
    0o640,
  );
  write(
    'control-plane.env',
    '# ' +
      'AGENT_SECRET=old-value\nBASE_DOMAIN=x.test\nAGENT_SECRET=in-clear\nDATABASE_URL=postgres://b:hush@db/b\n',
    0o640,
  );
  write('traefik/traefik.yml', 'providers: {}\n', 0o644);
  write(
    'traefik/dynamic/gate.yml',
    'http:\n  middlewares:\n    gate:\n      basicAuth:\n        users: ["a:hash"]\n',
    0o640,
  );
  write('secrets/gateway/GATEWAY_SECRET', 'gateway-secret\n', 0o600);
  symlinkSync('/elsewhere', join(etc, 'link.env'));
  return etc;
}
const SECRET_WORDS = /in-clear|old-value|hush|a:hash|gateway-secret/;

test(
  'a backup has the settings of the machine without secrets, and names what it leaves out; restore writes them beside the database',
  SLOW,
  async () => {
    const { dir, backups, databaseUrl } = folders();
    await (await controlPlane(databaseUrl)).close();
    const etc = machineSettings(dir);
    const made = await backUp(databaseUrl, backups, { env: { BERTH_ETC: etc } });
    expect(made.left_out).toEqual([
      {
        path: 'control-plane.env',
        why: 'its comments and its secret or unknown variables: only with --with-keys',
      },
      { path: 'link.env', why: 'not a plain file' },
      { path: 'secrets/gateway/GATEWAY_SECRET', why: 'secret: only with --with-keys' },
      {
        path: 'traefik/dynamic/gate.yml',
        why: 'berth install does not make this file, so it may have secrets: only with --with-keys',
      },
    ]);
    const { manifest } = await verify(join(backups, made.name));
    expect(manifest.format).toBe(1);
    expect(JSON.stringify(manifest)).not.toMatch(SECRET_WORDS);
    expect(manifest.etc?.files.map(({ path, mode }) => [path, mode.toString(8)])).toEqual([
      ['control-plane.env', '640'],
      ['gateway.env', '640'],
      ['traefik/traefik.yml', '644'],
    ]);

    const place = folders();
    const { written } = await restore(join(backups, made.name), place.databaseUrl, {
      env: { BERTH_ETC: etc },
    });
    expect(written).toContain(join(place.dir, 'restored-etc'));
    const restored = (path: string): string =>
      readFileSync(join(place.dir, 'restored-etc', path), 'utf8');
    expect(restored('gateway.env')).toBe(readFileSync(join(etc, 'gateway.env'), 'utf8'));
    expect(restored('control-plane.env')).toBe('BASE_DOMAIN=x.test\n');
  },
);

test(
  'with keys, a backup has the secrets of the machine too; restore writes nothing to /etc/berth and no mode of the backup',
  SLOW,
  async () => {
    const { dir, backups, databaseUrl } = folders();
    const api = await controlPlane(databaseUrl);
    await fill(api);
    const etc = machineSettings(dir);
    writeFileSync(join(etc, 'secrets/gateway/JWT_SECRET'), 'signs', { mode: 0o600 });
    writeFileSync(
      join(etc, 'proxy.env'),
      'TRAEFIK_BIN=/tmp/own\nNODE_OPTIONS=--require=/tmp/own\n',
    );
    chmodSync(join(etc, 'proxy.env'), 0o777);
    const made = await backUp(databaseUrl, backups, { env: { BERTH_ETC: etc }, withKeys: true });
    expect(made.left_out).toEqual([{ path: 'link.env', why: 'not a plain file' }]);
    expect((await verify(join(backups, made.name))).manifest.format).toBe(2);
    for (const asNew of [false, true]) {
      const place = folders();
      const ofTheMachine = join(place.dir, 'etc');
      mkdirSync(ofTheMachine);
      const { written } = await restore(join(backups, made.name), place.databaseUrl, {
        env: { BERTH_ETC: ofTheMachine },
        asNew,
      });
      expect(readdirSync(ofTheMachine)).toEqual([]);
      const target = join(place.dir, 'restored-etc');
      expect(written).toContain(target);
      const entries = readdirSync(etc, { recursive: true, withFileTypes: true });
      for (const { name, parentPath } of entries.filter((entry) => entry.isFile())) {
        const path = join(parentPath, name).slice(etc.length + 1);
        if (asNew && name === 'JWT_SECRET') {
          expect(existsSync(join(target, path))).toBe(false);
          continue;
        }
        expect(readFileSync(join(target, path), 'utf8'), path).toBe(
          readFileSync(join(etc, path), 'utf8'),
        );
        expect((statSync(join(target, path)).mode & 0o777).toString(8), path).toBe('600');
      }
      for (const folder of ['.', 'secrets', 'traefik/dynamic'])
        expect((statSync(join(target, folder)).mode & 0o777).toString(8), folder).toBe('700');
    }
  },
);

test('restore follows no link in place of its folder', SLOW, async () => {
  const { dir, backups, databaseUrl } = folders();
  await (await controlPlane(databaseUrl)).close();
  const made = await backUp(databaseUrl, backups, { env: { BERTH_ETC: machineSettings(dir) } });
  const place = folders();
  const elsewhere = join(place.dir, 'elsewhere');
  mkdirSync(elsewhere);
  symlinkSync(elsewhere, join(place.dir, 'restored-etc'));
  await restore(join(backups, made.name), place.databaseUrl);
  expect(readdirSync(elsewhere)).toEqual([]);
});

/** Somebody decided that these may not be in a backup without keys. All others are in it. */
const SECRETS = [
  'AGENT_SECRET',
  'GATEWAY_SECRET',
  'JWT_SECRET',
  'SECRETS_KEY',
  'ADMIN_PASSWORD',
  'REGISTRY_PASSWORD',
  'DATABASE_URL',
  'SMTP_URL',
  'OTEL_EXPORTER_OTLP_HEADERS',
  'OTEL_RESOURCE_ATTRIBUTES',
];
/** Texts of settings that a backup reads itself. */
const TEXTS: Record<string, string> = {
  BACKUP_KEEP: '37h 7d 4w',
  BACKUP_TO: '/canary/BACKUP_TO',
  BERTH_ETC: '/canary/BERTH_ETC',
  UPGRADE_SNAPSHOT: 'try',
  BACKUP_RECIPIENT: await identityToRecipient(await generateIdentity()),
};

test(
  'a backup without keys has no setting of which nobody decided that it is no secret',
  SLOW,
  async () => {
    const { backups, databaseUrl } = folders();
    await (await controlPlane(databaseUrl)).close();
    const names = Object.keys(SETTINGS);
    const env = Object.fromEntries(names.map((name) => [name, TEXTS[name] ?? `canary-${name}`]));
    const { name } = await backUp(databaseUrl, backups, {
      env: { ...env, SECRETS_KEY: ENV.SECRETS_KEY },
    });
    const { manifest } = await verify(join(backups, name));
    expect(Object.keys(manifest.settings).sort()).toEqual(
      names.filter((one) => !SECRETS.includes(one)).sort(),
    );
    const unpacked = gunzipSync(readFileSync(join(backups, name))).toString('latin1');
    for (const secret of SECRETS) expect(unpacked).not.toContain(`canary-${secret}`);
    expect(unpacked).not.toContain(ENV.SECRETS_KEY);
  },
);

test('a target that fails leaves no file of the copy open', SLOW, async () => {
  const { dir, backups, databaseUrl } = folders();
  await (await controlPlane(databaseUrl)).close();
  // More than the buffers between the copy and the target hold.
  const database = new Database(join(dir, 'berth.db'));
  database.exec("insert into meta (key, value) values ('filler', hex(randomblob(10000000)))");
  database.close();
  const target: Target = {
    ...(await targetOf(backups, { endpoint: null })),
    put: async (_, content) => {
      await once(content, 'readable');
      throw new Error('the target failed');
    },
  };
  const config = configOf(databaseUrl);
  await expect(
    write({ config, target, withKeys: false, recipients: [], now: Date.now }),
  ).rejects.toThrow('the target failed');
  await expect.poll(() => openFilesBelow(dir)).toEqual([]);
});
