/**
 * Streams a log. Events: `line` (a LogLine; its id is `seq`), `state` (at the start and at each
 * change), `end` (the same fields, once nothing more can follow and all lines are sent),
 * `unavailable` (`{message}`: retention removed the log).
 */
import type { Changes } from '../domain/platform/changes.ts';
import type { LogLineRecord } from '../domain/platform/records.ts';
import type { Hold } from './long-poll.ts';
import type { EventStream } from './sse.ts';
import { logLineView } from './views.ts';

/** Lines of one page. */
export const LOG_PAGE = 500;
/** Poll interval if no notification arrives: another control plane can store the lines. */
const POLL_MS = 2_000;
const HEARTBEAT_MS = 15_000;

export type LogSource = {
  /** Id of the deployment or the run: changes of its log and state notify the topic `logs:{id}`. */
  id: string;
  /** `data`: the data of `state`. `unavailable`: why the log was removed, or null. */
  state(): Promise<{ data: object; isOver: boolean; unavailable: string | null }>;
  /** Returns lines with seq > after, in order. */
  read(after: number, limit: number): Promise<LogLineRecord[]>;
  /** Throws if the rights of the reader have ended. */
  recheck: () => Promise<unknown>;
};

export async function pumpLog(
  { changes }: { changes: Pick<Changes, 'wait'> },
  source: LogSource,
  after: number,
  stream: EventStream,
  hold: Hold,
): Promise<void> {
  let cursor = after;
  let shown = '';
  let quietSince = performance.now();
  for (;;) {
    // Subscribe before reading, so that no change is missed. Read the state before the lines: once
    // it is over, the lines that are read afterwards are complete.
    const round = new AbortController();
    const notified = changes.wait(
      `logs:${source.id}`,
      POLL_MS,
      AbortSignal.any([hold.signal, round.signal]),
    );
    try {
      // Ends the stream when the token expires, the user is disabled or can no longer see the
      // project.
      await source.recheck();
      const { data, isOver, unavailable } = await source.state();
      if (JSON.stringify(data) !== shown) await stream.send({ event: 'state', data });
      shown = JSON.stringify(data);
      const before = cursor;
      if (unavailable === null) cursor = await sendLines(source, cursor, stream);
      else await stream.send({ event: 'unavailable', data: { message: unavailable } });
      if (isOver) return await stream.send({ event: 'end', data });
      if (cursor !== before) quietSince = performance.now();
      else if (performance.now() - quietSince >= HEARTBEAT_MS) {
        await stream.comment('still here');
        quietSince = performance.now();
      }
      await notified;
      hold.signal.throwIfAborted();
    } finally {
      round.abort();
    }
  }
}

async function sendLines(source: LogSource, after: number, stream: EventStream): Promise<number> {
  let cursor = after;
  for (;;) {
    const lines = await source.read(cursor, LOG_PAGE);
    for (const line of lines)
      await stream.send({ event: 'line', data: logLineView(line), id: line.seq });
    cursor = lines.at(-1)?.seq ?? cursor;
    if (lines.length < LOG_PAGE) return cursor;
    // Check the rights again: a slow client can take long to read a page.
    await source.recheck();
  }
}
