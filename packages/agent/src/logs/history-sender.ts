/** Reads a requested part of a log once, and sends it in batches. */
import { randomUUID } from 'node:crypto';
import { defined } from '@berth/kit/defined';
import {
  MAX_BATCH_LINES,
  MAX_LINE_CHARS,
  type LogBatchAnswer,
  type LogWant,
} from '@berth/wire/runtime';
import type { Docker } from '../engine/docker.ts';
import type { ListNodeContainers } from '../engine/node-ids.ts';
import { retryUntilAnswered } from '../link/retry.ts';
import { type Batch, containerOf, type SendBatch, wireLine } from './follower.ts';
import { type CursorLine, engineTime, type History, readHistory, sinceOf } from './history.ts';
import type { RedactOf } from '../secrets/secrets-of.ts';
import { createShownText } from '../secrets/shown-text.ts';

export type HistorySenderDeps = {
  docker: Pick<Docker, 'logs'>;
  listContainers: ListNodeContainers;
  redactOf: RedactOf;
  send: SendBatch;
  /** Clock of this node in ms. */
  now: () => number;
};

const READ_MS = 15_000;
const MAX_BATCH_CHARS = 512 * 1024;

export async function sendHistory(
  want: LogWant,
  deps: HistorySenderDeps,
  ending: AbortSignal,
): Promise<void> {
  const signal = AbortSignal.any([ending, AbortSignal.timeout(READ_MS)]);
  const history = await readWanted(want, deps, signal);
  for (const batch of batchesOf(history)) {
    const send = (): Promise<LogBatchAnswer> => deps.send(want.key, batch, signal);
    const { wanted } = await retryUntilAnswered(send, { signal, maxMs: 1_000 });
    if (!wanted) return;
  }
}

async function readWanted(
  want: LogWant,
  { docker, listContainers, redactOf, now }: HistorySenderDeps,
  signal: AbortSignal,
): Promise<History> {
  const container = await containerOf(listContainers, want, signal);
  if (container === null) return NO_CONTAINER;
  const timeAgo = (ms: number | null): string | null =>
    ms === null ? null : engineTime(now() - ms);
  const { tail, after, stream } = want;
  const range = {
    tail,
    after,
    stream,
    since: after === null ? timeAgo(want.since_ago_ms) : sinceOf(after, now()),
    until: timeAgo(want.until_ago_ms),
  };
  const shown = createShownText(await redactOf(container));
  return readHistory({ docker, shown }, container, range, signal);
}

const NO_CONTAINER: History = {
  lines: [],
  leftOut: 0,
  last: null,
  isReset: false,
  problem: 'its node has no container of this deployment',
};

function* batchesOf({ lines, leftOut, last, isReset, problem }: History): Generator<Batch> {
  const epoch = randomUUID();
  let first = 0;
  do {
    const part = partOf(lines, first);
    const end = first + part.length >= lines.length;
    yield {
      epoch,
      first,
      lines: part.map(wireLine),
      after: lines[first - 1]?.cursor ?? null,
      reset: isReset && first === 0,
      end,
      left_out: leftOut,
      last,
      ...defined({
        run: (part[0]?.cursor ?? last)?.run,
        problem: problem?.slice(0, 500),
      }),
    };
    first += part.length;
  } while (first < lines.length);
}

/** Returns the lines from `first` on that fit into one batch. */
function partOf(lines: readonly CursorLine[], first: number): CursorLine[] {
  const part: CursorLine[] = [];
  for (let chars = 0; part.length < MAX_BATCH_LINES && chars < MAX_BATCH_CHARS; ) {
    const line = lines[first + part.length];
    if (line === undefined) break;
    chars += Math.min(line.text.length, MAX_LINE_CHARS);
    part.push(line);
  }
  return part;
}
