/** Reports a run that broke an invariant: the violations, and the command that repeats it. */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { RunResult } from './run.ts';

export function report({ seed, violations }: RunResult, flags = ''): string {
  const lines = [
    ...new Set(violations.map((v) => `${v.invariant}: ${v.message.split('\n', 1)[0]}`)),
  ].slice(0, 5);
  const again = flags.includes('--postgres')
    ? `--seed ${seed}${flags} --repeat 20   (PostgreSQL's locks and the sockets are not seeded: ` +
      'the failure may need several runs to occur again)'
    : `--seed ${seed}${flags} --trace`;
  return (
    `seed ${seed}: ${violations.length} violations\n  ${lines.join('\n  ')}\n  again: npm run ` +
    `sim -- ${again}`
  );
}

/**
 * Writes the history of a run that may not repeat itself, one JSON line for each event. Returns its
 * path.
 */
export function keepHistory({ seed, history }: RunResult): string {
  const path = join(mkdtempSync(join(tmpdir(), 'berth-sim-')), `seed-${seed}.jsonl`);
  writeFileSync(path, `${history.map((event) => JSON.stringify(event)).join('\n')}\n`);
  return path;
}
