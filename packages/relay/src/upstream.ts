/**
 * Follows the control plane's configuration with long polls. While the control plane is
 * unreachable, the stored configuration is served.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { defined } from '@berth/kit/defined';
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import { isConfiguration, type ConfigStore } from './config-store.ts';

export type Upstream = {
  /** The last error; null while the control plane answers. */
  problem(): string | null;
  stop(): Promise<void>;
};

const WAIT_SECONDS = 20;
const GRACE_MS = 10_000;
const MAX_BYTES = 256 * 1024 * 1024;
/** Shortest pause between two requests. */
const MIN_PAUSE_MS = 25;
/** Pause if the control plane does not hold requests. */
const NOT_HELD_MS = 1_000;
const RETRY = { min: 100, max: 2_000 };

export function followUpstream(controlPlaneUrl: string, store: ConfigStore, log: Logger): Upstream {
  const abort = new AbortController();
  const { signal } = abort;
  const url = `${controlPlaneUrl}/api/traefik/config?wait=${WAIT_SECONDS}`;
  let etag: string | null = null;
  let problem: string | null = 'no request yet';

  /** Sends one request. Returns true if the answer contained a configuration. */
  async function ask(): Promise<boolean> {
    const response = await fetch(url, {
      headers: { accept: 'application/json', ...defined({ 'if-none-match': etag ?? undefined }) },
      signal: AbortSignal.any([signal, AbortSignal.timeout(WAIT_SECONDS * 1000 + GRACE_MS)]),
    });
    if (response.status === 304) {
      await store.confirm();
      return false;
    }
    if (response.status !== 200)
      throw new Error(`the control plane answered with status ${response.status}`);
    if (Number(response.headers.get('content-length') ?? 0) > MAX_BYTES)
      throw new Error(`the configuration exceeds ${MAX_BYTES} bytes`);
    const bytes = Buffer.from(await response.arrayBuffer());
    if (!isConfiguration(bytes))
      throw new Error('the control plane’s answer is not a configuration');
    await store.put(bytes);
    etag = response.headers.get('etag');
    return true;
  }

  async function follow(): Promise<void> {
    for (let failures = 0; !signal.aborted; ) {
      const started = performance.now();
      let pauseMs = MIN_PAUSE_MS;
      try {
        const changed = await ask();
        if (!changed && performance.now() - started < NOT_HELD_MS) pauseMs = NOT_HELD_MS;
        if (failures > 0) log.info({ url }, 'the control plane answers again');
        failures = 0;
        problem = null;
      } catch (error) {
        if (signal.aborted) return;
        problem = reasonOf(error);
        pauseMs = backoff(failures, RETRY);
        failures += 1;
        // Log only the first failure, so that a long outage does not fill the log.
        if (failures === 1)
          log.warn(
            { err: error, url },
            'request to the control plane failed; its last configuration stays in use',
          );
      }
      await pause(pauseMs, undefined, { signal, ref: false }).catch((error: unknown) => {
        if (!signal.aborted) throw error;
      });
    }
  }
  const following = follow();
  return {
    problem: () => problem,
    async stop() {
      abort.abort();
      await following;
    },
  };
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? error.cause.message || error.message : error.message;
}
