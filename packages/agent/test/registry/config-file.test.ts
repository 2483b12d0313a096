/**
 * The configuration file of the registry while an agent makes it read-only: what else may happen to
 * the file, and what is left of it.
 */
import { execFileSync } from 'node:child_process';
import {
  chmod,
  chown,
  link,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parse } from 'yaml';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  createRegistryConfigFile,
  type RegistryConfigFile,
} from '../../src/registry/config-file.ts';

const TEXT = `version: 0.1
# of the operator
storage:
  filesystem: { rootdirectory: /images }
  delete:   { enabled: true }
http: { addr: ":5000" }
`;
const isRoot = process.getuid?.() === 0;

describe('REGISTRY_CONFIG', () => {
  let dir: string;
  let path: string;
  let file: RegistryConfigFile;
  const text = (): Promise<string> => readFile(path, 'utf8');
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'berth-registry-config-'));
    await mkdir(join(dir, 'etc'));
    path = join(dir, 'etc', 'registry.yml');
    await writeFile(path, TEXT);
    file = createRegistryConfigFile(path, join(dir, 'marker.json'));
  });
  afterEach(() => rm(dir, { recursive: true }));
  /** The agent process died; the next one undoes the change. */
  const restarted = async (): Promise<void> => {
    file = createRegistryConfigFile(path, join(dir, 'marker.json'));
    expect(await file.isMarked()).toBe(true);
    await file.setWritable();
    await file.forget();
    expect(await file.isMarked()).toBe(false);
  };

  it('is read-only with everything that the operator wrote, and then as before', async () => {
    await file.setReadOnly();
    expect(await text()).toMatch(/# of the operator\n[^]*readonly:\n\s+enabled: true/);
    expect(await file.isReadOnlyByOperator()).toBe(false);
    await restarted();
    expect(await text()).toBe(TEXT);
    expect((await readdir(join(dir, 'etc'))).toSorted()).toEqual(['registry.yml']);
  });

  it.each<[string, (written: string) => string, (left: string) => void]>([
    [
      'keeps a setting that a person added',
      (written) => `${written}log: { level: debug }\n`,
      (left) => expect(left).toMatch(/log: .*debug/),
    ],
    [
      'keeps a setting that a person changed',
      (written) => written.replace('5000', '5001'),
      (left) => expect(left).toContain('":5001"'),
    ],
    ['restores an empty file', () => '', (left) => expect(left).toBe(TEXT)],
    ['restores a file that is no YAML', () => 'storage: [', (left) => expect(left).toBe(TEXT)],
    [
      'restores a file of which only the end is new',
      (written) => TEXT + written.slice(TEXT.length),
      (left) => expect(left).toBe(TEXT),
    ],
    [
      'restores a file of which only the beginning is new',
      (written) => written.slice(0, 60) + TEXT.slice(60),
      (left) => expect(left).toBe(TEXT),
    ],
    ...(
      [
        // docs/clean-up.md "When it fails"
        [
          'removed storage.maintenance.readonly by hand',
          (written) => written.replace(/ +readonly:\n +enabled: true\n/, ''),
        ],
        [
          'removed storage.maintenance',
          (written) => written.replace(/ +maintenance:\n +readonly:\n +enabled: true\n/, ''),
        ],
        [
          'removed only the line with enabled',
          (written) => written.replace(/ +enabled: true\n/, ''),
        ],
        [
          'set enabled to false',
          (written) => written.replace('enabled: true\n', 'enabled: false\n'),
        ],
        ['put the original with another port there', () => TEXT.replace('5000', '5001')],
        ['put a file without the last newline there', (written) => written.trimEnd()],
      ] as [string, (written: string) => string][]
    ).map(([what, edit]): [string, (written: string) => string, (left: string) => void] => [
      `keeps the rest when a person ${what}`,
      (written) => {
        const edited = edit(written);
        expect(edited).not.toBe(written);
        return edited;
      },
      (left) => expect(parse(left.replace('5001', '5000'))).toEqual(parse(TEXT)),
    ]),
  ])('%s meanwhile', async (_, edit, check) => {
    await file.setReadOnly();
    await writeFile(path, edit(await text()));
    await file.adopt();
    await restarted();
    const left = await text();
    check(left);
    expect(left).not.toMatch(/readonly|Berth/);
  });

  it.each(['maintenance:', 'maintenance: { readonly: }', 'maintenance: {}'])(
    'is made read-only and writable where the file has "%s"',
    async (empty) => {
      const given = TEXT.replace('storage:', `storage:\n  ${empty}`);
      await writeFile(path, given);
      await file.setReadOnly();
      expect(parse(await text())).toMatchObject({
        storage: { maintenance: { readonly: { enabled: true } } },
      });
      await restarted();
      expect(await text()).toBe(given);
    },
  );

  it('is there again after a person deleted it', async () => {
    await chmod(path, 0o640);
    await file.setReadOnly();
    await rm(path);
    await restarted();
    expect(await text()).toBe(TEXT);
    expect((await stat(path)).mode & 0o777).toBe(0o640);
  });

  it('stays read-only when the operator wants that', async () => {
    const wanted = TEXT.replace(
      'storage:',
      'storage:\n  maintenance: { readonly: { enabled: true } }',
    );
    await writeFile(path, wanted);
    await file.adopt();
    expect([await file.isReadOnlyByOperator(), await file.isMarked()]).toEqual([true, false]);
  });

  it('is made writable by an agent that lost its state, or by another one', async () => {
    await file.setReadOnly();
    file = createRegistryConfigFile(path, join(dir, 'another-marker.json'));
    await file.setWritable();
    expect(await text()).toContain('readonly');
    await file.adopt();
    await file.setWritable();
    await file.forget();
    expect(parse(await text())).toEqual(parse(TEXT));
    expect(await text()).toMatch(/# of the operator\n[^]*":5000" }\n$/);
    expect(await text()).not.toMatch(/readonly|Berth/);
  });

  it('may be a symlink, and stays one', async () => {
    const real = join(dir, 'real.yml');
    await writeFile(real, TEXT);
    await rm(path);
    await symlink('../real.yml', path);
    await file.setReadOnly();
    expect(await readFile(real, 'utf8')).toContain('readonly');
    await restarted();
    expect([await readFile(real, 'utf8'), (await lstat(path)).isSymbolicLink()]).toEqual([
      TEXT,
      true,
    ]);
  });

  it.skipIf(!isRoot)(
    'keeps its owner and its mode: the registry must be able to read it',
    async () => {
      await chown(path, 4242, 4343);
      await chmod(path, 0o640);
      const access = async () => {
        const { uid, gid, mode } = await stat(path);
        return { uid, gid, mode: mode & 0o7777 };
      };
      await file.setReadOnly();
      expect(await access()).toEqual({ uid: 4242, gid: 4343, mode: 0o640 });
      await restarted();
      expect(await access()).toEqual({ uid: 4242, gid: 4343, mode: 0o640 });
    },
  );

  it.skipIf(!isRoot)('is written in place where it is a mount point', async () => {
    const other = join(dir, 'other.yml');
    await writeFile(other, TEXT);
    execFileSync('/usr/bin/mount', ['--bind', other, path]);
    try {
      await file.setReadOnly();
      expect(await readFile(other, 'utf8')).toContain('readonly');
      await restarted();
      expect(await readFile(other, 'utf8')).toBe(TEXT);
    } finally {
      execFileSync('/usr/bin/umount', [path]);
    }
  });

  describe.skipIf(!isRoot)('on a full disk', () => {
    let disk: string;
    beforeEach(async () => {
      disk = join(dir, 'etc');
      execFileSync('/usr/bin/mount', ['-t', 'tmpfs', '-o', 'size=32k', 'tmpfs', disk]);
      await writeFile(path, TEXT.padEnd(4_090, '#'));
    });
    afterEach(() => void execFileSync('/usr/bin/umount', ['--lazy', disk]));
    const fill = async (): Promise<void> => {
      for (let i = 0; i < 100; i++) await writeFile(join(disk, `filler-${i}`), 'x'.repeat(4096));
    };

    it('is not touched when the change does not fit', async () => {
      await expect(fill()).rejects.toThrow('ENOSPC');
      const before = await text();
      await expect(file.setReadOnly()).rejects.toThrow('ENOSPC');
      expect(await text()).toBe(before);
      await restarted();
      expect(await text()).toBe(before);
    });

    it('is restored when the disk filled up meanwhile', async () => {
      const before = await text();
      await file.setReadOnly();
      await link(path, join(dir, 'etc', 'second-name')).catch(() => undefined);
      await expect(fill()).rejects.toThrow('ENOSPC');
      await restarted();
      expect(await text()).toBe(before);
    });
  });
});
