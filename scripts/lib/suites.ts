/**
 * Gates and suites of `npm run check` and `npm test`, counted in one place. A gate counts as one
 * test.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join, relative } from 'node:path';
import { stripVTControlCharacters } from 'node:util';

const root = join(import.meta.dirname, '..', '..');
const bin = (name: string): string => join(root, 'node_modules', '.bin', name);
const results = join(root, '.tools', 'results');

type Counts = { passed: number; failed: number; skipped: number };
const total: Counts = { passed: 0, failed: 0, skipped: 0 };
/** Gates and tests that failed, each with the first lines of its message (empty: none). */
const trouble = new Map<string, string>();
const skipped: string[] = [];

/** Parts whose tests must not be skipped. CI names the parts that it has. */
const required = (process.env['BERTH_REQUIRE'] ?? '').split(',').filter((name) => name !== '');

function run(
  program: string,
  args: string[],
  quiet: boolean,
  env: NodeJS.ProcessEnv = {},
): Promise<{ code: number; output: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [program, ...args], {
      cwd: root,
      stdio: ['ignore', quiet ? 'pipe' : 'inherit', quiet ? 'pipe' : 'inherit'],
      env: { ...env, ...process.env },
    });
    let output = '';
    child.stdout?.on('data', (chunk: Buffer) => (output += chunk.toString()));
    child.stderr?.on('data', (chunk: Buffer) => (output += chunk.toString()));
    child.once('error', reject);
    child.once('close', (code) => resolve({ code: code ?? 1, output }));
  });
}

/**
 * tsc and tsgolint are Go programs. Fewer garbage collections save a fifth of their CPU time and
 * cost 0.7 GB of memory.
 */
const LESS_OFTEN = { GOGC: '300' };

async function gate(name: string, program: string, args: string[]): Promise<void> {
  const from = performance.now();
  const { code, output } = await run(program, args, true, LESS_OFTEN);
  const seconds = ((performance.now() - from) / 1000).toFixed(1);
  total[code === 0 ? 'passed' : 'failed']++;
  console.log(`${code === 0 ? '✓' : '✗'} ${name} (${seconds} s)`);
  if (code !== 0) {
    trouble.set(name, '');
    console.log(output.trimEnd());
  }
}

type Report = {
  testResults: {
    name: string;
    status: string;
    message?: string;
    assertionResults: {
      status: string;
      fullName: string;
      ancestorTitles: string[];
      failureMessages?: string[] | null;
    }[];
  }[];
};

/** Runs one vitest project and counts its tests. */
export async function suite(
  project: 'unit' | 'slow' | 'real' | 'alone' | 'install',
  filters: string[],
  reporter: 'default' | 'dot' = 'default',
): Promise<void> {
  const file = join(results, `${project}.json`);
  mkdirSync(results, { recursive: true });
  rmSync(file, { force: true });
  const { code } = await run(
    bin('vitest'),
    [
      'run',
      '--project',
      project,
      `--reporter=${reporter}`,
      '--reporter=json',
      `--outputFile.json=${file}`,
      '--passWithNoTests',
      ...filters,
    ],
    false,
  );
  const report = existsSync(file)
    ? (JSON.parse(readFileSync(file, 'utf8')) as Report)
    : { testResults: [] };
  let failed = 0;
  for (const testFile of report.testResults) {
    // A file whose set-up failed has tests that never ran: that is a failure.
    if (
      testFile.status === 'failed' &&
      testFile.assertionResults.every((a) => a.status !== 'failed')
    ) {
      failed++;
      trouble.set(relative(root, testFile.name), firstLines(testFile.message));
    }
    for (const result of testFile.assertionResults) {
      const { status, fullName, ancestorTitles } = result;
      if (status === 'passed') total.passed++;
      else if (status === 'failed') {
        failed++;
        trouble.set(fullName, firstLines(result.failureMessages?.[0]));
      } else {
        total.skipped++;
        skipped.push(ancestorTitles[0] ?? fullName);
      }
    }
  }
  if (code !== 0 && failed === 0) failed = 1;
  if (failed > 0) trouble.set(`suite ${project}`, '');
  total.failed += failed;
}

/** Returns the first lines of a failure, indented: a log may keep only the end of the output. */
function firstLines(message = ''): string {
  const lines = stripVTControlCharacters(message)
    .split('\n')
    .filter((line) => line.trim() !== '');
  return lines
    .slice(0, 6)
    .map((line) => `\n      ${line.slice(0, 200)}`)
    .join('');
}

/** Runs every gate, one after the other. */
export async function gates(): Promise<void> {
  await gate('types', bin('tsc'), ['-p', 'tsconfig.json']);
  await gate('types of the dashboard', bin('tsc'), ['-p', 'packages/dashboard/tsconfig.json']);
  await gate('lint, with the arrows', bin('oxlint'), ['--type-aware', '--deny-warnings']);
  await gate('format', bin('biome'), ['format', '.']);
  await gate('no dead code', bin('knip'), []);
}

/**
 * Prints what failed and what was skipped, then the line `N passed, N failed, N skipped`; sets the
 * exit code.
 */
export function conclude(): void {
  for (const reason of new Set(skipped)) console.log(`skipped: ${reason}`);
  for (const name of required) {
    const missed = skipped.filter((reason) => reason.toLowerCase().includes(name.toLowerCase()));
    if (missed.length === 0) continue;
    total.failed++;
    trouble.set(
      `${missed.length} tests that need ${name} were skipped, but BERTH_REQUIRE asks for it`,
      '',
    );
  }
  if (trouble.size > 0) console.log('\nfailed:');
  for (const [name, message] of trouble) console.log(`  ${name}${message}`);
  console.log(`\n${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`);
  process.exitCode = total.failed === 0 ? 0 : 1;
}
