/**
 * docs/security.md: each threat has a defence, and tests in test/threats.json; each named test
 * exists and is not switched off.
 */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';

const ROOT = path.resolve(import.meta.dirname, '..');
const document = readFileSync(path.join(ROOT, 'docs', 'security.md'), 'utf8');
/** Threat -> file -> titles of its tests. */
const testsOf = JSON.parse(readFileSync(path.join(ROOT, 'test', 'threats.json'), 'utf8')) as Record<
  string,
  Record<string, string[]>
>;

type Threat = { name: string; what: string; defence: string };

/** Returns the text of a list item, including its continuation lines. */
const item = (text: string, name: string): string =>
  (new RegExp(`^- \\*\\*${name}:\\*\\* (.*(?:\\n {2}\\S.*)*)`, 'm').exec(text)?.[1] ?? '').replace(
    /\s+/g,
    ' ',
  );

const threats: Threat[] = document
  .split(/^### /m)
  .slice(1)
  .map((block) => {
    const section = block.split(/^## /m)[0] ?? '';
    const [name = '', ...lines] = section.split('\n');
    const what = lines.join('\n').split('\n- **')[0]?.trim() ?? '';
    return { name, what, defence: item(section, 'Defence') };
  });

/**
 * Returns the call of a test with this title (`it`, `test.each(…)`, …), or null when there is none.
 */
function callOf({ file, title }: { file: string; title: string }): string | null {
  if (!existsSync(path.join(ROOT, file))) return null;
  const source = readFileSync(path.join(ROOT, file), 'utf8').replace(/\(\n\s*(?=['"`])/g, '(');
  const found = [`('${title}'`, `("${title}"`, `(\`${title}`]
    .map((text) => source.indexOf(text))
    .find((at) => at !== -1);
  return found === undefined ? null : (source.slice(0, found).split('\n').at(-1) ?? '');
}

test('each threat has a description and a defence', () => {
  expect(threats.length).toBeGreaterThan(120);
  const named = threats.map(({ name }) => name);
  expect(named.filter((name, i) => named.indexOf(name) < i)).toEqual([]);
  const incomplete = threats.filter(({ what, defence }) => [what, defence].includes(''));
  expect(incomplete.map(({ name }) => name)).toEqual([]);
  expect(document.match(/^- \*\*Defence:\*\* /gm)).toHaveLength(threats.length);
});

test('test/threats.json has tests for each threat, in the order of the page', () => {
  expect(Object.keys(testsOf)).toEqual(threats.map(({ name }) => name));
  const without = Object.entries(testsOf).filter(
    ([, files]) =>
      Object.keys(files).length === 0 || Object.values(files).some((titles) => titles.length === 0),
  );
  expect(without.map(([name]) => name)).toEqual([]);
});

test('each named test exists and is not switched off', () => {
  const wrong = Object.entries(testsOf).flatMap(([name, files]) =>
    Object.entries(files).flatMap(([file, titles]) =>
      titles.flatMap((title) => {
        const call = callOf({ file, title });
        if (call === null) return [`${name}: ${file}: ${title}`];
        return /\.(skip|todo|fails)\b/.test(call) ? [`${name}: switched off: ${title}`] : [];
      }),
    ),
  );
  expect(wrong).toEqual([]);
});

test('no line of the page is longer than 140 characters', () => {
  expect(document.split('\n').filter((line) => line.length > 140)).toEqual([]);
});
