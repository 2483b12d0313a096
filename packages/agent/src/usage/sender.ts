/**
 * Measures and sends the containers' resource usage once a minute. While no control plane answers,
 * it keeps the points of the last hour. The control plane sets the time of the next reading;
 * without an answer, the next reading is after a minute.
 */
import type { Logger } from '@berth/kit/log';
import { ApiError, type Client } from '@berth/wire/client';
import { MAX_SENT_POINTS } from '@berth/wire/metrics';
import { pause } from '../stopped.ts';
import type { Measured, Meter } from './meter.ts';

export type UsageSenderDeps = {
  client: Pick<Client, 'call'>;
  meter: Pick<Meter, 'read'>;
  nodeId: () => string | null;
  log: Logger;
  clock?: () => number;
  pause?: typeof pause;
};

const MINUTE_MS = 60_000;
const FIRST_MS = 5_000;
const KEPT_MS = 55 * MINUTE_MS;
const MOST_KEPT = 20_000;
/** Wait of 10 min in ms if the control plane is an older version without this route. */
const UNKNOWN_ROUTE_MS = 10 * MINUTE_MS;

/** Runs until the signal aborts. */
export async function sendUsage(deps: UsageSenderDeps, signal: AbortSignal): Promise<void> {
  const { client, meter, nodeId, log, clock = () => performance.now(), pause: wait = pause } = deps;
  let waiting: Measured[] = [];
  let failures = 0;

  /** Sends a reading. Returns the time in ms until the next one. */
  async function send(): Promise<number> {
    let nextMs = MINUTE_MS;
    for (let node = nodeId(); waiting.length > 0 && node !== null; node = nodeId()) {
      const batch = waiting.slice(0, MAX_SENT_POINTS);
      const sentAt = clock();
      const points = batch.map(({ point, readAt }) => ({
        ...point,
        age_ms: Math.max(0, sentAt - readAt),
      }));
      const answer = await client.call('agentMetrics', { body: { node_id: node, points }, signal });
      waiting = waiting.slice(batch.length);
      nextMs = Math.min(Math.max(answer.next_ms, 1_000), 2 * MINUTE_MS);
    }
    return nextMs;
  }

  async function round(): Promise<number> {
    const measured = await meter.read();
    waiting = [...waiting.filter(({ readAt }) => clock() - readAt < KEPT_MS), ...measured].slice(
      -MOST_KEPT,
    );
    try {
      const nextMs = await send();
      failures = 0;
      return nextMs;
    } catch (error) {
      if (signal.aborted) return 0;
      if (error instanceof ApiError && error.status === 404) {
        waiting = [];
        return UNKNOWN_ROUTE_MS;
      }
      // Do not repeat a batch that the control plane refused as invalid.
      if (error instanceof ApiError && (error.status === 400 || error.status === 422))
        waiting = waiting.slice(MAX_SENT_POINTS);
      if (failures === 0)
        log.warn({ err: error }, 'sending what containers use failed; will retry');
      failures += 1;
      return MINUTE_MS;
    }
  }

  for (let nextMs = FIRST_MS; !signal.aborted; ) {
    await wait(nextMs, signal).catch(() => undefined);
    if (signal.aborted) return;
    nextMs = await round().catch((err: unknown) => {
      log.warn({ err }, 'reading what containers use failed; will retry');
      return MINUTE_MS;
    });
  }
}
