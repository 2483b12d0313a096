/** Measures the progress of one copy, for the deployment page and the deployment log. */
import { defined } from '@berth/kit/defined';
import type { CopyProgress } from '@berth/wire/dataset';
import type { WantedVersion } from './wanted-version.ts';

export type ProgressMeter = {
  now(): CopyProgress;
  step(step: CopyProgress['step'], bytesTotal?: number): void;
  bytes(done: number): void;
  /** Restarts the measurement for the next round, which can copy a newer version. */
  restart(want: WantedVersion): void;
};

/** The rate is averaged over this time in ms. */
const WINDOW_MS = 10_000;

export function createProgressMeter(
  want: WantedVersion,
  onChange: (progress: CopyProgress) => void,
  clock: () => number = () => performance.now(),
): ProgressMeter {
  let progress: CopyProgress = start(want);
  let samples: { at: number; bytes: number }[] = [];

  function rate(): number | null {
    const [first, last] = [samples[0], samples.at(-1)];
    if (first === undefined || last === undefined || last.at - first.at < 500) return null;
    return ((last.bytes - first.bytes) / (last.at - first.at)) * 1000;
  }
  const set = (change: Partial<CopyProgress>): void => {
    progress = { ...progress, ...change };
    onChange(progress);
  };
  return {
    now: () => progress,
    step(step, bytesTotal) {
      samples = [];
      set({
        step,
        bytes_per_second: null,
        remaining_seconds: null,
        ...defined({ bytes_total: bytesTotal }),
      });
    },
    bytes(done) {
      const at = clock();
      samples.push({ at, bytes: done });
      while (samples.length > 2 && at - (samples[0]?.at ?? at) > WINDOW_MS) samples.shift();
      const bytes_per_second = rate();
      const bytesLeft = Math.max(0, progress.bytes_total - done);
      const remaining_seconds =
        bytes_per_second === null || bytes_per_second === 0 ? null : bytesLeft / bytes_per_second;
      set({ bytes_done: done, bytes_per_second, remaining_seconds });
    },
    restart(next) {
      samples = [];
      progress = start(next);
      onChange(progress);
    },
  };
}

const start = (want: WantedVersion): CopyProgress => ({
  dataset_id: want.dataset_id,
  name: want.name,
  version: want.version,
  step: 'waiting',
  bytes_done: 0,
  bytes_total: 0,
  bytes_per_second: null,
  remaining_seconds: null,
});
