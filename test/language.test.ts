/**
 * Plain English in comments, texts and documents (CONTRIBUTING.md
 * "Rules that a gate or a test enforces").
 */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';

const ROOT = path.resolve(import.meta.dirname, '..');
const read = (file: string): string => readFileSync(path.join(ROOT, file), 'utf8');
const find = (pattern: string): string[] =>
  globSync(pattern, { cwd: ROOT, exclude: (name) => name.includes('node_modules') }).toSorted();

const SOURCES = find('packages/*/src/**/*.{ts,tsx}');
/**
 * Tests and tools of the repository follow the same rules. This file quotes the phrases that it
 * forbids.
 */
const TOOLS = [
  ...find('{bench,scripts,test}/**/*.{ts,mjs}'),
  ...find('packages/*/test/**/*.{ts,tsx}'),
  ...find('*.ts'),
].filter((file) => file !== 'test/language.test.ts');
const DOCUMENTS = ['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', ...find('docs/**/*.md')];

const MAX_LINE = 140;
/** Matches comment lines whose opening has no subject or hides it. */
const OPENING = /^(Of|Those|That|Who|Whoever|What|Nothing|Nobody)\b/;
const PHRASES =
  /\b(worked in|gone on with|looked at|of late|no more(?! than)|those that there are)\b/i;

/** Matches the comments of a source file, and its strings with their quotes. */
const TOKEN =
  /\/\*[^]*?\*\/|\/\/[^\n]*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\[^])*`/g;

type Line = { number: number; text: string; kind: 'comment' | 'string' };
/** Returns the lines of all comments without their markers, and the lines of all strings. */
function linesOf(source: string): Line[] {
  let [at, first] = [0, 1];
  return [...source.matchAll(TOKEN)].flatMap(({ 0: token, index }) => {
    first += source.slice(at, index).split('\n').length - 1;
    at = index;
    const line = first;
    const isComment = token.startsWith('//') || token.startsWith('/*');
    return token.split('\n').map((raw, i): Line => {
      const text = isComment
        ? raw.replace(/^\s*(\/\*\*?|\*\/|\*|\/\/)\s?/, '').replace(/\s*\*\/$/, '')
        : raw;
      return { number: line + i, text: text.trim(), kind: isComment ? 'comment' : 'string' };
    });
  });
}

function problemsOf(source: string): string[] {
  const rows = source.split('\n');
  return linesOf(source).flatMap(({ number, text, kind }) => {
    const row = rows[number - 1] ?? '';
    const isProse =
      kind === 'comment' &&
      /^\s*(\/\*|\*|\/\/)/.test(row) &&
      !/https?:\/\/|oxlint-disable/.test(row);
    return [
      ...(kind === 'comment' && OPENING.test(text)
        ? [`${number}: begins with "${OPENING.exec(text)?.[1]}": ${text}`]
        : []),
      ...(isProse && row.length > MAX_LINE
        ? [`${number}: is longer than ${MAX_LINE} characters: ${text}`]
        : []),
      ...(PHRASES.test(text) ? [`${number}: contains "${PHRASES.exec(text)?.[0]}": ${text}`] : []),
    ];
  });
}

/** Removes code blocks, tables, links and generated parts from a document. */
const proseOf = (document: string): string =>
  document
    .replaceAll(/^( *)```[^]*?^\1```$/gm, '')
    .replaceAll(/<!-- generated[^]*?<!-- \/generated -->/g, '')
    .replaceAll(/`[^`\n]*`|"[^"\n]*"|\]\([^)]*\)/g, '')
    .replaceAll(/^ *\|.*$/gm, '');

describe('the search', () => {
  test.each([
    ['/** Of a node. */', 1],
    ['/** The node.\n * What it reports.\n */', 1],
    ['const a = 1; // Nobody waits', 1],
    ['// Office hours', 0],
    ["const url = 'https://x'; const b = '// Of a node';", 0],
    [`// ${'word '.repeat(30)}`, 1],
    [`// https://example.com/${'x'.repeat(140)}`, 0],
    ["log.warn('WAL could not be worked in');", 1],
    ["log.warn('WAL: it could not be looked at');", 1],
    ['// no more than 5', 0],
    ['// there are no more', 1],
  ])('%j has %i problems', (source, count) => {
    expect(problemsOf(source)).toHaveLength(count);
  });
});

test('sources follow the rules for comments and texts', { timeout: 60_000 }, () => {
  expect(SOURCES.length).toBeGreaterThan(300);
  const problems = [...SOURCES, ...TOOLS].flatMap((file) =>
    problemsOf(read(file)).map((problem) => `${file}:${problem}`),
  );
  expect(problems).toEqual([]);
});

test('documents avoid the phrases', () => {
  const problems = DOCUMENTS.flatMap((file) =>
    proseOf(read(file))
      .split('\n')
      .filter((line) => PHRASES.test(line))
      .map((line) => `${file}: ${line}`),
  );
  expect(problems).toEqual([]);
});

describe('exported type names', () => {
  const packageOf = (file: string): string => file.split('/')[1] ?? '';
  const typesOf = (source: string): string[] =>
    [...source.matchAll(/^export (?:abstract )?(?:type|interface|class|enum) (\w+)/gm)].map(
      ([, name = '']) => name,
    );
  const importsOf = (source: string): string[] =>
    [...source.matchAll(/from '@berth\/([\w-]+)\//g)].map(([, name = '']) => name);

  const exported = new Map<string, Set<string>>();
  const imported = new Map<string, Set<string>>();
  const addTo = (map: Map<string, Set<string>>, key: string, values: readonly string[]): void =>
    void map.set(key, new Set([...(map.get(key) ?? []), ...values]));
  for (const file of SOURCES) {
    const source = read(file);
    addTo(exported, packageOf(file), typesOf(source));
    addTo(imported, packageOf(file), importsOf(source));
  }

  test('are found', () => {
    expect(
      typesOf('export type A = 1;\nexport class B {}\nexport const C = 1;\ntype D = 2;'),
    ).toEqual(['A', 'B']);
    expect(imported.get('gateway')).toEqual(new Set(['kit', 'wire']));
    expect(exported.get('wire')?.has('Task')).toBe(true);
  });

  test('have one meaning in packages that import each other', () => {
    const homonyms = [...imported].flatMap(([from, packages]) =>
      [...packages].flatMap((to) =>
        [...(exported.get(from) ?? [])]
          .filter((name) => exported.get(to)?.has(name) === true)
          .map((name) => `${name}: ${from} and ${to}`),
      ),
    );
    expect(homonyms).toEqual([]);
  });
});
