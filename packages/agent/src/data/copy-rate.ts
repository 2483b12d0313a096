/** Bytes a second of this node's copies of late, kept over restarts: with it the control plane estimates when a deployment could start. */
import { readJson, writeWhole } from './disk.ts';

export type CopyRate = {
  /** Null: nothing was copied yet. */
  get(): number | null;
  /** From the first byte to the proof. */
  add(bytes: number, ms: number): Promise<void>;
};

/** Below it the time is that of the way, not of the bytes. */
const SMALL = 1024 * 1024;
const WEIGHT = 0.3;

export async function createCopyRate(path: string): Promise<CopyRate> {
  const kept = (await readJson(path)) as { bytes_per_second?: unknown } | null;
  let rate = typeof kept?.bytes_per_second === 'number' && kept.bytes_per_second > 0 ? kept.bytes_per_second : null;
  return {
    get: () => rate,
    async add(bytes, ms) {
      if (bytes === 0 || (bytes < SMALL && rate !== null)) return;
      const one = (bytes / Math.max(1, ms)) * 1000;
      rate = rate === null ? one : rate + WEIGHT * (one - rate);
      // It is an estimate: no copy fails because it cannot be kept.
      await writeWhole(path, JSON.stringify({ bytes_per_second: rate })).catch(() => undefined);
    },
  };
}
