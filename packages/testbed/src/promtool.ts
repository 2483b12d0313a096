import { spawnSync } from 'node:child_process';
import { findProgram } from './config.ts';

const program = findProgram('promtool');

/** Reason for skipping a test, appended to the test's name; empty where promtool is installed. */
export const noPromtool =
  program === undefined ? ' (skipped: no promtool; npm run setup fetches it)' : '';

/**
 * Returns the complaints of `promtool check metrics` about a page of metrics; [] for a clean page.
 */
export function checkMetrics(page: string): string[] {
  if (program === undefined)
    throw new Error('promtool is not installed (npm run setup fetches it)');
  const { status, stdout, stderr, error } = spawnSync(program, ['check', 'metrics'], {
    input: page,
    encoding: 'utf8',
  });
  const findings = `${stdout ?? ''}${stderr ?? ''}${error?.message ?? ''}`
    .split('\n')
    .filter((line) => line !== '');
  return status === 0 || findings.length > 0 ? findings : [`promtool ended with ${status}`];
}
