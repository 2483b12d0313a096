/**
 * Documents: links lead to existing targets, the index lists every page, each page begins with its
 * purpose, lines are not too long.
 */
import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { type FailureCode, FAILURES, NEXT_STEPS } from '@berth/wire/errors';
import { ProjectCreate } from '@berth/wire/project';
import { BuildPayload, DeployPayload } from '@berth/wire/task';
import { describe, expect, test } from 'vitest';

const ROOT = path.resolve(import.meta.dirname, '..');
const read = (file: string): string => readFileSync(path.join(ROOT, file), 'utf8');
const PAGES = globSync('docs/*.md', { cwd: ROOT }).toSorted();
const DOCUMENTS = [
  ...globSync(['*.md', 'docs/adr/*.md', 'examples/*/README.md'], { cwd: ROOT }),
  ...PAGES,
].toSorted();

/** Returns a document without its code blocks. */
const textOf = (file: string): string => read(file).replaceAll(/^( *)```[^]*?^\1```$/gm, '');
/** Returns the anchor that GitHub makes from a heading. */
const anchorOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-');
const anchorsIn = (file: string): string[] => [
  ...[...textOf(file).matchAll(/^#{1,6} (.+)$/gm)].map(([, heading = '']) => anchorOf(heading)),
  ...[...textOf(file).matchAll(/<a id="([^"]+)">/g)].map(([, id = '']) => id),
];

function brokenLinks(file: string): string[] {
  return [...textOf(file).matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target = '']) => target)
    .filter((target) => !/^[a-z]+:/.test(target))
    .filter((target) => {
      const [place = '', anchor] = target.split('#');
      const to = place === '' ? file : path.join(path.dirname(file), place);
      if (!existsSync(path.join(ROOT, to))) return true;
      return anchor !== undefined && !anchorsIn(to).includes(anchor);
    })
    .map((target) => `${file}: ${target}`);
}

test('links lead to files and headings that exist', () => {
  expect(DOCUMENTS.length).toBeGreaterThan(25);
  expect(DOCUMENTS.flatMap(brokenLinks)).toEqual([]);
});

/** Documents may omit the beginning of a path: `flow/deployment.ts`. */
test('source files that a document names exist', () => {
  const patterns = ['packages/*/{src,test}/**/*.ts', '{test,scripts,bench,examples}/**/*.{ts,mjs}'];
  const files = globSync(patterns, { cwd: ROOT, exclude: (name) => name.includes('node_modules') });
  const known = new Set(
    files.flatMap((file) => file.split('/').map((_, i, parts) => parts.slice(i).join('/'))),
  );
  const wrong = DOCUMENTS.filter(
    (file) => file !== 'CHANGELOG.md' && !file.startsWith('docs/history/'),
  ).flatMap((file) =>
    [...read(file).matchAll(/(?<![\w./*{-])([\w-]+(?:\/[\w.-]+)*\.(?:ts|mjs))\b/g)]
      .map(([, named = '']) => named)
      .filter(
        (named) =>
          !known.has(named) &&
          !known.has(named.replace(/^(control-plane|agent|gateway|wire|kit)\//, '$1/src/')),
      )
      .map((named) => `${file}: ${named}`),
  );
  expect(wrong).toEqual([]);
});

test('docs/README.md lists every page', () => {
  const index = read('docs/README.md');
  expect(
    PAGES.filter(
      (page) => page !== 'docs/README.md' && !index.includes(`](${path.basename(page)})`),
    ),
  ).toEqual([]);
});

test.each(PAGES)('%s begins with its purpose', (page) => {
  expect(read(page).split('\n\n').slice(1, 3).join(' ')).toMatch(/\bThis page /);
});

const LONGEST = 140;
/** Skips tables, generated parts, HTML, and lines that are a link or the name of a test only. */
const proseOf = (file: string): string[] =>
  textOf(file)
    .replaceAll(/<!-- generated[^]*?<!-- \/generated -->/g, '')
    .split('\n')
    .filter((line) => !/^ *(\||<|!\[|- `packages\/)/.test(line));

describe('no line of prose is longer than 140 characters', () => {
  test.each(DOCUMENTS)('%s', (file) => {
    expect(proseOf(file).filter((line) => line.length > LONGEST)).toEqual([]);
  });
});

test('no line of an example in docs/api.md is longer than 140 characters', () => {
  const lines = [...read('docs/api.md').matchAll(/^```http\n([^]*?)^```$/gm)].flatMap(
    ([, block = '']) => block.split('\n'),
  );
  expect(lines.length).toBeGreaterThan(500);
  expect(lines.filter((line) => line.length > LONGEST)).toEqual([]);
});

describe('docs/logs.md', () => {
  /**
   * Returns the message of each call `log.warn`, `log.error` and `log.fatal`: the last text among
   * its arguments.
   */
  function logLinesOf(source: string): string[] {
    return [...source.matchAll(/\blog\.(?:warn|error|fatal)\(/g)].flatMap(
      ({ 0: { length }, index }) => {
        let [depth, message, isJoined] = [1, '', false];
        for (const { 0: token } of source
          .slice(index + length)
          .matchAll(/'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|[({[\])}+]/g)) {
          if ('([{'.includes(token)) depth += 1;
          else if (')]}'.includes(token)) depth -= 1;
          else if (depth === 1 && token !== '+')
            message = isJoined ? message + token.slice(1, -1) : token.slice(1, -1);
          isJoined = token === '+';
          if (depth === 0) break;
        }
        return message === '' ? [] : [message];
      },
    );
  }

  test('the search finds messages, also in calls of several lines', () => {
    expect(
      logLinesOf(
        "log.warn({ a: f('x') }, 'one'); log.error(\n  { b },\n  `two ${c}`,\n); " +
          "log.info('three'); log.error('fo' +\n 'ur'); log.fatal(note);",
      ),
    ).toEqual(['one', 'two ${c}', 'four']);
  });

  test('lists every warning and error that Berth logs, and no other line', () => {
    const sources = globSync('packages/{agent,control-plane,gateway,kit,proxy,relay}/src/**/*.ts', {
      cwd: ROOT,
    });
    const rows = read('docs/logs.md')
      .split('\n')
      .filter((line) => line.startsWith('| `'));
    const listed = rows.flatMap((row) =>
      [...(row.split(' | ')[0] ?? '').matchAll(/`([^`]+)`/g)].map(([, text = '']) => text),
    );
    const logged = new Set(sources.flatMap((file) => logLinesOf(read(file))));
    expect(logged.size).toBeGreaterThan(80);
    expect(listed.toSorted()).toEqual([...logged].toSorted());
  });
});

test('commands of the documents exist', () => {
  const scripts = new Set(
    Object.keys((JSON.parse(read('package.json')) as { scripts: object }).scripts),
  );
  const commands = DOCUMENTS.flatMap((file) =>
    [...read(file).matchAll(/\bnpm (?:run ([\w:-]+)|(test)\b)/g)].map(
      ([, run, other]) => run ?? other ?? '',
    ),
  );
  expect(commands.length).toBeGreaterThan(20);
  expect(commands.filter((name) => !scripts.has(name))).toEqual([]);

  const benches = [...read('scripts/bench.ts').matchAll(/^ {2}(\w+)(?:: .*bench\w+.*)?,$/gm)].map(
    ([, name = '']) => name,
  );
  const named = DOCUMENTS.flatMap((file) =>
    [...read(file).matchAll(/npm run bench -- (\w+)/g)].map(([, name = '']) => name),
  );
  expect(named.length).toBeGreaterThan(3);
  expect(named.filter((name) => !benches.includes(name))).toEqual([]);
});

/** The tables whose first column quotes a message. `…` stands for a value. */
test('docs/troubleshooting.md quotes messages that Berth writes', () => {
  const sources = globSync('packages/{agent,control-plane}/src/**/*.ts', { cwd: ROOT })
    .map(read)
    .join('\n');
  const tables =
    read('docs/troubleshooting.md').match(
      /^\| (?:reason contains|`status` and `problem`) .*\n(?:\|.*\n)+/gm,
    ) ?? [];
  expect(tables).toHaveLength(2);
  const quoted = tables
    .flatMap((table) => table.split('\n').slice(2))
    .flatMap((row) =>
      [...(row.split(' | ')[0] ?? '').matchAll(/`([^`]+)`/g)].map(([, text = '']) => text),
    );
  expect(quoted.length).toBeGreaterThan(20);
  expect(
    quoted.filter((text) => !text.split('…').every((part) => sources.includes(part.trim()))),
  ).toEqual([]);
});

/** Words with which a sentence begins that says what to do. */
const DO =
  /^(?:add|ask|check|commit|compare|correct|create|deploy|free|give|let|look|mount|open|push|raise|read|remove|rename|run|set|shorten|start|stop|update|use|wait|find) /;
test.each(Object.keys(FAILURES) as FailureCode[])(
  'the failure %s says what happened and what to do',
  (code) => {
    expect(FAILURES[code]).toMatch(/^[A-Za-z].*[^.:;]$/);
    const step = NEXT_STEPS[code];
    expect(step).toMatch(DO);
    expect(step).toMatch(/[^.;]$/);
    for (const [, setting = ''] of step.matchAll(/\b([A-Z]{3,}_[A-Z_]+)\b/g))
      expect(read('docs/settings.md')).toContain(`\`${setting}\``);
    for (const [, command = ''] of step.matchAll(
      /\b(berth [a-z-]+(?: (?:show|list|set|trust|disk))?)/g,
    ))
      expect(read('docs/cli.md')).toContain(`\`${command}`);
    expect(anchorsIn('docs/troubleshooting.md')).toContain(code);
  },
);

test('the contract says of each field what an agent does that knows only the contract', () => {
  const section = textOf('docs/contract.md').split('## 10. ')[1] ?? '';
  const firsts = [...section.matchAll(/^\| ([^|]+) \|/gm)].flatMap(([, cell = '']) =>
    [...cell.matchAll(/`(\w+)`/g)].map(([, name = '']) => name),
  );
  const fields = [ProjectCreate, BuildPayload, DeployPayload].flatMap(({ properties }) =>
    Object.keys(properties),
  );
  expect(firsts.toSorted()).toEqual([...new Set(fields)].toSorted());
});
