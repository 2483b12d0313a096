/** Which folders of a share can be a dataset: each rule that the API answers with, from a real child that looks. */
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createLook } from '../../src/monitor/look.ts';
import { scratchFolder } from './support.ts';

const dir = (): string => {
  const base = join(scratchFolder(), 'base');
  mkdirSync(join(base, 'lab/genomes'), { recursive: true });
  mkdirSync(join(base, '../outside'));
  writeFileSync(join(base, 'a-file'), '');
  symlinkSync('lab/genomes', join(base, 'inside'));
  symlinkSync('../outside', join(base, 'out'));
  symlinkSync('circle', join(base, 'circle'));
  return base;
};

test('a folder below the base is fine, also by a symlink that stays inside', async () => {
  const look = createLook(dir());
  expect(await look('lab/genomes')).toBeNull();
  expect(await look('inside')).toBeNull();
});

test.each([
  ['nowhere', 'missing'],
  ['a-file', 'not_a_folder'],
  ['a-file/below', 'not_a_folder'],
  ['out', 'outside'],
  ['.', 'outside'],
  ['circle', 'outside'],
])('%s: %s', async (path, rule) => {
  expect(await createLook(dir())(path)).toMatchObject({ rule });
});

test('a share that is not there, none at all, and one that does not answer in time', async () => {
  const base = dir();
  expect(await createLook(join(base, 'gone'))('lab')).toMatchObject({ rule: 'unreachable' });
  expect(await createLook(null)('lab')).toMatchObject({ rule: 'no_share' });
  expect(await createLook(base, 1)('lab')).toMatchObject({ rule: 'unreachable', message: expect.stringContaining('did not answer') });
});
