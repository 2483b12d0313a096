/** The difference of two versions of a dataset, through the API. */
import type { DatasetDiff } from '@berth/wire/dataset';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { found, record, versionOf } from '../store/datasets-in.ts';
import { fakeTree } from '../fake-tree.ts';
import { createComparisons, diffPage } from '../../src/api/dataset-diff.ts';
import { type Api, createApi, type Reply } from './harness.ts';

let api: Api;
beforeEach(async () => {
  api = await createApi();
});
afterEach(() => api.close());

/** Records these versions of the dataset `photos`. */
async function versions(...all: Record<string, string>[]): Promise<string> {
  const { id } = await api.stores.datasets.create({ name: 'photos', nfs_path: 'photos' }, 1);
  for (const [i, files] of all.entries()) {
    await api.stores.datasets.requestScan(id, { full: false, acceptLoss: false }, i);
    const claim = await api.stores.datasets.claimDue(`t${i}`, 1e12, 2e12);
    if (claim === null) throw new Error('fixture: nothing is due');
    const tree = fakeTree(files);
    expect(await record(api.stores, claim, tree)).toBe(true);
    const plan = { set: found(i), newVersion: versionOf(claim, tree) };
    expect(await api.stores.datasets.finishScan(claim, plan, i)).toBe(true);
  }
  return id;
}
const diff = (
  from: unknown,
  to: unknown,
  more: Record<string, string | number> = {},
): Promise<Reply> =>
  api.call('datasetDiff', {
    params: { id: 'photos' },
    query: { from: Number(from), to: Number(to), ...more },
    as: 'viewer',
  });
const rows = ({ json }: Reply): string[] =>
  (json as DatasetDiff).items.map(({ change, path }) => `${change} ${path}`);

it('compares any two versions, in both directions, with totals', async () => {
  await versions(
    { a: '1', 'd/b': '22', 'd/c': '333', 'e/same': 'x' },
    { a: '1', 'd/b': 'between', 'e/same': 'x' },
    { a: '1', 'd/b': 'longer', 'f/new': '7777', 'e/same': 'x' },
  );
  const there = await diff(1, 3);
  expect(rows(there)).toEqual(['modified d/b', 'removed d/c', 'added f/new']);
  expect(there.json).toMatchObject({
    from: { version: 1, files: 4 },
    to: { version: 3, files: 4 },
    totals: {
      added: { files: 1, bytes: 4 },
      modified: { files: 1, bytes: 6, previous_bytes: 2 },
      removed: { files: 1, bytes: 3 },
      complete: true,
    },
    next_cursor: null,
  });
  expect(rows(await diff(3, 1))).toEqual(['modified d/b', 'added d/c', 'removed f/new']);
  expect((await diff(2, 2)).json).toMatchObject({
    items: [],
    totals: { added: { files: 0 } },
    next_cursor: null,
  });
});

it('pages through many differences with the same totals', async () => {
  const many = (text: string) =>
    Object.fromEntries(
      Array.from({ length: 450 }, (_, i) => [`f${String(i).padStart(4, '0')}`, text]),
    );
  await versions(many('a'), many('b'));
  const seen: string[] = [];
  let cursor: string | null = null;
  do {
    const reply: Reply = await diff(1, 2, { limit: 200, ...(cursor === null ? {} : { cursor }) });
    expect(reply.json).toMatchObject({
      totals: { modified: { files: 450, bytes: 450, previous_bytes: 450 }, complete: true },
    });
    seen.push(...rows(reply));
    cursor = (reply.json as DatasetDiff).next_cursor;
  } while (cursor !== null);
  expect([seen.length, new Set(seen).size]).toEqual([450, 450]);
});

it('says which version does not exist, and which was removed', async () => {
  const id = await versions({ a: '1' }, { a: '2' }, { a: '3' });
  expect(await diff(1, 9)).toMatchObject({
    status: 404,
    json: { detail: 'photos has no version 9; its newest is 3' },
  });
  await api.stores.datasets.requestScan(id, { full: false, acceptLoss: false }, 9);
  const claim = await api.stores.datasets.claimDue('prune', 1e12, 2e12);
  if (claim === null) throw new Error('fixture: nothing is due');
  expect(await api.stores.datasets.prune(claim, 1)).toBe(2);
  expect(await diff(1, 3)).toMatchObject({
    status: 404,
    json: { detail: expect.stringContaining('version 1 of photos was removed') },
  });
});

it.each([
  ['0', '1'],
  ['1', 'x'],
])('refuses the versions %s and %s, and a cursor that no page gave', async (from, to) => {
  await versions({ a: '1' });
  expect((await diff(from, to)).status).toBe(422);
  expect((await diff(1, 1, { cursor: 'x' })).status).toBe(422);
});

it('a comparison that takes too long, or whose caller left, ends and says that there is more', async () => {
  const id = await versions(
    { 'a/1': '1', 'b/1': '1', 'c/1': '1' },
    { 'a/1': '2', 'b/1': '2', 'c/1': '2' },
  );
  const [to, from] = (await api.stores.datasets.versions(id, { limit: 2, cursor: null })).items;
  const roots = { from: from?.manifest_digest ?? '', to: to?.manifest_digest ?? '' };
  const gone = new AbortController();
  let [clock, reads] = [0, 0];
  const load = async (digest: string): Promise<string> => {
    clock += 1_000;
    reads += 1;
    return (await api.stores.datasets.trees(id, [digest])).get(digest) ?? '';
  };
  const page = (withinMs: number) =>
    diffPage(roots, load, {
      offset: 0,
      limit: 10,
      signal: gone.signal,
      withinMs,
      clock: () => clock,
    });
  const whole = await page(60_000);
  expect(whole).toMatchObject({
    isFinal: true,
    totals: { modified: { files: 3 }, complete: true },
  });
  const all = reads;
  const short = await page(5_000);
  expect(short).toMatchObject({ isFinal: false, hasMore: false, totals: { complete: false } });
  expect(short.items.length).toBeLessThan(3);
  expect(reads - all).toBeLessThan(all);
  // Totals that an earlier comparison found do not hide that this page is not whole.
  const known = { offset: 0, limit: 10, known: whole.totals, withinMs: 5_000, clock: () => clock };
  expect((await diffPage(roots, load, known)).totals).toEqual({ ...whole.totals, complete: false });
  gone.abort();
  reads = 0;
  expect(await page(60_000)).toMatchObject({
    isFinal: false,
    items: [],
    totals: { complete: false },
  });
  expect(reads).toBe(0);
});

it('runs one comparison of a person at a time and few in all; the others wait, and too many get 429', async () => {
  const turn = createComparisons({ atOnce: 2, waitingOfOne: 1, waiting: 3 });
  const running: string[] = [];
  const ends = new Map<string, () => void>();
  const left = new AbortController();
  const start = (
    name: string,
    person: string,
    signal = new AbortController().signal,
  ): Promise<string> =>
    turn(person, signal, async () => {
      running.push(name);
      await new Promise<void>((resolve) => ends.set(name, resolve));
      return name;
    });
  const a1 = start('a1', 'ada');
  const a2 = start('a2', 'ada');
  await expect(start('a3', 'ada')).rejects.toMatchObject({
    code: 'too_many_requests',
    retryAfter: 5,
  });
  const b1 = start('b1', 'bob');
  const c1 = start('c1', 'cy', left.signal);
  const d1 = start('d1', 'di');
  await expect(start('e1', 'eve')).rejects.toMatchObject({ code: 'too_many_requests' });
  expect(running).toEqual(['a1', 'b1']);
  // A caller that leaves gives its place to the next.
  left.abort();
  await expect(c1).rejects.toMatchObject({ code: 'too_many_requests' });
  ends.get('b1')?.();
  expect(await b1).toBe('b1');
  expect(running).toEqual(['a1', 'b1', 'd1']);
  ends.get('a1')?.();
  expect(await a1).toBe('a1');
  expect(running).toEqual(['a1', 'b1', 'd1', 'a2']);
  for (const name of ['a2', 'd1']) ends.get(name)?.();
  expect(await Promise.all([a2, d1])).toEqual(['a2', 'd1']);
});

it('GET …/compare takes turns: with one running and two waiting, the fourth of a person gets 429', async () => {
  await versions({ a: '1' }, { a: '2' });
  const { trees } = api.stores.datasets;
  let go = (): void => undefined;
  const held = new Promise<void>((resolve) => (go = resolve));
  api.stores.datasets.trees = async (...of) =>
    held.then(() => trees.apply(api.stores.datasets, of));
  const all = [1, 2, 3, 4].map(() => diff(1, 2));
  const first = await Promise.race(all);
  expect([first.status, first.json['code'], first.headers['retry-after']]).toEqual([
    429,
    'too_many_requests',
    '5',
  ]);
  go();
  expect((await Promise.all(all)).map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([
    200, 200, 200, 429,
  ]);
});
