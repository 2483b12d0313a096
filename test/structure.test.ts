/** Conventions that no compiler or linter checks, and what documents say about the code. */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { ON_THE_MACHINE } from '../bin/launch.mjs';
import { MACHINE_COMMANDS } from '../packages/cli/src/commands/machine.ts';
import { COMMANDS } from '../packages/cli/src/commands/table.ts';
import { generatedParts, machineUsage, routeLines, withParts } from '../scripts/docs.ts';

const ROOT = path.resolve(import.meta.dirname, '..');
const files = (...patterns: string[]): string[] =>
  globSync(patterns, { cwd: ROOT, exclude: (name) => name.includes('node_modules') }).toSorted();
const read = (file: string): string => readFileSync(path.join(ROOT, file), 'utf8');
/**
 * Returns a file without comments, because a comment may mention `sh -c`. Strings stay; the colon
 * before a `//` keeps URLs.
 */
const codeOf = (file: string): string =>
  read(file)
    .replaceAll(/\/\*[^]*?\*\//g, '')
    .replaceAll(/(^|[^:'"`\\])\/\/.*$/gm, '$1');
/** Searches whole files, because a breach may span several lines. */
const where = (list: string[], breach: RegExp): string[] =>
  list.flatMap((file) =>
    [...codeOf(file).matchAll(new RegExp(breach, 'g'))].map(
      (match) => `${file}: ${match[0].slice(0, 100)}`,
    ),
  );

const sources = files('packages/*/src/**/*.ts', 'packages/*/src/**/*.tsx');
const programs = [
  ...sources,
  ...files('scripts/**/*.ts', 'scripts/**/*.mjs', 'bench/**/*.ts', 'bench/**/*.mjs'),
  'bin/berth',
];

/**
 * Each breach has texts that it must find and texts that it must not find, so that each one can
 * fail.
 */
const BREACHES = {
  environment: {
    pattern:
      /process\s*(\?\.|\.)\s*env\b|process\[['"]env|\benv\b.*from ['"]node:process['"]|import\.meta\.env/,
    finds: [
      "const a = process.env['A'];",
      "process['env']",
      "import { env } from 'node:process';",
      'process?.env',
      'import.meta.env.A',
    ],
    passes: [
      "import { argv } from 'node:process';",
      'const env = options.env;',
      'process.envelope',
    ],
  },
  shell: {
    pattern:
      /shell:\s*(true|['"`])|\b(exec|execSync)\b[^;]*from ['"]node:child_process['"]|child_process\.(exec|execSync)\b|\b(ba|da|z)?sh['"`]?\s*,?\s*\[?\s*['"`]?-[a-z]*c\b/,
    finds: [
      'spawn(x, { shell: true })',
      "import { exec } from 'node:child_process';",
      "spawn('sh', ['-c', text])",
      "['/bin/bash', '-lc', text]",
      "['sh',\n '-c',",
      '`sh -c ${x}`',
      'child_process.execSync(x)',
    ],
    passes: [
      "import { exec } from '@berth/kit/exec';",
      "import { execFile, spawn } from 'node:child_process';",
      "['git', '-c', 'a=b']",
      "['ssh', '-C']",
    ],
  },
} as const;

test.each(Object.entries(BREACHES))(
  'the search for %s finds what it should',
  (_, { pattern, finds, passes }) => {
    expect(finds.filter((text) => !pattern.test(text))).toEqual([]);
    expect(passes.filter((text) => pattern.test(text))).toEqual([]);
  },
);

test('the environment is read in config.ts alone', () => {
  const others = sources.filter((file) => path.basename(file) !== 'config.ts');
  expect(where(others, BREACHES.environment.pattern)).toEqual([]);
});

/**
 * Names the shell of a HEALTHCHECK, and the one that signals a command of `berth exec`. The engine
 * runs both inside the container, with a constant text.
 */
const INSIDE_CONTAINERS = ['image-config.ts', 'exec-session.ts'].map((file) =>
  path.join('packages', 'agent', 'src', 'engine', file),
);

test('no program is given to a shell', () => {
  const outside = programs.filter((file) => !INSIDE_CONTAINERS.some((one) => file.endsWith(one)));
  expect(where(outside, BREACHES.shell.pattern)).toEqual([]);
  expect(outside).toHaveLength(programs.length - INSIDE_CONTAINERS.length);
});

describe('imports of packages/*/src', () => {
  /** Types and `import()` count too: the lint rule does not see a cycle that one of them closes. */
  const IMPORT = /\b(?:from|import)\s*\(?\s*'([^']+)'/g;
  const importsOf = (file: string): string[] =>
    [...codeOf(file).matchAll(IMPORT)].flatMap(([, name = '']) => {
      if (name.startsWith('.')) return path.join(path.dirname(file), name);
      const [, berthPackage, module] = /^@berth\/([^/]+)\/(.+)$/.exec(name) ?? [];
      if (berthPackage === undefined) return [];
      return ['.ts', '.tsx'].map((end) => `packages/${berthPackage}/src/${module}${end}`);
    });

  /** Returns the files from which imports lead back to themselves, in the order of the walk. */
  function cycleIn(graph: ReadonlyMap<string, readonly string[]>): string[] {
    const done = new Set<string>();
    const walk = (file: string, trail: readonly string[]): string[] => {
      if (trail.includes(file)) return [...trail.slice(trail.indexOf(file)), file];
      if (done.has(file)) return [];
      for (const next of graph.get(file) ?? []) {
        const cycle = walk(next, [...trail, file]);
        if (cycle.length > 0) return cycle;
      }
      done.add(file);
      return [];
    };
    for (const file of graph.keys()) {
      const cycle = walk(file, []);
      if (cycle.length > 0) return cycle;
    }
    return [];
  }

  test('the search finds a cycle', () => {
    const graph = new Map([
      ['a', ['b', 'c']],
      ['b', []],
      ['c', ['d']],
      ['d', ['c']],
    ]);
    expect(cycleIn(graph)).toEqual(['c', 'd', 'c']);
    expect(cycleIn(new Map([['a', ['b']]]))).toEqual([]);
  });

  test('the search sees types, dynamic imports and other packages', () => {
    const edges = (file: string): string[] => importsOf(path.join('packages', file));
    const targets = edges('control-plane/src/backup/targets.ts');
    expect(targets).toContain('packages/control-plane/src/backup/s3.ts');
    expect(targets).toContain('packages/control-plane/src/backup/target.ts');
    expect(targets).toContain('packages/kit/src/write-file.ts');
  });

  test('no file imports itself, through any number of files', () => {
    expect(cycleIn(new Map(sources.map((file) => [file, importsOf(file)])))).toEqual([]);
  });
});

describe('every source file', () => {
  // knip treats each file under src/ as an entry (`"./*"` in exports): it finds dead exports, not
  // unused files. A file that starts as a process or a thread may have no export.
  const started = sources
    .concat('packages/dashboard/index.html')
    .flatMap((file) =>
      [...read(file).matchAll(/new URL\('([^']+\.ts)', import\.meta\.url\)|src="\/([^"]+)"/g)].map(
        (match) => path.join(path.dirname(file), match[1] ?? match[2] ?? ''),
      ),
    );
  test('exports something', () => {
    expect(
      sources.filter((file) => !/^export /m.test(read(file)) && !started.includes(file)),
    ).toEqual([]);
  });
  test('main.ts exports main and nothing else', () => {
    const exportsOf = (file: string): string[] =>
      [...read(file).matchAll(/^export (.*?)[({=;]/gm)].map((m) => m[1] ?? '');
    for (const file of files('packages/*/src/main.ts'))
      expect(exportsOf(file), file).toEqual(['async function main']);
  });
});

describe('generated parts of documents equal the code (`npm run docs` writes them)', async () => {
  const parts = await generatedParts();
  test.each(Object.keys(parts))('%s', (file) => {
    expect(read(file)).toBe(withParts(read(file), parts[file] ?? {}));
  });
});

test('the routes equal the snapshot (after an intended change: `npx vitest run test/structure.test.ts -u`)', async () => {
  await expect(`${routeLines().join('\n')}\n`).toMatchFileSnapshot('routes.snapshot.txt');
});

/**
 * bin/launch.mjs, the table of help and completion, and the help of each program name the same
 * commands and options.
 */
describe('commands of a machine', () => {
  const TABLE = 'packages/cli/src/commands/machine.ts';
  const optionsIn = (help: string): string[] =>
    [...new Set([...help.matchAll(/(?<![\w-])--[a-z][a-z-]+/g)].map(([option]) => option))].sort();

  test(`each command of bin/launch.mjs is a row of ${TABLE}, and each row a command`, () => {
    expect(Object.keys(MACHINE_COMMANDS).sort()).toEqual(Object.keys(ON_THE_MACHINE).sort());
    expect(
      COMMANDS.filter(({ name }) => Object.hasOwn(ON_THE_MACHINE, name.split(' ')[0] ?? '')),
    ).toEqual([]);
  });

  test.each(Object.entries(MACHINE_COMMANDS))(
    `berth %s: its row in ${TABLE} has the options and verbs of its --help`,
    async (name, row) => {
      const help = await machineUsage(name);
      expect(help).toMatch(new RegExp(`^Usage: berth ${name}\\b`));
      expect(row.options.toSorted()).toEqual(
        optionsIn(
          help.replaceAll(new RegExp(`berth (?!${name}\\b)\\w+ --[a-z-]+`, 'g'), ''),
        ).filter((option) => option !== '--help'),
      );
      for (const verb of Object.keys(row.verbs ?? {}))
        expect(help).toMatch(new RegExp(`\\b${verb}\\b`));
      expect(row.summary).toMatch(/^[A-Z].*[^.]$/);
      expect(row.example[0]).toMatch(new RegExp(`^berth ${name}\\b`));
    },
  );
});

/**
 * The wall clock of a machine may jump, so durations use `performance.now()`. These files need the
 * time of day, the age of a file, or a time that another process wrote.
 */
const MAY_READ_THE_WALL_CLOCK: Record<string, readonly string[]> = {
  agent: [
    'data/pins.ts',
    'data/trees.ts',
    'data/volumes/inventory.ts',
    'data/work-folders.ts',
    'disk/old-images.ts',
    'engine/running-probe.ts',
    'logs/readers.ts',
    'metrics.ts',
    'tasks/run-task.ts',
    'tasks/run.ts',
    'tasks/task-trace.ts',
    'usage/meter.ts',
  ],
  cli: ['commands/logs.ts', 'commands/metrics.ts', 'main.ts'],
  'control-plane': [
    'admin.ts',
    'api/gauges/process-gauges.ts',
    'api/traces.ts',
    'app.ts',
    'backup/commands.ts',
    'backup/snapshot.ts',
    'backup/targets.ts',
    'monitor/child/run-scan.ts',
    'notify/post.ts',
    'platform.ts',
    'rotation.ts',
    'store/engine/database.ts',
    'store/engine/migrations/0039_prefix_claims.ts',
    'store/open.ts',
  ],
  gateway: ['app.ts', 'metrics.ts', 'traces.ts'],
  kit: ['loop.ts', 'write-file.ts'],
  operator: ['doctor/system.ts', 'install/checks.ts', 'rotate/run.ts', 'upgrade/run.ts'],
  proxy: [],
  relay: ['config-store.ts', 'metrics.ts', 'server.ts'],
  wire: [],
};
test.each(Object.entries(MAY_READ_THE_WALL_CLOCK))(
  'no other file of packages/%s measures a duration by the wall clock',
  (name, files) => {
    const folder = path.join(ROOT, 'packages', name, 'src');
    const found = globSync('**/*.ts', { cwd: folder }).filter((file) =>
      /\bDate\.now\b/.test(readFileSync(path.join(folder, file), 'utf8')),
    );
    expect(found.toSorted()).toEqual(files);
  },
);
