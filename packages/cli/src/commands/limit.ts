/** The option `--limit`. */
import { usage } from '../problem.ts';

export function limitOf(given: unknown): number {
  const limit = (given as number | undefined) ?? 50;
  if (!Number.isInteger(limit) || limit < 1)
    throw usage('--limit must be a whole number of at least 1');
  return limit;
}
