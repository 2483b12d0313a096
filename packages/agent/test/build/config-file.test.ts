/** Reading berth.toml of a repository that is not trusted. */
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MAX_CONFIG_FILE } from '@berth/wire/task';
import { afterEach, beforeEach, expect, it, test } from 'vitest';
import { readConfigFile } from '../../src/build/config-file.ts';

let dir: string;
beforeEach(async () => void (dir = await mkdtemp(join(tmpdir(), 'agent-config-file-'))));
afterEach(() => rm(dir, { recursive: true }));

it('returns the text and the path in the repository, or null without a file', async () => {
  expect(await readConfigFile(dir, '.', 'berth.toml')).toBeNull();
  await writeFile(join(dir, 'berth.toml'), 'cpus = 1\n');
  expect(await readConfigFile(dir, '.', 'berth.toml')).toEqual({
    file: 'berth.toml',
    text: 'cpus = 1\n',
  });
  expect((await readConfigFile(dir, './services/api/', 'berth.toml'))?.file).toBe(
    'services/api/berth.toml',
  );
});

test.each<[string, (path: string) => Promise<unknown>, string]>([
  ['a link inside', (path) => symlink('other.toml', path), 'must be a plain file, not a link'],
  ['a link outside', (path) => symlink('/etc/passwd', path), 'must be a plain file, not a link'],
  ['a dangling link', (path) => symlink('nowhere', path), 'must be a plain file, not a link'],
  ['a folder', (path) => mkdir(path), 'must be a plain file'],
  [
    'a large file',
    (path) => writeFile(path, '#'.repeat(MAX_CONFIG_FILE + 1)),
    `must have at most 65536 bytes (64 KiB); it has ${MAX_CONFIG_FILE + 1}`,
  ],
  ['bytes', (path) => writeFile(path, Buffer.from([0x61, 0xff])), 'must be UTF-8 text'],
])('refuses %s', async (_, write, rule) => {
  await writeFile(join(dir, 'other.toml'), 'cpus = 1');
  await write(join(dir, 'berth.toml'));
  await expect(readConfigFile(dir, '.', 'berth.toml')).rejects.toMatchObject({
    code: 'config_invalid',
    detail: `berth.toml ${rule}`,
  });
});
