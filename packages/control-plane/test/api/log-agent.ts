/** An agent that sends new lines by hand, and answers reads from what was printed. */
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from '@berth/wire/client';
import type { LogCursor } from '@berth/wire/log-cursor';
import { type LogBatch, type LogWant, MAX_BATCH_LINES } from '@berth/wire/runtime';
import { expect, onTestFinished } from 'vitest';
import { AGENT_SECRET } from './harness.ts';

type Line = LogBatch['lines'][number];
type Printed = { line: Line; cursor: LogCursor; at: number };
const RUN = 'c1';

/** `url` returns the control plane that the next request asks. */
export function logAgent(url: () => string, node_id: string) {
  const client = () =>
    createClient({ baseUrl: url(), headers: () => ({ 'x-agent-secret': AGENT_SECRET }) });
  const wants = async (): Promise<LogWant[]> =>
    (await client().call('agentLogWants', { query: { node_id } })).items;
  const send = (key: string, batch: Partial<LogBatch>) =>
    client().call('agentLogBatch', {
      params: { key },
      body: { node_id, epoch: key, first: 0, lines: [], now: Date.now(), run: RUN, ...batch },
    });
  /** The lines that the container engine has, also those that were not sent. */
  const printed: Printed[] = [];
  let next = 0;
  /** The newest line that was sent; at first, the beginning of the follower. */
  let after: LogCursor | null = null;
  let isGap = false;
  let reads = 0;
  async function answerReads(): Promise<void> {
    for (const want of await wants()) {
      if (want.mode !== 'read') continue;
      const since = want.since_ago_ms === null ? 0 : Date.now() - want.since_ago_ms;
      const isReset =
        want.after !== null && printed.every(({ cursor }) => cursor.at !== want.after);
      // As the agent does: without the line to begin at, all that is there.
      const range = printed.filter(({ cursor, at }) =>
        want.after === null ? at >= since : isReset || cursor.at >= want.after,
      );
      const lines = want.tail === 0 ? [] : range.slice(-want.tail);
      for (let first = 0; first < lines.length || first === 0; first += MAX_BATCH_LINES) {
        const part = lines.slice(first, first + MAX_BATCH_LINES);
        const isEnd = first + part.length === lines.length;
        await send(want.key, {
          first,
          lines: part.map(({ line }) => line),
          after: lines[first - 1]?.cursor ?? null,
          reset: isReset,
          ...(isEnd
            ? {
                end: true,
                left_out: range.length - lines.length,
                last: printed.at(-1)?.cursor ?? null,
              }
            : {}),
        });
      }
      reads += 1;
    }
  }
  let paused = false;
  let stamps = 0;
  let clock = Date.now();
  function line(text: string, clockMs = 0): Printed {
    clock = Math.max(clock, Date.now());
    const at = new Date(clock + clockMs)
      .toISOString()
      .replace('Z', `${String(stamps++).padStart(6, '0')}Z`);
    const entry = {
      line: { at, stream: 'stdout' as const, text },
      cursor: { run: RUN, at, ordinal: 0 },
      at: Date.now(),
    };
    printed.push(entry);
    return entry;
  }
  /** Sends lines as the next batch of the follower. */
  function sendNext(key: string, lines: readonly Printed[], now = Date.now()) {
    const batch = { first: next, lines: lines.map((entry) => entry.line), after, gap: isGap, now };
    next += lines.length;
    after = lines.at(-1)?.cursor ?? after;
    isGap = false;
    return send(key, batch);
  }
  const ending = new AbortController();
  const answering = (async () => {
    while (!ending.signal.aborted) {
      // The control plane may have ended, or the other one has the read already.
      if (!paused) await answerReads().catch(() => undefined);
      await sleep(50);
    }
  })();
  onTestFinished(async () => {
    ending.abort();
    await answering;
  });
  return {
    wants,
    /** Number of reads that were answered. */
    reads: () => reads,
    /** Waits until the log is followed and no read waits. Returns its key. */
    async ready(): Promise<string> {
      let key = '';
      await expect
        .poll(
          async () => {
            const all = await wants();
            const follow = all.find((want) => want.mode === 'follow');
            key = follow?.key ?? '';
            const soon = new Date(Date.now() - 1_000).toISOString().replace('Z', '000000Z');
            after ??= { run: RUN, at: follow?.after ?? soon, ordinal: -1 };
            return key !== '' && all.every((want) => want.mode === 'follow');
          },
          { timeout: 30_000 },
        )
        .toBe(true);
      return key;
    },
    /** Prints lines. With `dropped`, so many lines before them are not sent. */
    print(key: string, texts: readonly string[], { dropped = 0, clockMs = 0 } = {}) {
      this.drop(dropped);
      const lines = texts.map((text) => line(text, clockMs));
      return sendNext(key, lines, Date.now() + clockMs);
    },
    /** Prints and sends `line NUMBER`s. */
    flood: (key: string, count: number) =>
      sendNext(
        key,
        Array.from({ length: count }, () => line(`line ${stamps}`)),
      ),
    /** Prints lines that are not sent. */
    drop(count: number) {
      for (let i = 0; i < count; i += 1) line(`line ${stamps}`);
      next += count;
      isGap ||= count > 0;
    },
    /** Prints a line that nobody follows, in a millisecond of its own. */
    async printUnfollowed(text: string) {
      after = line(text).cursor;
      next += 1;
      const { at = 0 } = printed.at(-1) ?? {};
      while (Date.now() <= at) await sleep(1);
    },
    /** Prints lines that another control plane gets. */
    async elsewhere(count: number) {
      const lines = Array.from({ length: count }, () => line(`line ${stamps}`));
      next += count;
      after = lines.at(-1)?.cursor ?? after;
    },
    /** Number of lines that the container has printed. */
    printed: () => printed.length,
    /** Answers no reads until `pause(false)`. */
    pause: (yes: boolean) => void (paused = yes),
  };
}
