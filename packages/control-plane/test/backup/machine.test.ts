/**
 * Commands on the machine of a package use the settings of the unit, and give their files to the
 * owner of the folder.
 */
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { asOwner } from '../../src/backup/machine.ts';
import { readBackupConfig, useSettingsOfUnit } from '../../src/config.ts';

function folder(): string {
  const dir = mkdtempSync(join(tmpdir(), 'berth-machine-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}
function etcWith(text: string): { BERTH_ETC: string; file: string } {
  const dir = folder();
  const file = join(dir, 'control-plane.env');
  writeFileSync(file, text);
  return { BERTH_ETC: dir, file };
}

test('without DATABASE_URL, the settings file of the unit and the defaults of the unit count', () => {
  const { BERTH_ETC, file } = etcWith(
    '# comment\nBACKUP_TO="/mnt/my backups"\nBASE_DOMAIN=x.test\nNODE_OPTIONS=--require=/x\n',
  );
  const env: NodeJS.ProcessEnv = { BERTH_ETC, DATABASE_URL: '', PATH: '/bin' };
  expect(useSettingsOfUnit(env)).toBe(file);
  expect(readBackupConfig(env)).toMatchObject({
    DATABASE_URL: 'sqlite:/var/lib/berth/berth.db',
    STATE_DIR: '/var/lib/berth',
    BACKUP_TO: '/mnt/my backups',
    searchPath: '/bin',
  });
  expect(env).not.toHaveProperty('NODE_OPTIONS');
});

test('the file says where the database is; the environment counts before it, also across NAME and NAME_FILE', () => {
  const { BERTH_ETC } = etcWith(
    'DATABASE_URL_FILE=/url\nSECRETS_KEY_FILE=/key\nAWS_REGION=file\nSTATE_DIR=/state\n',
  );
  const env: NodeJS.ProcessEnv = { BERTH_ETC, SECRETS_KEY: 'given', AWS_REGION: 'given' };
  useSettingsOfUnit(env);
  expect(env).toEqual({
    BERTH_ETC,
    SECRETS_KEY: 'given',
    AWS_REGION: 'given',
    DATABASE_URL_FILE: '/url',
    STATE_DIR: '/state',
  });
});

test('an environment with a database, or a machine without the file, keeps its environment', () => {
  const { BERTH_ETC } = etcWith('BACKUP_TO=/other\n');
  for (const env of [
    { BERTH_ETC, DATABASE_URL: 'sqlite:x.db' },
    { BERTH_ETC, DATABASE_URL_FILE: '/url' },
    { BERTH_ETC: folder() },
  ]) {
    const before = { ...env };
    expect(useSettingsOfUnit(env)).toBe(null);
    expect(env).toEqual(before);
  }
});

test('a file that cannot be read is an error, not another database', () => {
  const BERTH_ETC = folder();
  mkdirSync(join(BERTH_ETC, 'control-plane.env'));
  expect(() => useSettingsOfUnit({ BERTH_ETC })).toThrow(
    /control-plane\.env cannot be read: run the command as root, or set DATABASE_URL/,
  );
});

/** The files of this process count as those of root, in a folder of somebody else. */
async function given(run: (dir: string) => void): Promise<string[]> {
  const dir = folder();
  writeFileSync(join(dir, 'before'), '');
  vi.stubEnv('DATABASE_URL', `sqlite:${join(dir, 'berth.db')}`);
  onTestFinished(() => void vi.unstubAllEnvs());
  const calls: string[] = [];
  const owner = { uid: 4711, gid: 4712 };
  await asOwner(async () => run(dir), {
    isRoot: true,
    uid: process.getuid?.(),
    ownerOf: async () => owner,
    lchown: async (path, uid, gid) =>
      void calls.push(`${String(path).slice(dir.length + 1)} ${uid}:${gid}`),
  });
  return calls.sort();
}

test('as root, new files in the folder of the database get the owner of the folder', async () => {
  const made = await given((dir) => {
    for (const name of ['before', 'berth.db', 'secrets-key']) writeFileSync(join(dir, name), 'new');
    mkdirSync(join(dir, 'restored-etc'));
    writeFileSync(join(dir, 'restored-etc/gateway.env'), '');
    symlinkSync('/etc/passwd', join(dir, 'link'));
  });
  expect(made).toEqual(
    ['berth.db', 'link', 'restored-etc', 'restored-etc/gateway.env', 'secrets-key'].map(
      (name) => `${name} 4711:4712`,
    ),
  );
});

test('a command that fails also gives its files away, and its error stays', async () => {
  const failing = given((dir) => {
    writeFileSync(join(dir, 'berth.db-wal'), '');
    throw new Error('failed');
  });
  await expect(failing).rejects.toThrow('failed');
});
