import { expect, test } from 'vitest';
import type { LogLineIn } from '@berth/wire/task';
import { openDatabase } from '../../src/store/database.ts';
import { createLogStore } from '../../src/store/logs.ts';
import { onTestFinished } from 'vitest';
import { join } from 'node:path';
import { codeOf, deploymentIn, NOW, open, projectIn, quiet, tempDir } from './fixtures.ts';

const line = (text: string): LogLineIn => ({ stream: 'stdout', text });
const lines = (...texts: string[]): LogLineIn[] => texts.map(line);
const source = (first: number | null, attempt = 1, task_id = 't1') => ({ task_id, attempt, first });

test('lines are numbered, kept as they came, and read after a number', async () => {
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

test('a batch sent again is stored once, also when it has grown, for each attempt anew', async () => {
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
  expect((await stores.logs.read('d1', 0, 99)).map((l) => l.text)).toEqual(['a', 'b', 'c', 'd', 'f', 'a', 'other', 'n', 'n']);
});

test('batches at once do not share a number', async () => {
  const stores = await open();
  await deploymentIn(stores, await projectIn(stores), 'd1');
  await Promise.all(Array.from({ length: 20 }, (_, i) => stores.logs.append('d1', source(null), lines(`${i}a`, `${i}b`), NOW)));
  const read = await stores.logs.read('d1', 0, 99);
  expect(read.map((l) => l.seq)).toEqual(Array.from({ length: 40 }, (_, i) => i + 1));
});

test.each([
  ['lines', { lines: 3, bytes: 1000 }, ['a', 'b', 'c', 'd'], 3],
  ['lines, exactly', { lines: 3, bytes: 1000 }, ['a', 'b', 'c'], 3],
  ['bytes, as UTF-8', { lines: 100, bytes: 8 }, ['aaa', 'äää', 'b'], 1],
] as const)('beyond the bound one line says so: %s', async (_, bounds, batch, stored) => {
  const path = join(tempDir(), 'berth.db');
  const stores = await open(path);
  await deploymentIn(stores, await projectIn(stores), 'd1');
  await stores.close();
  const db = await openDatabase(`sqlite:${path}`, quiet, () => NOW);
  onTestFinished(() => db.close());
  const logs = createLogStore(db, bounds);
  expect(await logs.append('d1', source(0), lines(...batch), NOW)).toBe(stored);
  for (let again = 0; again < 3; again++) expect(await logs.append('d1', source(batch.length + again), lines('late'), NOW)).toBe(0);
  const read = await logs.read('d1', 0, 99);
  expect(read.slice(0, stored).map((l) => l.text)).toEqual(batch.slice(0, stored));
  expect(read.slice(stored)).toMatchObject([{ stream: 'system', seq: stored + 1, text: expect.stringContaining('The log ends here') }]);
});

test('the usual bound holds 50,000 lines', async () => {
  const stores = await open();
  await deploymentIn(stores, await projectIn(stores), 'd1');
  const batch = Array.from({ length: 1000 }, (_, i) => line(`line ${i}`));
  let stored = 0;
  for (let i = 0; i < 51; i++) stored += await stores.logs.append('d1', source(i * 1000), batch, NOW);
  expect(stored).toBe(50_000);
  expect(await stores.logs.read('d1', 49_998, 99)).toHaveLength(3);
  expect(await stores.logs.read('d1', 0, 1_000_000)).toHaveLength(5000);
});
