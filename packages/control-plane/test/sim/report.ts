/** What a person needs to know of a run that broke something: what, and how to see it again. */
import type { RunResult } from './run.ts';

export function report({ seed, violations }: RunResult, flags = ''): string {
  const lines = [...new Set(violations.map((v) => `${v.invariant}: ${v.message}`))].slice(0, 5);
  return `seed ${seed}: ${violations.length} violations\n  ${lines.join('\n  ')}\n  again: npm run sim -- --seed ${seed}${flags} --trace`;
}
