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
const reports = join(root, '.tools', 'results');

type Counts = { passed: number; failed: number; skipped: number };
const total: Counts = { passed: 0, failed: 0, skipped: 0 };
/** Gates and tests that failed, each with the first lines of its message (empty: none). */
const trouble = new Map<string, string>();
const skipped: string[] = [];
/** Tests that failed and passed at the second attempt, with the first lines of their failure. */
const unstable = new Map<string, string>();

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

type Project = 'unit' | 'slow' | 'real' | 'alone' | 'install';
type Reporter = 'default' | 'dot';
/** One test, or a file whose set-up failed: its tests never ran, and that is a failure. */
type Result = {
  file: string;
  name: string;
  /** Name of the outermost group, which holds the reason of a skip. */
  group: string;
  status: 'passed' | 'failed' | 'skipped';
  message: string;
};

/**
 * Projects on real parts, where a busy machine can make one test of hundreds fail. The files of the
 * failed tests run a second time with nothing beside them. A test that passes then is counted as
 * passed and is listed as unstable, with its first error.
 */
const TWICE: readonly Project[] = ['real', 'alone'];
/** With more files than this, the cause is no chance. */
const MOST_TWICE = 3;

/** Runs one vitest project and counts its tests. */
export async function suite(
  project: Project,
  filters: string[],
  reporter: Reporter = 'default',
): Promise<void> {
  const { code, results } = await runVitest(project, filters, reporter);
  const again =
    TWICE.includes(project) && filters.length === 0 ? await runFailedAgain(project, results) : [];
  let failed = 0;
  for (const result of results) {
    const { name, group, message } = result;
    if (result.status === 'skipped') skipped.push(group);
    const isUnstable = result.status === 'failed' && hasPassed(again, result);
    if (isUnstable) unstable.set(name, message);
    const status = isUnstable ? 'passed' : result.status;
    total[status]++;
    if (status !== 'failed') continue;
    failed++;
    trouble.set(name, message);
  }
  // vitest failed without a failed test: an error between the tests, or no report at all.
  if (code !== 0 && results.every(({ status }) => status !== 'failed')) {
    failed++;
    total.failed++;
  }
  if (failed > 0) trouble.set(`suite ${project}`, '');
}

const hasPassed = (again: readonly Result[], { file, name }: Result): boolean => {
  const ofFile = again.filter((result) => result.file === file);
  // A set-up that failed has the name of its file.
  if (name === file) return ofFile.length > 0 && ofFile.every(({ status }) => status !== 'failed');
  return ofFile.some((result) => result.name === name && result.status === 'passed');
};

async function runFailedAgain(project: Project, results: readonly Result[]): Promise<Result[]> {
  const files = new Set(results.filter((r) => r.status === 'failed').map(({ file }) => file));
  if (files.size === 0 || files.size > MOST_TWICE) return [];
  const again: Result[] = [];
  for (const file of files) {
    console.log(`\n${file} failed; it runs a second time, with nothing beside it`);
    again.push(...(await runVitest(project, [file], 'default', `${project}-again`)).results);
  }
  return again;
}

async function runVitest(
  project: Project,
  filters: string[],
  reporter: Reporter,
  report: string = project,
): Promise<{ code: number; results: Result[] }> {
  const file = join(reports, `${report}.json`);
  mkdirSync(reports, { recursive: true });
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
  if (!existsSync(file)) return { code, results: [] };
  const { testResults } = JSON.parse(readFileSync(file, 'utf8')) as Report;
  return { code, results: testResults.flatMap(resultsOfFile) };
}

function resultsOfFile(testFile: Report['testResults'][number]): Result[] {
  const file = relative(root, testFile.name);
  const tests = testFile.assertionResults.map(
    (test): Result => ({
      file,
      name: test.fullName,
      group: test.ancestorTitles[0] ?? test.fullName,
      status: test.status === 'passed' || test.status === 'failed' ? test.status : 'skipped',
      message: firstLines(test.failureMessages?.[0]),
    }),
  );
  if (testFile.status !== 'failed' || tests.some(({ status }) => status === 'failed')) return tests;
  return [
    ...tests,
    { file, name: file, group: file, status: 'failed', message: firstLines(testFile.message) },
  ];
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
  if (unstable.size > 0) console.log('\nunstable (failed, then passed with nothing beside it):');
  for (const [name, message] of unstable) console.log(`  ${name}${message}`);
  if (trouble.size > 0) console.log('\nfailed:');
  for (const [name, message] of trouble) console.log(`  ${name}${message}`);
  console.log(`\n${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`);
  process.exitCode = total.failed === 0 ? 0 : 1;
}
