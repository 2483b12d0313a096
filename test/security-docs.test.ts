/**
 * docs/security.md: each threat has a defence, a limit and tests; each named test exists and is not
 * switched off.
 */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';

const ROOT = path.resolve(import.meta.dirname, '..');
const document = readFileSync(path.join(ROOT, 'docs', 'security.md'), 'utf8');

type Threat = {
  name: string;
  what: string;
  defence: string;
  limit: string;
  tests: { file: string; title: string | null }[];
};

/** Returns the text of a list item, including its continuation lines. */
const item = (text: string, name: string): string =>
  (new RegExp(`^- \\*\\*${name}:\\*\\* (.*(?:\\n {2}\\S.*)*)`, 'm').exec(text)?.[1] ?? '').replace(
    /\s+/g,
    ' ',
  );

function testsIn(text: string): Threat['tests'] {
  const [, list = ''] = text.split('- **Tests:**\n');
  return [...list.matchAll(/^ {2}- `([^`]+)`\n((?: {4}- ".+"\n?)*)/gm)].flatMap(
    ([, file = '', titles = '']) => {
      const named = [...titles.matchAll(/^ {4}- "(.+)"$/gm)].map(
        ([, title = '']): string | null => title,
      );
      return (named.length > 0 ? named : [null]).map((title) => ({ file, title }));
    },
  );
}

const threats: Threat[] = document
  .split(/^### /m)
  .slice(1)
  .map((block) => {
    const section = block.split(/^## /m)[0] ?? '';
    const [name = '', ...lines] = section.split('\n');
    const what = lines.join('\n').split('\n- **')[0]?.trim() ?? '';
    return {
      name,
      what,
      defence: item(section, 'Defence'),
      limit: item(section, 'Limit'),
      tests: testsIn(`${section.trimEnd()}\n`),
    };
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

test('each threat has a description, a defence, a limit and tests', () => {
  expect(threats.length).toBeGreaterThan(60);
  const named = threats.map(({ name }) => name);
  expect(named.filter((name, i) => named.indexOf(name) < i)).toEqual([]);
  const incomplete = threats.filter(
    ({ what, defence, limit, tests }) => [what, defence, limit].includes('') || tests.length === 0,
  );
  expect(incomplete.map(({ name }) => name)).toEqual([]);
});

test('the page has no text outside this form', () => {
  const inForm = threats.flatMap(({ tests }) =>
    tests.map(({ file, title }) => `${file} ${title}`),
  ).length;
  expect(document.match(/^ {4}- "/gm)).toHaveLength(inForm);
  expect(document.match(/^- \*\*Defence:\*\* /gm)).toHaveLength(threats.length);
});

test('each named test exists and is not switched off', () => {
  const wrong = threats.flatMap(({ name, tests }) =>
    tests.flatMap(({ file, title }) => {
      const call = title === null ? null : callOf({ file, title });
      if (call === null) return [`${name}: ${file}: ${title ?? 'no title'}`];
      return /\.(skip|todo|fails)\b/.test(call) ? [`${name}: switched off: ${title}`] : [];
    }),
  );
  expect(wrong).toEqual([]);
});

test('no line of the page is longer than 140 characters', () => {
  expect(document.split('\n').filter((line) => line.length > 140)).toEqual([]);
});
