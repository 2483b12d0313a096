import { silentLogger } from '@berth/kit/log';
import type { LogBatch } from '@berth/wire/runtime';
import { afterEach, expect, test } from 'vitest';
import {
  createReaders,
  type ReaderLimits,
  type Readers,
} from '../../src/api/runtime-logs/readers.ts';
import { createChanges, type Changes } from '../../src/domain/platform/changes.ts';
import type { LogRelay } from '../../src/domain/deployments/runtime-logs.ts';
import type { AllStores } from '../../src/store/open.ts';
import { storesInMemory } from '../store/in-memory.ts';

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

/** Control planes that share a database, and the clock of its uptime. */
async function world() {
  const stores: AllStores = await storesInMemory();
  ends.push(() => stores.close());
  const listeners = new Map<string, (message: string) => void>();
  const clock = { at: 1_000_000 };
  const sent: string[] = [];
  const killed = new Set<string>();
  const relay = (owner: string): LogRelay => ({
    owner,
    send(to, message) {
      sent.push(to);
      listeners.get(to)?.(message);
    },
    subscribe: (listener) => void listeners.set(owner, listener),
  });
  /** `owner`: null for the only control plane of a database. */
  function controlPlane(
    owner: string | null,
    readerLimits: Partial<ReaderLimits> = {},
  ): { readers: Readers; changes: Changes } {
    const changes = createChanges();
    /** A control plane that was killed writes nothing any more. */
    const ifAlive = async (work: () => Promise<void>): Promise<void> =>
      killed.has(owner ?? '') ? undefined : work();
    const readers = createReaders({
      stores: {
        logWants: {
          ...stores.logWants,
          put: (...args) => ifAlive(() => stores.logWants.put(...args)),
          removeOwner: (...args) => ifAlive(() => stores.logWants.removeOwner(...args)),
        },
        logRelay: owner === null ? null : relay(owner),
      },
      changes,
      uptime: { estimate: () => ({ at: clock.at, since: 0 }) },
      now: () => clock.at,
      log: silentLogger(),
      readerLimits: { lingerMs: 0, ...readerLimits },
    });
    ends.push(() => readers.close());
    return { readers, changes };
  }
  return { stores, controlPlane, clock, sent, kill: (owner: string) => void killed.add(owner) };
}

const batch = (first: number, count: number, more: Partial<LogBatch> = {}): LogBatch => ({
  node_id: 'n1',
  epoch: 'e1',
  first,
  now: 1_000_000,
  lines: Array.from({ length: count }, (_, i) => ({
    at: `2026-11-23T20:00:00.${String(first + i).padStart(9, '0')}Z`,
    stream: 'stdout' as const,
    text: `line ${first + i}`,
  })),
  ...more,
});
const read = {
  deployment_id: 'd1',
  instance: null,
  node_id: 'n1',
  tail: 10,
  since: null,
  until: null,
  stream: null,
  after: null,
};
/** The log of a deployment with one instance. */
const log = (id: string, node_id: string) => ({
  key: id,
  deployment_id: id,
  instance: null,
  node_id,
});
const never = new AbortController().signal;
const BEGIN = { after: null, since: 1_000_000 };

test('there is room for so many logs of a control plane and of a node; viewers of the same log need none', async () => {
  const { controlPlane } = await world();
  const { readers } = controlPlane(null, { follows: 3, followsOfNode: 2 });
  const of = (key: string, node_id: string | null) => ({ key, node_id });
  expect(readers.hasRoom([of('d1', 'n1'), of('d2', 'n1')])).toBe(true);
  expect(readers.hasRoom([of('d1', 'n1'), of('d2', 'n1'), of('d3', 'n1')])).toBe(false);
  const held = [
    await readers.follow(log('d1', 'n1'), BEGIN),
    await readers.follow(log('d2', 'n1'), BEGIN),
  ];
  expect(readers.hasRoom([of('d3', 'n1')])).toBe(false);
  await expect(readers.follow(log('d3', 'n1'), BEGIN)).rejects.toMatchObject({
    code: 'too_many_requests',
  });
  expect(readers.hasRoom([of('d1', 'n1'), of('d2', 'n1'), of('d3', 'n2')])).toBe(true);
  expect(readers.hasRoom([of('d3', 'n2'), of('d4', 'n3')])).toBe(false);
  // A deployment without a node needs no reader on any node, and counts for the control plane.
  expect(readers.hasRoom([of('d3', null)])).toBe(true);
  held.push(await readers.follow(log('d1', 'n1'), BEGIN));
  expect(readers.counts().follows).toBe(2);
  held[0]?.release();
  expect(readers.counts().follows).toBe(2);
  held[1]?.release();
  await expect.poll(() => readers.hasRoom([of('d3', 'n1')])).toBe(true);
});

test('equal reads share one want, and a full control plane refuses the next one', async () => {
  const { controlPlane } = await world();
  const { readers } = controlPlane(null, { reads: 1 });
  const both = [readers.read(read, never), readers.read({ ...read }, never)];
  await expect(readers.read({ ...read, tail: 11 }, never)).rejects.toMatchObject({
    code: 'too_many_requests',
  });
  const wants = await readers.wantsOf('n1');
  expect(wants).toHaveLength(1);
  expect(await readers.wantsOf('n2')).toEqual([]);
  await readers.accept(wants[0]?.key ?? '', batch(0, 3, { end: true, left_out: 7 }));
  for (const { lines, isCut, problem } of await Promise.all(both))
    expect([lines.length, isCut, problem]).toEqual([3, true, null]);
  expect(await readers.wantsOf('n1')).toEqual([]);
});

test('a node that does not answer a read: the answer says so', async () => {
  const { controlPlane } = await world();
  const { readers } = controlPlane(null, { readMs: 50 });
  const { problem } = await readers.read(read, never);
  expect(problem).toBe('its node did not answer within 0.05 s');
  expect(readers.counts().reads).toBe(0);
});

test('lines for another node, for a log that nobody wants, and beyond the rate', async () => {
  const { controlPlane } = await world();
  const { readers } = controlPlane(null, { linesPerSecond: 1_000 });
  const held = await readers.follow(log('d1', 'n1'), BEGIN);
  const [want] = await readers.wantsOf('n1');
  const key = want?.key ?? '';
  expect(await readers.accept(key, batch(0, 5, { node_id: 'n2' }))).toEqual({
    wanted: false,
    wait_ms: 0,
  });
  expect(await readers.accept('f-other', batch(0, 5))).toEqual({ wanted: false, wait_ms: 0 });
  expect(held.channel.tail).toBe(0);
  expect(await readers.accept(key, batch(0, 900))).toEqual({ wanted: true, wait_ms: 0 });
  const { wait_ms } = await readers.accept(key, batch(900, 1_000));
  expect(wait_ms).toBeGreaterThan(500);
  expect(wait_ms).toBeLessThanOrEqual(1_000);
  // The numbers 1,900 to 1,999 never come.
  await readers.accept(key, batch(2_000, 1));
  await expect
    .poll(() => readers.counts(), { timeout: 10_000 })
    .toMatchObject({ lines: 1_901, lost: 100 });
  held.release();
});

test('two control planes: the lines reach the viewers of both by way of either; a want ends 30 s after its control plane', async () => {
  const { controlPlane, clock, sent, stores, kill } = await world();
  const [a, b] = [controlPlane('a'), controlPlane('b')];
  const at = await a.readers.follow(log('d1', 'n1'), BEGIN);
  const beside = await b.readers.follow(log('d1', 'n1'), BEGIN);
  const [want, ...more] = await b.readers.wantsOf('n1');
  expect(more).toEqual([]);
  const key = want?.key ?? '';
  // The agent asks the other control plane, with and without an own viewer there.
  expect((await b.readers.accept(key, batch(0, 3))).wanted).toBe(true);
  expect([at.channel.tail, beside.channel.tail]).toEqual([3, 3]);
  beside.release();
  await expect.poll(() => b.readers.counts().follows).toBe(0);
  expect((await b.readers.accept(key, batch(3, 2))).wanted).toBe(true);
  expect(at.channel.tail).toBe(5);
  // A batch that is repeated after a broken connection, at the other one.
  await a.readers.accept(key, batch(3, 2));
  expect([at.channel.tail, a.readers.counts().lost]).toEqual([5, 0]);

  // It removes nothing. Its want is offered until it expires.
  kill('a');
  clock.at += 29_000;
  expect(await b.readers.wantsOf('n1')).toHaveLength(1);
  clock.at += 1_000;
  expect(await b.readers.wantsOf('n1')).toEqual([]);
  await expect
    .poll(async () => (await b.readers.accept(key, batch(5, 1))).wanted, { timeout: 20_000 })
    .toBe(false);
  const count = sent.length;
  await b.readers.accept(key, batch(6, 1));
  expect(sent).toHaveLength(count);
  // The next write removes the expired row.
  const later = await b.readers.follow(log('d2', 'n1'), BEGIN);
  expect((await stores.logWants.list(0)).map((row) => row.key)).toEqual(['f-d2']);
  later.release();
});

test('a new reader begins when the log was first wanted, or at the line of the control plane that is furthest behind', async () => {
  const { stores, controlPlane, clock } = await world();
  const [a, b] = [controlPlane('a'), controlPlane('b')];
  const beginOf = async () =>
    (await b.readers.wantsOf('n1')).map(({ since_ago_ms, after }) => [since_ago_ms, after]);
  await a.readers.follow(log('d1', 'n1'), { after: null, since: clock.at });
  clock.at += 3_000;
  await b.readers.follow(log('d1', 'n1'), { after: null, since: clock.at });
  clock.at += 1_000;
  expect(await beginOf()).toEqual([[4_000, null]]);
  // Only one of them has a line: the other one may need the lines before it.
  const [early, late] = ['2026-11-23T20:00:01.000000000Z', '2026-11-23T20:00:05.000000000Z'];
  const row = {
    key: 'f-d2',
    node_id: 'n2',
    deployment_id: 'd2',
    instance: null,
    mode: 'follow' as const,
    tail: 5,
    until_at: null,
  };
  const put = (owner: string, position: string | null) =>
    stores.logWants.put(
      {
        ...row,
        owner,
        since_at: clock.at - 2_000,
        stream: null,
        position,
        expires_at: clock.at + 30_000,
      },
      clock.at,
    );
  await put('a', late);
  await put('b', null);
  const second = async () =>
    (await b.readers.wantsOf('n2')).map(({ since_ago_ms, after }) => [since_ago_ms, after]);
  expect(await second()).toEqual([[2_000, late]]);
  // The one that is furthest behind decides.
  await put('b', early);
  expect(await second()).toEqual([[null, early]]);
});
