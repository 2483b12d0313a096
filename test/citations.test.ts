/**
 * Checks that each citation in the code leads to a page and a heading that exist, and that each
 * test named in docs/contract.md exists.
 */
import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';

const ROOT = path.resolve(import.meta.dirname, '..');
const read = (file: string): string => readFileSync(path.join(ROOT, file), 'utf8');

const PATTERNS = [
  ...['src', 'test'].map((folder) => `packages/*/${folder}/**/*.{ts,tsx}`),
  ...['test', 'scripts', 'bench'].map((folder) => `${folder}/**/*.{ts,mjs}`),
  'bin/berth',
  'deploy/**/*',
  'examples/**/*.{md,js,py,sh}',
  '.oxlintrc.json',
];
const FILES = globSync(PATTERNS, { cwd: ROOT, exclude: (name) => name.includes('node_modules') })
  .filter((file) => path.extname(file) !== '' || file === 'bin/berth')
  .filter((file) => file !== 'test/citations.test.ts')
  .toSorted();

/**
 * Matches `docs/contract.md "Agent API", "Limits"`; headings may be on the next line of a comment.
 * `docs/adr/0008` is a page's number.
 */
const CITATION =
  /\b((?:docs\/[\w/-]+|ARCHITECTURE|CONTRIBUTING|README|CHANGELOG)\.md|docs\/adr\/\d{4}\b)((?:,?[ \n*/#]+"[^"\n]+")*)/g;
/**
 * Matches names of documents outside the repository, and citations of the contract without its
 * page.
 */
const OUTSIDE =
  /\b(INTERFACES|EVERYDAY|TESTBED)\b|\bSTACK\.md\b|\bcontract,? (?:"|Authentication \d)/;

type Citation = { page: string; headings: string[] };
const citationsIn = (text: string): Citation[] =>
  [...text.matchAll(CITATION)].map(([, page = '', rest = '']) => ({
    page,
    headings: [...rest.matchAll(/"([^"\n]+)"/g)].map(([, heading = '']) => heading),
  }));

const pageOf = (page: string): string | undefined =>
  page.endsWith('.md')
    ? existsSync(path.join(ROOT, page))
      ? page
      : undefined
    : globSync(`${page}-*.md`, { cwd: ROOT })[0];

/** Returns the headings without their numbers: "4.3 Agent API" is cited as "Agent API". */
const headingsOf = (page: string): string[] =>
  read(page)
    .split('\n')
    .filter((line) => /^#{1,6} /.test(line))
    .map((line) => line.replace(/^#+ (\d+(\.\d+)*\.? )?/, ''));

function brokenIn(text: string): string[] {
  return citationsIn(text).flatMap(({ page, headings }) => {
    const file = pageOf(page);
    if (file === undefined) return [page];
    const known = headingsOf(file);
    return headings
      .filter((heading) => !known.includes(heading))
      .map((heading) => `${page} "${heading}"`);
  });
}

describe('the search', () => {
  test.each([
    ['docs/contract.md', []],
    ['(docs/contract.md "Agent API")', []],
    ['docs/contract.md "Agent API", "Limits"', []],
    ['docs/contract.md\n * "Agent API"', []],
    ['docs/adr/0008', []],
    ['docs/nothing.md', ['docs/nothing.md']],
    ['docs/adr/9999', ['docs/adr/9999']],
    ['docs/contract.md "No heading"', ['docs/contract.md "No heading"']],
    ['docs/contract.md "Agent API", "No heading"', ['docs/contract.md "No heading"']],
  ])('%j', (text, broken) => expect(brokenIn(text)).toEqual(broken));
  test('finds documents outside the repository', () => {
    for (const text of [
      'INTERFACES "Limits"',
      'INTERFACES.md',
      '(contract "Node")',
      'contract, Authentication 6',
      'TESTBED.md',
      'STACK.md',
    ])
      expect(OUTSIDE.test(text), text).toBe(true);
    for (const text of ['the contract', 'contract-only', 'docs/contract.md "Node"'])
      expect(OUTSIDE.test(text), text).toBe(false);
  });
});

test('every citation leads to a page and a heading of the repository', () => {
  expect(FILES.length).toBeGreaterThan(300);
  expect(
    FILES.flatMap((file) => brokenIn(read(file)).map((citation) => `${file}: ${citation}`)),
  ).toEqual([]);
});

test('no file cites a document outside the repository', () => {
  expect(FILES.filter((file) => OUTSIDE.test(read(file)))).toEqual([]);
});

describe('the tests that docs/contract.md names', () => {
  const named = [
    ...read('docs/contract.md').matchAll(/`((?:packages|test)\/[\w./-]+\.ts)`((?:,?\s+"[^"]+")*)/g),
  ].map(([, file = '', titles = '']) => ({
    file,
    titles: [...titles.matchAll(/"([^"]+)"/g)].map(([, title = '']) =>
      title.replaceAll(/\s+/g, ' '),
    ),
  }));
  test('are more than 40, each with its title', () => {
    expect(named.length).toBeGreaterThan(40);
    expect(
      named.filter(({ file, titles }) => titles.length === 0 && file !== 'test/citations.test.ts'),
    ).toEqual([]);
  });
  test('exist (after a change of a title, write the new one into docs/contract.md)', () => {
    const missing = named.flatMap(({ file, titles }) => {
      if (!existsSync(path.join(ROOT, file))) return [file];
      const text = read(file);
      const isTitle = (title: string): boolean =>
        [`('${title}'`, `("${title}"`, `(\`${title}\``, ` '${title}',`].some((call) =>
          text.includes(call),
        );
      return titles.filter((title) => !isTitle(title)).map((title) => `${file} "${title}"`);
    });
    expect(missing).toEqual([]);
  });
});
