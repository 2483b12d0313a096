/**
 * npm run test:faults: runs every fault with real parts (vitest project `faults`), then prints a
 * table of the rows with result and seconds. The last line is `N passed, N failed, N skipped`.
 * Arguments: files, or words of the rows' names.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const folder = join(root, '.tools', 'results');
const file = join(folder, 'faults.json');

type Report = {
  testResults: {
    name: string;
    status: string;
    message?: string;
    assertionResults: {
      status: string;
      title: string;
      ancestorTitles: string[];
      duration?: number | null;
    }[];
  }[];
};
const SIGN: Record<string, string> = { passed: '✓', failed: '✗' };

const given = process.argv.slice(2);
const files = given.filter((word) => word.startsWith('test/'));
const words = given.filter((word) => !word.startsWith('test/')).join(' ');
mkdirSync(folder, { recursive: true });
rmSync(file, { force: true });

const vitest = join(root, 'node_modules', '.bin', 'vitest');
const args = [
  'run',
  '--project',
  'faults',
  '--reporter=verbose',
  '--reporter=json',
  `--outputFile.json=${file}`,
  ...files,
];
if (words !== '')
  args.push('--testNamePattern', words.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`));
const child = spawn(process.execPath, [vitest, ...args], {
  cwd: root,
  stdio: 'inherit',
  env: process.env,
});
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => child.kill(signal));
const code = await new Promise<number>((resolve, reject) => {
  child.once('error', reject);
  child.once('exit', (ended) => resolve(ended ?? 1));
});

const total = { passed: 0, failed: 0, skipped: 0 };
const report = existsSync(file)
  ? (JSON.parse(readFileSync(file, 'utf8')) as Report)
  : { testResults: [] };
for (const testFile of report.testResults) {
  const rows = testFile.assertionResults;
  // A file or stage whose set-up failed has rows that never ran: that is a failure.
  if (testFile.status === 'failed' && rows.every((row) => row.status !== 'failed')) {
    total.failed++;
    console.log(`✗ ${testFile.name}: ${testFile.message ?? 'could not be set up'}`);
  }
  for (const row of rows) {
    // The words of the command line exclude other rows from this run.
    if (words !== '' && row.status !== 'passed' && row.status !== 'failed') continue;
    const sign = SIGN[row.status] ?? '–';
    total[row.status === 'passed' ? 'passed' : row.status === 'failed' ? 'failed' : 'skipped']++;
    console.log(
      `${sign} ${((row.duration ?? 0) / 1000).toFixed(1).padStart(6)} s  ` +
        [...row.ancestorTitles.slice(0, 1), row.title].join(' › '),
    );
  }
}
if (code !== 0 && total.failed === 0) total.failed++;
console.log(`\n${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`);
process.exitCode = total.failed === 0 ? 0 : 1;
