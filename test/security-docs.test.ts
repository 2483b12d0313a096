/** docs/security.md names the tests that show what it says; each of them exists. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';

const ROOT = path.resolve(import.meta.dirname, '..');
const document = readFileSync(path.join(ROOT, 'docs', 'security.md'), 'utf8');

/** `file` "title", "title" … */
const named = [...document.matchAll(/`((?:packages|test)\/[\w./-]+\.ts)` ((?:"[^"]+"(?:, )?)+)/g)].flatMap(([, file = '', titles = '']) =>
  [...titles.matchAll(/"([^"]+)"/g)].map(([, title = '']) => ({ file, title })),
);

test('tests are named at all, and every file that is named has a test behind its name', () => {
  expect(named.length).toBeGreaterThan(40);
  const files = [...document.matchAll(/`((?:packages|test)\/[\w./-]+\.ts)`/g)].map(([, file]) => file);
  expect(files.filter((file) => file !== 'test/security-docs.test.ts' && !named.some((test) => test.file === file))).toEqual([]);
});

test('each of them exists', () => {
  const missing = named.filter(({ file, title }) => {
    const at = path.join(ROOT, file);
    if (!existsSync(at)) return true;
    // As a title: at the beginning of a call's first text.
    return ![`('${title}'`, `("${title}"`, `(\`${title}`].some((call) => readFileSync(at, 'utf8').includes(call));
  });
  expect(missing.map(({ file, title }) => `${file}: ${title}`)).toEqual([]);
});

test('every threat has a test or says where it is shown', () => {
  const rows = document.split('\n').filter((line) => /^\| (?!threat|---)/.test(line));
  expect(rows.length).toBeGreaterThan(30);
  expect(rows.filter((row) => !/`(packages|test)\/[^`]+` "|the same/.test(row.split('|').at(-2) ?? ''))).toEqual([]);
});
