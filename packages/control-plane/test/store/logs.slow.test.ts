import { expect, test } from 'vitest';
import type { LogLineIn } from '@berth/wire/task';
import { openDatabase } from '../../src/store/engine/database.ts';
import { createLogStore } from '../../src/store/logs.ts';
import { onTestFinished } from 'vitest';
import { codeOf, deploymentIn, freshPath, NOW, open, projectIn, quiet, urlOf } from './fixtures.ts';

const line = (text: string): LogLineIn => ({ stream: 'stdout', text });
const lines = (...texts: string[]): LogLineIn[] => texts.map(line);
const source = (first: number | null, attempt = 1, task_id = 't1') => ({ task_id, attempt, first });

test('lines are numbered, stored as sent, and read after a number', async () => {
  const stores = await open();
  await deploymentIn(stores, await projectIn(stores), 'd1');
  const at = '2026-01-02T03:04:05.678Z';
  expect(
    await stores.logs.append(
      'd1',
      source(0),
      [
        { stream: 'stderr', text: 'ä\u001b[0m', step: '[1/2] RUN x', at },
        line(''),
        { stream: 'system', text: 'x\0\uD800', step: null, at: 'yesterday' },
      ],
      NOW,
    ),
  ).toBe(3);
  expect(await stores.logs.read('d1', 0, 10)).toEqual([
    { seq: 1, at: Date.parse(at), stream: 'stderr', step: '[1/2] RUN x', text: 'ä\u001b[0m' },
    { seq: 2, at: NOW, stream: 'stdout', step: null, text: '' },
    { seq: 3, at: NOW, stream: 'system', step: null, text: 'x\uFFFD\uFFFD' },
  ]);
  expect((await stores.logs.read('d1', 1, 1)).map((l) => l.seq)).toEqual([2]);
  expect(await stores.logs.read('d1', 3, 10)).toEqual([]);
  expect(await stores.logs.append('d1', source(3), [], NOW)).toBe(0);
  expect(await codeOf(stores.logs.append('nobody', source(0), lines('x'), NOW))).toBe('not_found');
  expect(await stores.logs.read('nobody', 0, 10)).toEqual([]);
});

test('a repeated batch is stored once for each attempt, even if it has grown', async () => {
  const stores = await open();
  await deploymentIn(stores, await projectIn(stores), 'd1');
  const append = (batch: string[], ...from: Parameters<typeof source>): Promise<number> =>
    stores.logs.append('d1', source(...from), lines(...batch), NOW);
  expect(await append(['a', 'b'], 0)).toBe(2);
  expect(await append(['a', 'b'], 0)).toBe(0);
  expect(await append(['b', 'c'], 1)).toBe(1);
  expect(await append(['a', 'b', 'c', 'd'], 0)).toBe(1);
  expect(await append(['f'], 5)).toBe(1);
  expect(await append(['a'], 0, 2)).toBe(1);
  expect(await append(['other'], 0, 1, 't2')).toBe(1);
  expect(await append(['n'], null)).toBe(1);
  expect(await append(['n'], null)).toBe(1);
  expect((await stores.logs.read('d1', 0, 99)).map((l) => l.text)).toEqual([
    'a',
    'b',
    'c',
    'd',
    'f',
    'a',
    'other',
    'n',
    'n',
  ]);
});

test('concurrent batches never share a number', async () => {
  const stores = await open();
  await deploymentIn(stores, await projectIn(stores), 'd1');
  await Promise.all(
    Array.from({ length: 20 }, (_, i) =>
      stores.logs.append('d1', source(null), lines(`${i}a`, `${i}b`), NOW),
    ),
  );
  const read = await stores.logs.read('d1', 0, 99);
  expect(read.map((l) => l.seq)).toEqual(Array.from({ length: 40 }, (_, i) => i + 1));
});

test.each([
  // The log may have ten lines; the eleventh cuts the rest after the first two to its newest five.
  ['lines', { first: 2, lines: 12, bytes: 1_000 }, 30],
  ['bytes, as UTF-8', { first: 2, lines: 1_000, bytes: 60 }, 30],
] as const)(
  'beyond the bound of %s the beginning and the end are kept, and one line says what is missing',
  async (_, bounds, count) => {
    const path = freshPath();
    const stores = await open(path);
    await deploymentIn(stores, await projectIn(stores), 'd1');
    await stores.close();
    const db = await openDatabase(await urlOf(path), quiet, () => NOW);
    onTestFinished(() => db.close());
    const logs = createLogStore(db, bounds);
    for (let i = 0; i < count; i++)
      expect(await logs.append('d1', source(i), lines(`ä${i}`), NOW)).toBe(1);
    const read = await logs.read('d1', 0, 99);
    expect(read.length).toBeLessThanOrEqual(bounds.lines + 1);
    expect(read.slice(0, 2).map((l) => l.text)).toEqual(['ä0', 'ä1']);
    expect(read.at(-1)?.text).toBe(`ä${count - 1}`);
    const notice = read[2];
    expect(notice).toMatchObject({
      seq: 3,
      stream: 'system',
      text: expect.stringMatching(/\d+ lines were removed here/),
    });
    // The numbers continue after the gap, and the notice counts exactly the removed lines.
    expect(Number(/\d+/.exec(notice?.text ?? '')?.[0])).toBe((read[3]?.seq ?? 0) - 3);
    expect(read.slice(3).map((l) => l.text)).toEqual(read.slice(3).map((l) => `ä${l.seq - 1}`));
    // A repeated batch is still stored once.
    expect(await logs.append('d1', source(count - 1), lines(`ä${count - 1}`), NOW)).toBe(0);
  },
);

test('an endless log stays bounded and keeps its last line', async () => {
  const stores = await open();
  await deploymentIn(stores, await projectIn(stores), 'd1');
  const batch = (from: number) => Array.from({ length: 1000 }, (_, i) => line(`line ${from + i}`));
  for (let i = 0; i < 55; i++)
    await stores.logs.append('d1', source(i * 1000), batch(i * 1000), NOW);
  const all = [];
  for (let after = 0; ; ) {
    const page = await stores.logs.read('d1', after, 1_000_000);
    expect(page.length).toBeLessThanOrEqual(5000);
    if (page.length === 0) break;
    all.push(...page);
    after = page.at(-1)?.seq ?? after;
  }
  expect(all.length).toBeLessThan(50_000);
  expect(all.at(-1)?.text).toBe('line 54999');
});

test('a reader whose next lines were removed learns which ones and continues after them', async () => {
  const path = freshPath();
  const stores = await open(path);
  await deploymentIn(stores, await projectIn(stores), 'd1');
  await stores.close();
  const db = await openDatabase(await urlOf(path), quiet, () => NOW);
  onTestFinished(() => db.close());
  const logs = createLogStore(db, { first: 2, lines: 12, bytes: 1_000_000 });
  const append = (from: number, count: number) =>
    logs.append(
      'd1',
      source(from),
      lines(...Array.from({ length: count }, (_, i) => `line ${from + i + 1}`)),
      NOW,
    );
  await append(0, 8);
  const read = await logs.read('d1', 0, 5);
  expect(read.at(-1)?.seq).toBe(5);
  await append(8, 42);
  const next = await logs.read('d1', 5, 3);
  expect(next.map((l) => l.seq)).toEqual([44, 45, 46]);
  expect(next[0]).toMatchObject({
    stream: 'system',
    step: null,
    text: expect.stringContaining('lines 6 to 44 were removed'),
  });
  expect(next[1]?.text).toBe('line 45');
  // The notice has its own number: a reader that stops after it misses no line and gets none twice.
  expect((await logs.read('d1', 44, 1))[0]?.text).toBe('line 45');
  // A reader from the beginning gets the notice of the log, and no second one.
  const whole = await logs.read('d1', 0, 99);
  expect(whole.filter((l) => l.text.includes('were removed')).map((l) => l.seq)).toEqual([3]);
  expect(
    (await logs.read('d1', 2, 99)).filter((l) => l.text.includes('were removed')),
  ).toHaveLength(1);
  // Number 3 was a line and is the notice now. A reader that had either learns of the gap.
  expect((await logs.read('d1', 3, 99))[0]?.text).toContain('lines 4 to 44 were removed');
});
