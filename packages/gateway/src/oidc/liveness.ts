/**
 * Checks that a provider still answers before a browser is redirected to it, because the metadata
 * can be minutes old. Sends one probe at a time.
 */
import { type Fetch, ProviderUnavailable } from './fetch.ts';

export type Liveness = {
  readonly options: { id: string; fetch: Fetch; monotonic: () => number };
  last: { at: number; error: Error | null } | null;
  probing: Promise<void> | null;
};

/** Time for which the result of a probe is valid, after a success and after a failure. */
const ALIVE_MS = 5_000;
const DEAD_MS = 2_000;
const PROBE_TIMEOUT_MS = 2_000;

export const newLiveness = (options: Liveness['options']): Liveness => ({
  options,
  last: null,
  probing: null,
});

export async function assertAlive(liveness: Liveness, url: string): Promise<void> {
  const { last, options } = liveness;
  if (last !== null) {
    const age = options.monotonic() - last.at;
    const isValid = age >= 0 && age < (last.error === null ? ALIVE_MS : DEAD_MS);
    if (isValid && last.error !== null) throw last.error;
    if (isValid) return;
  }
  liveness.probing ??= probe(liveness, url).finally(() => {
    liveness.probing = null;
  });
  await liveness.probing;
}

/**
 * Accepts every answer below 500, because the probe has none of the parameters that the endpoint
 * requires.
 */
async function probe(liveness: Liveness, url: string): Promise<void> {
  const { id, fetch, monotonic } = liveness.options;
  const at = monotonic();
  try {
    const { status } = await fetch(url, { signal: AbortSignal.timeout(PROBE_TIMEOUT_MS) });
    if (status >= 500)
      throw new ProviderUnavailable(`${id}: ${new URL(url).origin}: HTTP ${status}`);
    liveness.last = { at, error: null };
  } catch (error) {
    liveness.last = { at, error: error instanceof Error ? error : new Error(String(error)) };
    throw error;
  }
}
