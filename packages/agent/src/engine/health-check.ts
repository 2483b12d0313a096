/**
 * Runs the HEALTHCHECK of an image. While a container runs, the engine runs the check and the agent
 * reports the result (observe.ts). Before a new container goes live, the agent runs the check
 * itself, because the engine first waits for the check's interval, which can be an hour.
 */
import { defined } from '@berth/kit/defined';
import type { Logger } from '@berth/kit/log';
import { MAX_HEALTH_OUTPUT, type ObservedContainer } from '@berth/wire/node';
import type { RedactOf } from '../secrets/secrets-of.ts';
import { createShownText } from '../secrets/shown-text.ts';
import { pause } from '../stopped.ts';
import type { Container, Docker } from './docker.ts';
import type { HealthCheck } from './image-config.ts';

const PAUSE_MS = 1_000;
const LEAST_MS = 1_000;
/**
 * Maximum number of checks by the agent that missed their deadline. The agent cannot kill such a
 * check, and it uses the container's memory, so afterwards only the engine runs the check.
 */
const MAX_LATE = 3;

/** Result of a check that did not pass. `isFinal`: the engine gave up after all retries. */
export type CheckFailure = { output: string; isFinal: boolean };

/**
 * Runs the check until it passes, until the engine calls the container healthy (null) or unhealthy,
 * or until the monotonic time `until`. Rejects with the signal's reason.
 */
export async function untilChecked(
  docker: Pick<Docker, 'runInside' | 'inspect'>,
  id: string,
  check: HealthCheck,
  until: number,
  signal: AbortSignal,
): Promise<CheckFailure | null> {
  let late = 0;
  let output = '';
  for (;;) {
    const timeoutMs = Math.max(
      LEAST_MS,
      Math.min(check.timeoutMs, Math.ceil(until - performance.now())),
    );
    if (late < MAX_LATE) {
      const run = await docker.runInside(id, check.command, { timeoutMs, signal });
      if (run.ok) return null;
      if (run.isLate) late += 1;
      output = run.output;
    }
    const health = (await docker.inspect(id, signal))?.health;
    if (health?.status === 'healthy') return null;
    const isFinal = health?.status === 'unhealthy';
    const leftMs = Math.ceil(until - performance.now());
    if (isFinal || leftMs <= 0)
      return { output: outputLine(output || (health?.output ?? '')), isFinal };
    await pause(Math.min(PAUSE_MS, leftMs), signal);
  }
}

const shown = createShownText((text) => text);
/** Returns the output of a check as one shortened line. */
const outputLine = (output: string, show = shown): string =>
  show(
    output
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => line !== '')
      .join(' · '),
    MAX_HEALTH_OUTPUT,
    false,
  );

type Health = NonNullable<ObservedContainer['health']>;
export type ShownHealth = (
  containers: readonly Container[],
) => Promise<ReadonlyMap<string, Health>>;

/**
 * Returns a function that gives the health to report. For an unhealthy container, it includes the
 * check's first output, without secrets. Only the first output is used, because each redaction asks
 * the engine for the values of the secrets.
 */
export function createShownHealth(redactOf: RedactOf, log: Logger): ShownHealth {
  /** The output of each unhealthy container by its id. */
  let outputs = new Map<string, string>();

  /**
   * Returns undefined if the values of the secrets are unknown, for example because the container
   * was removed.
   */
  async function shownOutput(container: Container, output: string): Promise<string | undefined> {
    try {
      return outputLine(output, createShownText(await redactOf(container)));
    } catch (err) {
      log.debug(
        { err, container: container.name },
        'reading the secrets of a container failed; its health is reported without output',
      );
      return undefined;
    }
  }
  return async (containers) => {
    const healths = new Map<string, Health>();
    const nextOutputs: typeof outputs = new Map();
    for (const container of containers) {
      const { id, state, health } = container;
      if (health === null || state !== 'running') continue;
      if (health.status !== 'unhealthy' || health.output === '') {
        healths.set(id, { status: health.status });
        continue;
      }
      const output = outputs.get(id) ?? (await shownOutput(container, health.output));
      if (output !== undefined) nextOutputs.set(id, output);
      healths.set(id, { status: health.status, ...defined({ output }) });
    }
    outputs = nextOutputs;
    return healths;
  };
}
