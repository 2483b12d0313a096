/** Sends the output of a command, and waits for its end. */
import { MAX_LINE } from '@berth/kit/lines';
import type { Container, Docker } from '../engine/docker.ts';
import { createBudget } from '../logs/budget.ts';
import { createLineReader } from '../logs/line-reader.ts';
import { TaskFailure } from '../failures.ts';
import { pause } from '../stopped.ts';
import type { TaskContext } from './task.ts';

/**
 * Output of one command that a node sends: the control plane stores each line. The log of a run
 * keeps 50,000 lines.
 */
const RATE = { lines: 1_000, bytes: 1_000_000 };
const BURST_SECONDS = 10;
/** Pause in ms before the engine is asked again after an error. */
const RETRY_MS = 2_000;

type OutputDeps = { docker: Pick<Docker, 'inspect' | 'logs'> };

/** Lines after this time are new, and lines up to it were sent by an earlier attempt. */
type Output = { until: string | null; missing: number; budget: ReturnType<typeof createBudget> };

/**
 * Sends the lines of a started container until it has ended, and returns it. Goes on after the
 * engine was away. Throws TaskFailure run_lost if the container was removed.
 */
export async function untilEnded(
  { docker }: OutputDeps,
  id: string,
  context: TaskContext,
  signal: AbortSignal,
): Promise<Container> {
  const output: Output = {
    until: context.loggedUntil ?? null,
    missing: 0,
    budget: createBudget(RATE, BURST_SECONDS),
  };
  for (;;) {
    signal.throwIfAborted();
    const before = await docker.inspect(id, signal).catch(() => 'unknown' as const);
    signal.throwIfAborted();
    if (before === null)
      throw new TaskFailure('run_lost', 'somebody removed its container before it had ended');
    if (before !== 'unknown') {
      const problem = await readOutput(docker, id, output, context, signal);
      signal.throwIfAborted();
      // Its last lines were read after it had ended, so they are complete.
      if (hasEnded(before) && problem === null) return before;
      if (problem === null) continue;
    }
    await pause(RETRY_MS, signal);
  }
}

const hasEnded = ({ state }: Container): boolean => state === 'exited' || state === 'dead';

/** Reads the log to its end. Returns the engine's error, or null. */
async function readOutput(
  docker: OutputDeps['docker'],
  id: string,
  output: Output,
  context: TaskContext,
  signal: AbortSignal,
): Promise<string | null> {
  const { budget } = output;
  const reader = createLineReader({
    mayTake(bytes, at) {
      // The engine writes all times in UTC and with the same length.
      if (output.until !== null && at <= output.until) return false;
      output.until = at;
      if (!budget.has(bytes)) {
        output.missing += 1;
        return false;
      }
      budget.spend(bytes);
      tellMissing(output, context);
      return true;
    },
    onLine: ({ at, stream, text }) => context.log({ at, stream, text: text.slice(0, MAX_LINE) }),
    onMessage: () => undefined,
  });
  const problem = await docker.logs(id, {
    follow: true,
    tail: null,
    since: output.until,
    until: null,
    onChunk: reader.chunk,
    signal,
  });
  reader.end();
  tellMissing(output, context);
  return problem;
}

function tellMissing(output: Output, { logStep }: TaskContext): void {
  if (output.missing === 0) return;
  const text =
    `… ${output.missing} lines are missing here: a command can print ${RATE.lines} lines a ` +
    'second, and ten times as many at once …';
  output.missing = 0;
  logStep('run', text);
}
