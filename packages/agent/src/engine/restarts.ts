/**
 * Counts how often the engine restarted each container in the last ten minutes, from its restart
 * counter. Restarts before the start of this process count only if the container is younger than
 * that.
 */
import type { Container } from './docker.ts';

const WINDOW_MS = 600_000;

export type Restarts = {
  /** Replaces the list of containers. Call it with each list of the engine. */
  seen(containers: readonly Pick<Container, 'id' | 'restarts'>[]): void;
  /** Returns the number of restarts in the last ten minutes. */
  of(container: Pick<Container, 'id'>): number;
};

/** When the counter of a container had which value. */
type Sample = { at: number; count: number };

/** `now`: monotonic clock in ms. */
export function createRestarts(now: () => number = () => performance.now()): Restarts {
  let samples = new Map<string, Sample[]>();
  let isFirstList = true;
  return {
    seen(containers) {
      const at = now();
      samples = new Map(
        containers.map(({ id, restarts: count }) => {
          const before = samples.get(id) ?? (isFirstList ? [] : [{ at, count: 0 }]);
          return [id, withinWindow(added(before, { at, count }), at)];
        }),
      );
      isFirstList = false;
    },
    of({ id }) {
      const all = withinWindow(samples.get(id) ?? [], now());
      return (all.at(-1)?.count ?? 0) - (all[0]?.count ?? 0);
    },
  };
}

/** The counter of a container begins again at 0 when the agent or a person starts it. */
function added(before: readonly Sample[], sample: Sample): Sample[] {
  const last = before.at(-1);
  if (last?.count === sample.count) return [...before];
  return last !== undefined && sample.count < last.count ? [sample] : [...before, sample];
}

/** Keeps the samples of the window, and the one that holds at its begin. */
function withinWindow(all: readonly Sample[], at: number): Sample[] {
  const first = all.findLastIndex((sample) => sample.at <= at - WINDOW_MS);
  return first <= 0 ? [...all] : all.slice(first);
}
