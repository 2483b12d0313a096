/**
 * Removes expired data of deployments, logs and nodes (store/retention.ts) in steps of a few
 * milliseconds. It uses a tenth of the time while people use the API, otherwise half of the time.
 * An unfinished pass continues in the next run.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type {
  Removed,
  RetentionPass,
  Keep,
  RetentionStore,
} from '../domain/deployments/retention.ts';
import type { Presence } from '../domain/identity/presence.ts';
import type { Logger } from '@berth/kit/log';

const ONE_RUN_MS = 20_000;
/** Lifetime of a claim in ms, longer than a run and the pause after it. */
const CLAIM_MS = 60_000;
const BETWEEN_PASSES_MS = 10 * 60_000;
const SHORTEST_REST_MS = 20;
const LONGEST_REST_MS = 500;

export type Deps = {
  retention: Pick<RetentionStore, 'begin' | 'claim'>;
  presence: Pick<Presence, 'arePeopleHere'>;
  keep: Keep;
  log: Logger;
  now: () => number;
};

export const deploymentRetention = ({
  retention,
  presence,
  keep,
  now,
  log,
}: Deps): ((signal: AbortSignal) => Promise<void>) => {
  const me = randomUUID();
  let pass: RetentionPass | null = null;
  let nextPassAt = 0;

  async function work(signal: AbortSignal): Promise<void> {
    const until = performance.now() + ONE_RUN_MS;
    pass ??= await retention.begin(keep, now);
    while (!signal.aborted && performance.now() < until) {
      const began = performance.now();
      const step = await pass.next();
      if (step.done === true) {
        pass = null;
        nextPassAt = performance.now() + BETWEEN_PASSES_MS;
        logRemoved(step.value);
        return;
      }
      await rest(performance.now() - began, signal);
    }
  }

  const rest = async (worked: number, signal: AbortSignal): Promise<void> => {
    const ms = presence.arePeopleHere()
      ? Math.min(Math.max(9 * worked, SHORTEST_REST_MS), LONGEST_REST_MS)
      : worked;
    await sleep(ms, undefined, { signal }).catch(
      (error: unknown) => signal.aborted || Promise.reject(error),
    );
  };

  function logRemoved({ thinned, logs, nodes }: Removed): void {
    if (thinned + logs > 0)
      log.info({ deployments: thinned, logs }, 'retention removed the history of old deployments');
    if (nodes.length > 0)
      log.info(
        { nodes },
        'retention removed nodes that were silent for too long and had nothing on them',
      );
  }

  return async (signal) => {
    if (pass === null && performance.now() < nextPassAt) return;
    if (!(await retention.claim(me, now(), now() + CLAIM_MS))) {
      pass = null;
      return;
    }
    try {
      await work(signal);
    } catch (error) {
      // Drop the pass: it cannot continue after an error. The next pass does the rest.
      pass = null;
      throw error;
    }
  };
};
