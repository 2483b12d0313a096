/**
 * Averages the speed of this node's recent copies in bytes per second, and saves it to disk. The
 * control plane uses it to estimate when a deployment can start.
 */
import { readJson, writeWhole } from '../file-system.ts';

export type CopyRate = {
  /** Returns the rate in bytes per second; null before the first copy. */
  get(): number | null;
  /** Adds a copy. `ms`: from the first byte to the end of the verification. */
  add(bytes: number, ms: number): Promise<void>;
};

/** Smaller copies do not change the rate, because they measure latency instead of throughput. */
const MIN_BYTES = 1024 * 1024;
const WEIGHT = 0.3;

export async function createCopyRate(path: string): Promise<CopyRate> {
  const saved = (await readJson(path)) as { bytes_per_second?: unknown } | null;
  let rate =
    typeof saved?.bytes_per_second === 'number' && saved.bytes_per_second > 0
      ? saved.bytes_per_second
      : null;
  return {
    get: () => rate,
    async add(bytes, ms) {
      if (bytes === 0 || (bytes < MIN_BYTES && rate !== null)) return;
      const one = (bytes / Math.max(1, ms)) * 1000;
      rate = rate === null ? one : rate + WEIGHT * (one - rate);
      // A copy must not fail because the rate, an estimate, cannot be saved.
      await writeWhole(path, JSON.stringify({ bytes_per_second: rate })).catch(() => undefined);
    },
  };
}
