import { silentLogger } from '@berth/kit/log';
import type { LogBatch, LogWant } from '@berth/wire/runtime';
import { LABELS } from '@berth/wire/vocabulary';
import { afterEach, expect, test } from 'vitest';
import { createBudget, type Rate } from '../../src/logs/budget.ts';
import { type Follower, startFollower } from '../../src/logs/follower.ts';
import { readHistory } from '../../src/logs/history.ts';
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
function start(want: Partial<LogWant>, slowMs = 0, rate: Rate = { lines: 1e6, bytes: 1e9 }) {
  const clock = { at: NOW };
  const reads: ReadLogOptions[] = [];
  const sent: Omit<LogBatch, 'node_id'>[] = [];
  follower = startFollower(
    { ...WANT, ...want },
    {
      docker: {
        async logs(_id, options) {
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
      nodeBudget: createBudget({ lines: 1e6, bytes: 1e9 }, 1),
      rate,
      log: silentLogger(),
      flushMs: 5,
      now: () => clock.at,
    },
  );
  return { reads, sent };
}
const at = (ms: number): string => new Date(NOW + ms).toISOString().replace('Z', '000000Z');

test.each<[string, Partial<LogWant>, number, string, number | null]>([
  [
    'without a beginning: a second before it was started, however slow the engine is',
    {},
    7_000,
    at(-1_000),
    5_000,
  ],
  ['after the last line that a control plane has', { after: at(-9_000) }, 0, at(-9_000), null],
  [
    'when the log was first wanted, and a second before',
    { since_ago_ms: 4_000 },
    2_000,
    at(-5_000),
    null,
  ],
  ['at the earlier of both', { since_ago_ms: 4_000, after: at(-2_000) }, 0, at(-5_000), null],
  [
    'at the earlier of both, the position',
    { since_ago_ms: 4_000, after: at(-9_000) },
    0,
    at(-9_000),
    null,
  ],
  ['a position in the future: the clock was set back', { after: at(60_000) }, 0, at(-1_000), null],
])('a reader begins %s', async (_, want, slowMs, since, tail) => {
  const { reads } = start(want, slowMs);
  await expect.poll(() => reads.map((read) => [read.since, read.tail])).toEqual([[since, tail]]);
});

test('lines that a control plane has are not sent again, and those that another one needs are', async () => {
  const print = async ({ reads, sent }: ReturnType<typeof start>) => {
    await expect.poll(() => reads.length).toBe(1);
    for (const ms of [-3_000, -2_000, -1_000])
      reads[0]?.onChunk(Buffer.from(`${at(ms)} line ${ms}\n`), 'stdout');
    await expect
      .poll(() => sent.flatMap(({ lines }) => lines.map(({ text }) => text)).at(-1))
      .toBe('line -1000');
    follower?.stop();
    return sent.flatMap(({ lines }) => lines.map(({ text }) => text));
  };
  expect(await print(start({ after: at(-2_000) }))).toEqual(['line -1000']);
  expect(await print(start({ after: at(-2_000), since_ago_ms: 4_000 }))).toEqual([
    'line -3000',
    'line -2000',
    'line -1000',
  ]);
});

test('the first line of a batch has the number of all lines that were printed before it', async () => {
  const { reads, sent } = start({}, 0, { lines: 1e6, bytes: 40_000 });
  await expect.poll(() => reads.length).toBe(1);
  let printed = 0;
  const print = (texts: readonly string[]): void => {
    const lines = texts.map((text) => `${at(printed)} ${printed++} ${text}\n`);
    reads[0]?.onChunk(Buffer.from(lines.join('')), 'stdout');
  };
  // The rate has room for the short lines only.
  const long = 'x'.repeat(100_000);
  print([long, ...Array.from({ length: 1_400 }, (_, i) => (i % 90 === 0 ? long : ''))]);
  const numbers = () =>
    sent.flatMap(({ first, lines }) => lines.map(({ text }, i) => [first + i, Number(text)]));
  const isSent = (number: number) =>
    expect.poll(() => numbers().at(-1)?.[1], { timeout: 10_000 }).toBe(number);
  await isSent(1_400);
  print([long, '']);
  await isSent(1_402);
  print([long]);
  await expect.poll(() => sent.at(-1)?.first, { timeout: 10_000 }).toBe(1_404);
  expect(
    sent
      .filter(({ lines }) => lines.length > 0)
      .map(({ first, lines }) => [first, Number(lines[0]?.text)]),
  ).toEqual([
    // A reader begins with number 0. Its first loss is counted after its first lines.
    [0, 2],
    ...sent.flatMap(({ first, lines }) =>
      first === 0 || lines.length === 0 ? [] : [[first, first]],
    ),
  ]);
  expect(sent.filter(({ lines }) => lines.length > 0).length).toBeGreaterThan(2);
});

test('a read after a line leaves out only what came after it', async () => {
  const printed = ['out', 'err', 'out', 'after', 'out', 'out', 'err'].map((kind, i) => ({
    at: `2026-11-25T12:00:00.00000000${i}Z`,
    kind,
  }));
  const docker = {
    async logs(_id: string, { onChunk }: ReadLogOptions) {
      for (const { at, kind } of printed)
        onChunk(Buffer.from(`${at} ${kind}\n`), kind === 'err' ? 'stderr' : 'stdout');
      return null;
    },
  };
  const read = (tail: number) =>
    readHistory(
      docker,
      'c1',
      { tail, since: null, until: null, stream: null, after: printed[3]?.at ?? '' },
      createShownText((text) => text),
      new AbortController().signal,
    );
  // A line of the other stream may have been written later than its time says.
  expect((await read(10)).lines.map(({ at }) => at)).toEqual(
    [1, 4, 5, 6].map((i) => printed[i]?.at),
  );
  expect(await read(1)).toMatchObject({ lines: [{ at: printed[6]?.at }], leftOut: 3 });
});
