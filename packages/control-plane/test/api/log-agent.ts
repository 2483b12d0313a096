/**
 * A viewer of runtime logs, and an agent that sends new lines by hand, and answers reads from what
 * was printed.
 */
import { readFrames } from '@berth/testbed/event-stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from '@berth/wire/client';
import { type LogBatch, type LogWant, MAX_BATCH_LINES } from '@berth/wire/runtime';
import { expect, onTestFinished } from 'vitest';
import { AGENT_SECRET } from './harness.ts';

type Event = {
  event: string;
  id: string;
  data: { text?: string; count?: number; from?: string | null; to?: string; message?: string };
};
export type Viewer = {
  events: Event[];
  of(event: string): Event['data'][];
  closed: boolean;
  close(): void;
};

export async function view(
  url: string,
  project: string,
  token: string,
  query = '?tail=0',
): Promise<Viewer> {
  const stop = new AbortController();
  const answer = await fetch(`${url}/api/projects/${project}/logs${query}`, {
    headers: { authorization: `Bearer ${token}`, accept: 'text/event-stream' },
    signal: stop.signal,
  });
  expect(answer.status).toBe(200);
  const viewer: Viewer = {
    events: [],
    closed: false,
    of: (event) => viewer.events.filter((e) => e.event === event).map(({ data }) => data),
    close: () => stop.abort(),
  };
  void (async () => {
    for await (const { event, id, data } of readFrames(answer))
      viewer.events.push({ event, id: id ?? '', data: JSON.parse(data) });
  })()
    .catch(() => undefined)
    .finally(() => (viewer.closed = true));
  return viewer;
}

/** `url` returns the control plane that the next request asks. */
export function logAgent(url: () => string, node_id: string) {
  const client = () =>
    createClient({ baseUrl: url(), headers: () => ({ 'x-agent-secret': AGENT_SECRET }) });
  const wants = async (): Promise<LogWant[]> =>
    (await client().call('agentLogWants', { query: { node_id } })).items;
  const send = (key: string, batch: Partial<LogBatch>) =>
    client().call('agentLogBatch', {
      params: { key },
      body: { node_id, epoch: key, first: 0, lines: [], now: Date.now(), ...batch },
    });
  let next = 0;
  /** The lines that the container engine has, also those that were not sent. */
  const printed: { line: LogBatch['lines'][number]; at: number }[] = [];
  let reads = 0;
  async function answerReads(): Promise<void> {
    for (const { mode, key, after, since_ago_ms, tail } of await wants()) {
      if (mode !== 'read') continue;
      const since = since_ago_ms === null ? 0 : Date.now() - since_ago_ms;
      const range = printed
        .filter(({ line, at }) => (after === null ? at >= since : line.at > after))
        .map(({ line }) => line);
      const lines = tail === 0 ? [] : range.slice(-tail);
      for (let first = 0; first < lines.length || first === 0; first += MAX_BATCH_LINES) {
        const part = lines.slice(first, first + MAX_BATCH_LINES);
        const end = first + part.length === lines.length;
        await send(key, {
          first,
          lines: part,
          ...(end ? { end, left_out: range.length - lines.length } : {}),
        });
      }
      reads += 1;
    }
  }
  let paused = false;
  let stamps = 0;
  function line(text: string, clockMs = 0): LogBatch['lines'][number] {
    const at = new Date(Date.now() + clockMs)
      .toISOString()
      .replace('Z', `${String(stamps++).padStart(6, '0')}Z`);
    const entry = { at, stream: 'stdout' as const, text };
    printed.push({ line: entry, at: Date.now() });
    return entry;
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
    send,
    /** Number of reads that were answered. */
    reads: () => reads,
    /** Waits until the log is followed and no read waits. Returns its key. */
    async ready(): Promise<string> {
      let key = '';
      await expect
        .poll(
          async () => {
            const all = await wants();
            key = all.find((want) => want.mode === 'follow')?.key ?? '';
            return key !== '' && all.every((want) => want.mode === 'follow');
          },
          { timeout: 30_000 },
        )
        .toBe(true);
      return key;
    },
    /** Prints lines. Lines that are `skipped` before them are lost. */
    print(key: string, texts: readonly string[], { skipped = 0, clockMs = 0 } = {}) {
      next += skipped;
      const first = next;
      next += texts.length;
      return send(key, {
        first,
        lines: texts.map((text) => line(text, clockMs)),
        now: Date.now() + clockMs,
      });
    },
    /**
     * Prints lines of which one in `every` is sent, at most a batch. The others get the numbers
     * after it, as from a real agent.
     */
    async flood(key: string, count: number, every: number) {
      const lines = Array.from({ length: count }, () => line(`line ${stamps}`)).filter(
        (_, i) => i % every === 0,
      );
      const first = next;
      next += count;
      if (lines.length > 0) await send(key, { first, lines });
    },
    /** Prints lines that are not sent. */
    drop(count: number) {
      for (let i = 0; i < count; i += 1) line(`line ${stamps}`);
      next += count;
    },
    /** Says that it is there, and how many lines there were. */
    sign: (key: string) => send(key, { first: next }),
    /** Number of lines that the container has printed. */
    printed: () => printed.length,
    /** Answers no reads until `pause(false)`. */
    pause: (yes: boolean) => void (paused = yes),
  };
}
