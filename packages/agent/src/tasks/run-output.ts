/** Sends the output of a command, and waits for its end. */
import { MAX_LINE } from '@berth/kit/lines';
import type { Container, Docker } from '../engine/docker.ts';
import { createBudget } from '../logs/budget.ts';
import { createLineReader, type RawLine } from '../logs/line-reader.ts';
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
/** How much later than its time, in ms, the engine can store a line. */
const REORDERED_MS = 10_000;

type OutputDeps = { docker: Pick<Docker, 'inspect' | 'logs'> };

type Stream = RawLine['stream'];
/** The newest line of a stream that was taken: its time, and how many lines have this time. */
type Position = { at: string; count: number };

/**
 * The engine stores the lines of each stream in the order of their times. Lines of two streams can
 * be stored in another order, because it takes the time before it waits for its log file. So each
 * stream has its own position.
 */
type Output = {
  /** Lines up to this time were sent by an earlier attempt. */
  earlier: string | null;
  taken: Partial<Record<Stream, Position>>;
  missing: number;
  budget: ReturnType<typeof createBudget>;
};

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
    earlier: context.loggedUntil ?? null,
    taken: {},
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
  const isNew = createIsNew(output);
  const reader = createLineReader({
    mayTake(bytes, at, stream) {
      if (!isNew(at, stream)) return false;
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
    since: since(output),
    until: null,
    onChunk: reader.chunk,
    signal,
  });
  // After an error, the next reading begins with the whole line.
  if (problem === null) reader.end();
  tellMissing(output, context);
  return problem;
}

/**
 * Returns a function that tells whether a line of this reading was not taken before. The engine
 * writes all times in UTC and with the same length.
 */
function createIsNew(output: Output): (at: string, stream: Stream) => boolean {
  const before = { ...output.taken };
  /** Lines of this reading with the time of the last position. */
  const again = { stdout: 0, stderr: 0 };
  return (at, stream) => {
    if (output.earlier !== null && at <= output.earlier) return false;
    const last = before[stream];
    if (last !== undefined && at < last.at) return false;
    if (at === last?.at && ++again[stream] <= last.count) return false;
    const taken = output.taken[stream];
    output.taken[stream] = { at, count: at === taken?.at ? taken.count + 1 : 1 };
    return true;
  };
}

/**
 * Returns the time from which the engine shall send lines. A stream without new lines does not make
 * it send the whole log again.
 */
function since({ earlier, taken: { stdout, stderr } }: Output): string | null {
  const newest = [stdout?.at ?? '', stderr?.at ?? ''].sort().at(-1) ?? '';
  if (newest === '') return earlier;
  return new Date(Date.parse(newest) - REORDERED_MS).toISOString();
}

function tellMissing(output: Output, { logStep }: TaskContext): void {
  if (output.missing === 0) return;
  const text =
    `… ${output.missing} lines are missing here: a command can print ${RATE.lines} lines a ` +
    'second, and ten times as many at once …';
  output.missing = 0;
  logStep('run', text);
}
