import { silentLogger } from '@berth/kit/log';
import type { LogWant } from '@berth/wire/runtime';
import { LABELS } from '@berth/wire/vocabulary';
import { afterEach, expect, test } from 'vitest';
import { createBudget } from '../../src/logs/budget.ts';
import { type Batch, containerOf, type Follower, startFollower } from '../../src/logs/follower.ts';
import { type History, type Range, readHistory, sinceOf } from '../../src/logs/history.ts';
import { addLine, createOutbox, takeBatch } from '../../src/logs/outbox.ts';
import { createRedact } from '../../src/secrets/redaction.ts';
import { createShownText } from '../../src/secrets/shown-text.ts';
import type { ReadLogOptions } from '../../src/engine/docker.ts';
import { container } from '../fake-engine.ts';

const NOW = Date.parse('2026-11-25T12:00:00Z');
const WANT: LogWant = {
  key: 'f-d1',
  mode: 'follow',
  deployment_id: 'd1',
  tail: 5_000,
  since_ago_ms: null,
  until_ago_ms: null,
  stream: null,
  after: null,
};
const printing = container({
  labels: { [LABELS.deployment]: 'd1' },
  state: 'running',
  startedAt: '2026-11-25T11:00:00Z',
});

let follower: Follower | undefined;
afterEach(() => {
  follower?.stop();
  return follower?.done;
});

/**
 * Starts a follower whose engine answers `slowMs` later by the clock of the node. Returns its reads
 * and the lines that it sends.
 */
function start(want: Partial<LogWant>, slowMs = 0, bytes = 1e9) {
  const clock = { at: NOW };
  const reads: ReadLogOptions[] = [];
  const sent: Batch[] = [];
  follower = startFollower(
    { ...WANT, ...want },
    {
      docker: {
        async logs(_id, options) {
          if (!options.follow) return null;
          reads.push(options);
          await new Promise((resolve) =>
            options.signal.addEventListener('abort', resolve, { once: true }),
          );
          return null;
        },
      },
      async listContainers() {
        clock.at = NOW + slowMs;
        return [printing];
      },
      redactOf: async () => createRedact([]),
      async send(_key, batch) {
        sent.push(batch);
        return { wanted: true, wait_ms: 0 };
      },
      nodeBudget: createBudget({ lines: 1e6, bytes }, 1),
      onRestart: () => undefined,
      log: silentLogger(),
      now: () => clock.at,
    },
  );
  return { reads, sent };
}
const at = (ms: number): string => new Date(NOW + ms).toISOString().replace('Z', '000000Z');

test.each<[string, Partial<LogWant>, number, string | null]>([
  [
    'without a beginning: a second before it was started, however slow the engine is',
    {},
    7_000,
    at(-1_000),
  ],
  ['at the newest time that a control plane has', { after: at(-9_000) }, 0, at(-9_001)],
  [
    'when the log was first wanted, and a second before',
    { since_ago_ms: 4_000 },
    2_000,
    at(-5_000),
  ],
  ['at the earlier of both', { since_ago_ms: 4_000, after: at(-2_000) }, 0, at(-5_000)],
  [
    'at the earlier of both, the position',
    { since_ago_ms: 4_000, after: at(-9_000) },
    0,
    at(-9_001),
  ],
  ['at the beginning of the log: the clock was set back', { after: at(60_000) }, 0, null],
])('a reader begins %s', async (_, want, slowMs, since) => {
  const { reads } = start(want, slowMs);
  await expect.poll(() => reads.map((read) => [read.since, read.tail])).toEqual([[since, null]]);
});

type Started = ReturnType<typeof start>;
const linesOf = ({ sent }: Started) => sent.flatMap(({ lines }) => lines);
const textsOf = (started: Started): string[] => linesOf(started).map(({ text }) => text);

test('a follower sends the lines from the newest time of a control plane on, or those that another one needs', async () => {
  const print = async (started: Started) => {
    const { reads } = started;
    await expect.poll(() => reads.length).toBe(1);
    for (const ms of [-3_000, -2_000, -1_000])
      reads[0]?.onChunk(Buffer.from(`${at(ms)} line ${ms}\n`), 'stdout');
    await expect.poll(() => textsOf(started).at(-1)).toBe('line -1000');
    follower?.stop();
    return textsOf(started);
  };
  expect(await print(start({ after: at(-2_000) }))).toEqual(['line -2000', 'line -1000']);
  expect(await print(start({ after: at(-2_000), since_ago_ms: 4_000 }))).toEqual([
    'line -3000',
    'line -2000',
    'line -1000',
  ]);
});

test('a log without the line to begin at is reset: the engine has rotated it away', async () => {
  const started = start({ after: at(-2_000) });
  await expect.poll(() => started.reads.length).toBe(1);
  started.reads[0]?.onChunk(Buffer.from(`${at(-1_000)} later\n`), 'stdout');
  await expect.poll(() => textsOf(started)).toEqual(['later']);
  expect(started.sent.map(({ reset }) => reset).filter((reset) => reset === true)).toEqual([true]);
});

test('cursors follow the order of the engine: equal times, and a clock that is set back', async () => {
  const started = start({});
  await expect.poll(() => started.reads.length).toBe(1);
  const times = [0, 0, 0, -3_600_000, -3_500_000, 1, -100];
  for (const [i, ms] of times.entries())
    started.reads[0]?.onChunk(Buffer.from(`${at(ms)} ${i}\n`), i % 2 === 0 ? 'stdout' : 'stderr');
  await expect.poll(() => textsOf(started)).toEqual(times.map((_, i) => `${i}`));
  expect(linesOf(started).map((line) => [line.record ?? line.at, line.ordinal ?? 0])).toEqual([
    [at(0), 0],
    [at(0), 1],
    [at(0), 2],
    [at(0), 3],
    [at(0), 4],
    [at(1), 0],
    [at(1), 1],
  ]);
});

test('dropped lines are a gap before the next batch, and batches are a chain', async () => {
  const started = start({}, 0, 40_000);
  const { reads, sent } = started;
  await expect.poll(() => reads.length).toBe(1);
  let printed = 0;
  const print = (texts: readonly string[]): void => {
    const lines = texts.map((text) => `${at(printed)} ${printed++} ${text}\n`);
    reads[0]?.onChunk(Buffer.from(lines.join('')), 'stdout');
  };
  // The rate has no room for the long lines.
  const long = 'x'.repeat(100_000);
  const isSent = (number: number) =>
    expect
      .poll(() => Number.parseInt(textsOf(started).at(-1) ?? ''), { timeout: 10_000 })
      .toBe(number);
  print(['', '', long, '', '']);
  await isSent(1);
  print(['', long]);
  await isSent(5);
  print(['']);
  await isSent(7);
  const batches = sent.filter(({ lines }) => lines.length > 0);
  expect(
    batches.map(({ first, gap = false, after, lines }) => [first, gap, after?.at, lines[0]?.at]),
  ).toEqual([
    [0, false, at(-1_000), at(0)],
    [5, true, at(1), at(5)],
    [7, true, at(5), at(7)],
  ]);
});

test('while the control plane does not answer, the oldest lines are dropped: a gap before the next batch', () => {
  const box = createOutbox();
  const add = (from: number, to: number): void => {
    for (let i = from; i < to; i += 1)
      addLine(box, {
        at: at(i),
        stream: 'stdout',
        text: `${i}`,
        cursor: { run: 'c1', at: at(i), ordinal: 0 },
      });
  };
  const taken = () => {
    const { first, after, gap, lines } = takeBatch(box);
    return [first, after?.at, gap, lines[0]?.text, lines.at(-1)?.text];
  };
  add(0, 3);
  expect(taken()).toEqual([0, undefined, false, '0', '2']);
  add(3, 10_004);
  expect(taken()).toEqual([1_253, at(2), true, '1253', '2252']);
  expect(taken()).toEqual([2_253, at(2_252), false, '2253', '3252']);
});

const engine = (printed: readonly { at: string; kind: string }[]) => ({
  async logs(_id: string, { since, tail, onChunk }: ReadLogOptions) {
    const first = printed.findIndex(({ at }) => since === null || at >= since);
    const from = tail === null ? first : Math.max(0, printed.length - tail);
    for (const { at, kind } of from === -1 ? [] : printed.slice(from))
      onChunk(Buffer.from(`${at} ${kind}\n`), kind === 'err' ? 'stderr' : 'stdout');
    return null;
  },
});
const read = (printed: readonly { at: string; kind: string }[], range: Partial<Range>, now = NOW) =>
  readHistory(
    { docker: engine(printed), shown: createShownText((text) => text) },
    { id: 'c1' },
    {
      tail: 10,
      until: null,
      stream: null,
      after: null,
      since: range.after === undefined || range.after === null ? null : sinceOf(range.after, now),
      ...range,
    },
    new AbortController().signal,
  );
const shortOf = ({ lines }: History) =>
  lines.map(({ text, cursor }) => [text, cursor.at, cursor.ordinal]);

test('a read from a cursor on begins at the line with its time', async () => {
  const printed = ['out', 'err', 'out', 'after', 'out', 'out', 'err'].map((kind, i) => ({
    at: `2026-11-25T11:00:00.00000000${i}Z`,
    kind,
  }));
  const after = printed[3]?.at ?? '';
  const times = ({ lines }: History) => lines.map(({ at }) => at);
  expect(times(await read(printed, { after }))).toEqual(printed.slice(3).map(({ at }) => at));
  expect(await read(printed, { after, tail: 1 })).toMatchObject({
    lines: [{ at: printed[6]?.at }],
    leftOut: 3,
    isReset: false,
  });
  expect(await read(printed, { after, tail: 0 })).toMatchObject({
    lines: [],
    last: { run: 'c1', at: printed[6]?.at, ordinal: 0 },
  });
  // The line is not there any more: all that is left.
  const rotated = await read(printed.slice(4), { after });
  expect([rotated.lines.length, rotated.isReset]).toEqual([3, true]);
});

test('each read gives a line the same cursor: thousands have one time, and the clock is set back', async () => {
  const printed = [
    ...Array.from({ length: 3_000 }, (_, i) => ({ at: at(0), kind: `a${i}` })),
    ...Array.from({ length: 3_000 }, (_, i) => ({ at: at(i - 3_600_000), kind: `b${i}` })),
  ];
  const now = NOW - 1_800_000;
  const whole = shortOf(await read(printed, { tail: 10_000 }, now));
  expect(whole.at(-1)).toEqual(['b2999', at(0), 5_999]);
  for (const tail of [1, 10, 2_999, 3_001, 5_999])
    expect(shortOf(await read(printed, { tail }, now))).toEqual(whole.slice(-tail));
  expect(shortOf(await read(printed, { tail: 10_000, after: at(0) }, now))).toEqual(whole);
  expect(await read(printed, { tail: 10_000, after: at(0) }, now)).toMatchObject({
    isReset: false,
  });
});

test.each<[string, string | null | undefined, string]>([
  ['an instance: its container', 'i2', 'second'],
  ['the first one: the container without the labels of an instance', null, 'first'],
  [
    'no instance, by an earlier control plane: the container that started last',
    undefined,
    'second',
  ],
])('two containers of a deployment on one node; wanted is %s', async (_, instance, expected) => {
  const containers = [
    { ...printing, id: 'first' },
    {
      ...printing,
      id: 'second',
      labels: {
        ...printing.labels,
        [LABELS.instance]: 'i2',
        [LABELS.process]: 'web',
        [LABELS.number]: '2',
      },
      startedAt: '2026-11-25T11:30:00Z',
    },
  ];
  const want = { deployment_id: 'd1', ...(instance === undefined ? {} : { instance }) };
  const { signal } = new AbortController();
  expect((await containerOf(async () => containers, want, signal))?.id).toBe(expected);
  const other = { deployment_id: 'd1', instance: 'i3' };
  expect(await containerOf(async () => containers, other, signal)).toBeNull();
});
