/** Follows the control plane's configuration: a held request again and again; while it is away, what is kept goes on being served. */
import { setTimeout as pause } from 'node:timers/promises';
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import { isConfiguration, type Kept } from './kept.ts';

export type Upstream = {
  /** Null while it answers; else what it said last. */
  trouble(): string | null;
  stop(): Promise<void>;
};

const WAIT_SECONDS = 20;
const GRACE_MS = 10_000;
const MAX_BYTES = 256 * 1024 * 1024;
/** A control plane that does not hold requests is asked no more often than this. */
const LEAST_MS = 25;
const NOT_HELD_MS = 1_000;
const RETRY = { min: 100, max: 2_000 };

export function followUpstream(controlPlaneUrl: string, kept: Kept, log: Logger): Upstream {
  const abort = new AbortController();
  const { signal } = abort;
  const url = `${controlPlaneUrl}/api/traefik/config?wait=${WAIT_SECONDS}`;
  let etag: string | null = null;
  let trouble: string | null = 'not asked yet';

  /** Whether something new came. */
  async function ask(): Promise<boolean> {
    const response = await fetch(url, {
      headers: { accept: 'application/json', ...(etag === null ? {} : { 'if-none-match': etag }) },
      signal: AbortSignal.any([signal, AbortSignal.timeout(WAIT_SECONDS * 1000 + GRACE_MS)]),
    });
    if (response.status === 304) {
      await kept.confirm();
      return false;
    }
    if (response.status !== 200) throw new Error(`the control plane answered ${response.status}`);
    if (Number(response.headers.get('content-length') ?? 0) > MAX_BYTES) throw new Error(`more than ${MAX_BYTES} bytes`);
    const bytes = Buffer.from(await response.arrayBuffer());
    if (!isConfiguration(bytes)) throw new Error('the control plane’s answer is no configuration');
    await kept.put(bytes);
    etag = response.headers.get('etag');
    return true;
  }

  async function follow(): Promise<void> {
    for (let failures = 0; !signal.aborted; ) {
      const started = performance.now();
      let rest = LEAST_MS;
      try {
        const news = await ask();
        if (!news && performance.now() - started < NOT_HELD_MS) rest = NOT_HELD_MS;
        if (failures > 0) log.info({ url }, 'the control plane answers again');
        failures = 0;
        trouble = null;
      } catch (error) {
        if (signal.aborted) return;
        trouble = reasonOf(error);
        rest = backoff(failures, RETRY);
        failures += 1;
        // Once is enough: a control plane that is away for an hour must not fill the log.
        if (failures === 1) log.warn({ err: error, url }, 'the control plane does not answer; its last configuration stays in use');
      }
      await pause(rest, undefined, { signal, ref: false }).catch((error: unknown) => {
        if (!signal.aborted) throw error;
      });
    }
  }
  const following = follow();
  return {
    trouble: () => trouble,
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
