/** What a person needs to know of a run that broke something: what, and how to see it again. */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { RunResult } from './run.ts';

export function report({ seed, violations }: RunResult, flags = ''): string {
  const lines = [...new Set(violations.map((v) => `${v.invariant}: ${v.message.split('\n', 1)[0]}`))].slice(0, 5);
  const again = flags.includes('--postgres')
    ? `--seed ${seed}${flags} --repeat 20   (PostgreSQL's locks and the sockets are not seeded: it may take several runs to come again)`
    : `--seed ${seed}${flags} --trace`;
  return `seed ${seed}: ${violations.length} violations\n  ${lines.join('\n  ')}\n  again: npm run sim -- ${again}`;
}

/** Of a run that cannot be had again for sure: the path of its history, one JSON line an event. */
export function keepHistory({ seed, history }: RunResult): string {
  const path = join(mkdtempSync(join(tmpdir(), 'berth-sim-')), `seed-${seed}.jsonl`);
  writeFileSync(path, `${history.map((event) => JSON.stringify(event)).join('\n')}\n`);
  return path;
}
