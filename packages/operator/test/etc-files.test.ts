/** Environment files keep what the operator wrote, and a write is whole or not at all. */
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  hasAccess,
  makeFolder,
  parseEnv,
  readText,
  removeDrafts,
  withVariables,
  writeText,
} from '../src/lib/etc-files.ts';

const me = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'berth-etc-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('environment files', () => {
  test('variables are set in place; comments, order and other variables stay', () => {
    const text = '# mine\nB=1\n\nA=old\nC="x y"\n';
    expect(withVariables(text, { A: 'new', D: 'a b', B: undefined })).toBe(
      '# mine\n\nA=new\nC="x y"\nD="a b"\n',
    );
  });

  test.each([
    'plain',
    'a b',
    'quo"te',
    String.raw`back\slash`,
    '$HOME',
    '`id`',
    "it's",
    '#no comment',
    '',
  ])('%j survives', (value) => {
    expect(parseEnv(withVariables('', { NAME: value })).get('NAME')).toBe(value);
  });

  test('a line break is refused', () => {
    expect(() => withVariables('', { A: 'a\nB=1' })).toThrow('the value of A has a line break');
  });

  test('the last of two lines counts', () => {
    expect(parseEnv('A=1\nA=2\n#A=3\n').get('A')).toBe('2');
  });
});

test('a write has the mode from its first moment, and leaves no draft', () => {
  const path = join(folder, 'SECRET');
  writeText(path, 'one\n', { mode: 0o600, ...me });
  writeText(path, 'two\n', { mode: 0o640, ...me });
  expect(readFileSync(path, 'utf8')).toBe('two\n');
  expect(hasAccess(path, { mode: 0o640, ...me })).toBe(true);
  expect(readdirSync(folder)).toEqual(['SECRET']);
});

test('a failed write names the file and leaves no draft', () => {
  expect(() => writeText(join(folder, 'none', 'A'), 'x', { mode: 0o600, ...me })).toThrow(
    /none\/A cannot be written: ENOENT/,
  );
  const parent = mkdtempSync(join(folder, 'parent-'));
  mkdirSync(join(parent, 'A'));
  expect(() => writeText(join(parent, 'A'), 'x', { mode: 0o600, ...me })).toThrow(
    /A cannot be written: /,
  );
  expect(readdirSync(parent)).toEqual(['A']);
  rmSync(parent, { recursive: true });
});

test('drafts of a killed run are removed, other files stay', () => {
  writeFileSync(join(folder, '.gateway.env.0123456789ab.new'), 'half');
  writeFileSync(join(folder, '.mine.tmp'), 'mine');
  expect(removeDrafts(folder)).toEqual([join(folder, '.gateway.env.0123456789ab.new')]);
  expect(readText(join(folder, '.gateway.env.0123456789ab.new'))).toBeUndefined();
  expect(readText(join(folder, '.mine.tmp'))).toBe('mine');
});

test('a folder gets its mode also when it exists', () => {
  const path = join(folder, 'secrets');
  makeFolder(path, { mode: 0o755, ...me });
  makeFolder(path, { mode: 0o700, ...me });
  expect(statSync(path).mode & 0o777).toBe(0o700);
});
