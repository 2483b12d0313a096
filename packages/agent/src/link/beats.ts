/**
 * Tells the control plane that this agent works, so that it notices within FAILOVER_AFTER that the
 * machine is gone. Registrations (30 s) and held polls (up to 280 s) are too rare for that.
 *
 *   off ── an answer to a registration names `beat_seconds` ──▶ on: one request each interval
 *   on  ── an answer names none (an older control plane) ──▶ off
 *
 * A beat does not wait for the previous one, and its time limit is one interval, so a hanging
 * connection delays nothing.
 */
import type { Logger } from '@berth/kit/log';
import { ApiError, type Client } from '@berth/wire/client';

export type BeatDeps = {
  client: Client;
  nodeId: () => string | null;
  /**
   * Called when a control plane does not know the request: an older one beside the newer one. Its
   * answer to a registration ends the beats.
   */
  onUnknown: () => void;
  log: Logger;
  signal: AbortSignal;
};
export type Beats = {
  /** `seconds`: `beat_seconds` of the last answer to a registration. */
  every(seconds: number | undefined): void;
};

const LONGEST_MS = 5_000;

export function createBeats({ client, nodeId, onUnknown, log, signal }: BeatDeps): Beats {
  let interval: number | undefined;
  let timer: NodeJS.Timeout | undefined;

  async function beat(ms: number): Promise<void> {
    const node_id = nodeId();
    if (node_id === null) return;
    const inTime = AbortSignal.any([signal, AbortSignal.timeout(Math.min(ms, LONGEST_MS))]);
    try {
      await client.call('agentBeat', { query: { node_id }, signal: inTime });
    } catch (err) {
      if (signal.aborted) return;
      log.debug({ err }, 'beat failed');
      if (err instanceof ApiError && err.status === 404) onUnknown();
    }
  }

  signal.addEventListener('abort', () => clearInterval(timer), { once: true });
  return {
    every(seconds) {
      if (seconds === interval || signal.aborted) return;
      interval = seconds;
      clearInterval(timer);
      if (seconds === undefined) return;
      // A third of FAILOVER_AFTER can have a fraction, which AbortSignal.timeout refuses.
      const ms = Math.max(1, Math.round(seconds * 1000));
      void beat(ms);
      timer = setInterval(() => void beat(ms), ms);
      timer.unref();
    },
  };
}
