/** The folder of file secrets on tmpfs, and its encrypted copy for a restart of the machine. */
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { LABELS } from '@berth/wire/vocabulary';
import { beforeEach, describe, expect, test } from 'vitest';
import { createSecretFiles, ownerOf, type SecretFiles } from '../../src/secrets/files.ts';

const CANARY = 'canary-file-41ad';
/** tmpfs of this machine. Giving files away needs root, as the agent has it. */
const TMPFS = '/dev/shm';
const isRoot = process.getuid?.() === 0;

describe.skipIf(!isRoot)('secret files', () => {
  let folder: string;
  let copies: string;
  let containers: string[] = [];
  /** Labels of further containers. */
  let instances: Record<string, string>[] = [];
  beforeEach(async () => {
    folder = await mkdtemp(join(TMPFS, 'berth-files-'));
    copies = await mkdtemp(join(tmpdir(), 'berth-copies-'));
    containers = [];
    instances = [];
    return async () => {
      await rm(folder, { recursive: true, force: true });
      await rm(copies, { recursive: true, force: true });
    };
  });
  const open = (at = folder): Promise<SecretFiles> =>
    createSecretFiles({
      folder: at,
      copies,
      docker: {
        list: async () => [
          ...containers.map((id) => ({ labels: { [LABELS.deployment]: id } })),
          ...instances.map((labels) => ({ labels })),
        ],
      },
      log: silentLogger(),
    });
  const fill = (files: SecretFiles, deployment = 'd1', value = CANARY) =>
    files.fill(deployment, [{ name: 'CERT', value }], 65_534);

  test('are read-only for the user of the container alone; the parent folder is private', async () => {
    const files = await open();
    expect(await fill(files)).toEqual({
      source: join(folder, 'd1'),
      target: '/run/secrets',
      readonly: true,
    });
    const made = await stat(join(folder, 'd1', 'CERT'));
    expect([made.mode & 0o777, made.uid]).toEqual([0o400, 65_534]);
    expect((await stat(folder)).mode & 0o777).toBe(0o700);
    expect(await readFile(join(folder, 'd1', 'CERT'), 'utf8')).toBe(CANARY);
  });

  test('the copy on the disk has no value, and fills the folder again when tmpfs is empty', async () => {
    await fill(await open());
    const onDisk = await Promise.all(
      (await readdir(copies)).map((name) => readFile(join(copies, name), 'latin1')),
    );
    expect(onDisk).toHaveLength(2);
    expect(onDisk.join('')).not.toContain(CANARY);
    await rm(join(folder, 'd1'), { recursive: true });
    containers = ['d1'];
    await (await open()).restore();
    const made = await stat(join(folder, 'd1', 'CERT'));
    expect([
      made.mode & 0o777,
      made.uid,
      await readFile(join(folder, 'd1', 'CERT'), 'utf8'),
    ]).toEqual([0o400, 65_534, CANARY]);
  });

  test('a copy that version 0.1.0 made fills the folder', async () => {
    await writeFile(join(copies, 'key'), 'vxgOdbUrhKxHLAWQdHDd7GMJYeUK1PpQ/dYZUEfoVpQ=\n', {
      mode: 0o600,
    });
    const sealed =
      'FUA2goDxA0wQoJvO_8oKm3BJuRC4Qqw5uztQKB2BVicXpQo9bepdRHuXtyLPqnq99GJCKryo-NVMLpvH9zF8Xe_l' +
      'W1Me5uMq8dVXaJ-vyuHH4enZqg';
    await writeFile(join(copies, 'd1.sealed'), Buffer.from(sealed, 'base64url'));
    containers = ['d1'];
    await (await open()).restore();
    expect(await readFile(join(folder, 'd1', 'CERT'), 'utf8')).toBe('a value');
  });

  test('a damaged copy, or a copy of another deployment, fills nothing and does not stop the others', async () => {
    const files = await open();
    await fill(files, 'd1');
    await fill(files, 'd2');
    await writeFile(join(copies, 'd1.sealed'), await readFile(join(copies, 'd2.sealed')));
    await rm(join(folder, 'd1'), { recursive: true });
    await rm(join(folder, 'd2'), { recursive: true });
    containers = ['d1', 'd2'];
    await (await open()).restore();
    expect(await readdir(folder)).toEqual(['d2']);
  });

  test('are replaced whole when the deployment gets others', async () => {
    const files = await open();
    await fill(files);
    await files.fill('d1', [{ name: 'KEY', value: 'other' }], 0);
    expect(await readdir(join(folder, 'd1'))).toEqual(['KEY']);
  });

  test('are removed with the last container of the deployment, with their copy; those of a starting one stay', async () => {
    const files = await open();
    for (const id of ['gone', 'runs', 'starts']) await fill(files, id);
    containers = ['runs'];
    const release = files.protect('starts');
    const clean = async (): Promise<string[]> => {
      files.cleanLater();
      await files.stop();
      return [...(await readdir(folder)), ...(await readdir(copies))].sort();
    };
    expect(await clean()).toEqual(['key', 'runs', 'runs.sealed', 'starts', 'starts.sealed']);
    release();
    expect(await clean()).toEqual(['key', 'runs', 'runs.sealed']);
  });

  test('of two instances of one deployment are apart, and each goes with its own container', async () => {
    const files = await open();
    const labels = { [LABELS.deployment]: 'd1', [LABELS.instance]: 'i2' };
    await fill(files, ownerOf({ [LABELS.deployment]: 'd1' }), 'of the first');
    await fill(files, ownerOf(labels), 'of the second');
    expect([await files.values('d1'), await files.values('i2')]).toEqual([
      ['of the first'],
      ['of the second'],
    ]);
    instances = [labels];
    files.cleanLater();
    await files.stop();
    expect(await readdir(folder)).toEqual(['i2']);
  });

  test('of an agent that was killed before the container started are removed at its next start, half-written ones too', async () => {
    await fill(await open(), 'taken-over');
    await fill(await open(), 'runs');
    await mkdir(join(folder, 'half.new'));
    await writeFile(join(copies, '.half.sealed.0123456789ab.new'), 'x');
    containers = ['runs'];
    const files = await open();
    await files.restore();
    await files.stop();
    expect([await readdir(folder), (await readdir(copies)).toSorted()]).toEqual([
      ['runs'],
      ['key', 'runs.sealed'],
    ]);
  });

  test('are refused where SECRETS_DIR is no tmpfs or cannot be written', async () => {
    const onDisk = await open(join(copies, 'folder'));
    expect(onDisk.problem).toMatch(/is not on tmpfs/);
    await expect(fill(onDisk)).rejects.toMatchObject({
      code: 'agent_cannot',
      message: expect.stringContaining('SECRETS_DIR'),
    });
    await writeFile(join(folder, 'file'), '');
    expect((await open(join(folder, 'file', 'below'))).problem).toMatch(/is not usable/);
    expect(await readdir(copies)).toEqual([]);
  });
});
