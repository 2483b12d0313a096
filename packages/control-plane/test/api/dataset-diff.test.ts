/** The difference of two versions of a dataset, through the API. */
import type { DatasetDiff } from '@berth/wire/dataset';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { found, record, versionOf } from '../store/datasets-in.ts';
import { fakeTree } from '../fake-tree.ts';
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
const diff = (from: unknown, to: unknown, more: Record<string, string | number> = {}): Promise<Reply> =>
  api.call('datasetDiff', { params: { id: 'photos' }, query: { from: Number(from), to: Number(to), ...more }, as: 'viewer' });
const rows = ({ json }: Reply): string[] => (json as DatasetDiff).items.map(({ change, path }) => `${change} ${path}`);

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
  expect((await diff(2, 2)).json).toMatchObject({ items: [], totals: { added: { files: 0 } }, next_cursor: null });
});

it('pages through many differences with the same totals', async () => {
  const many = (text: string) => Object.fromEntries(Array.from({ length: 450 }, (_, i) => [`f${String(i).padStart(4, '0')}`, text]));
  await versions(many('a'), many('b'));
  const seen: string[] = [];
  let cursor: string | null = null;
  do {
    const reply: Reply = await diff(1, 2, { limit: 200, ...(cursor === null ? {} : { cursor }) });
    expect(reply.json).toMatchObject({ totals: { modified: { files: 450, bytes: 450, previous_bytes: 450 }, complete: true } });
    seen.push(...rows(reply));
    cursor = (reply.json as DatasetDiff).next_cursor;
  } while (cursor !== null);
  expect([seen.length, new Set(seen).size]).toEqual([450, 450]);
});

it('says which version does not exist, and which was removed', async () => {
  const id = await versions({ a: '1' }, { a: '2' }, { a: '3' });
  expect(await diff(1, 9)).toMatchObject({ status: 404, json: { detail: 'photos has no version 9; its newest is 3' } });
  await api.stores.datasets.requestScan(id, { full: false, acceptLoss: false }, 9);
  const claim = await api.stores.datasets.claimDue('prune', 1e12, 2e12);
  if (claim === null) throw new Error('fixture: nothing is due');
  expect(await api.stores.datasets.prune(claim, 1)).toBe(2);
  expect(await diff(1, 3)).toMatchObject({ status: 404, json: { detail: expect.stringContaining('version 1 of photos was removed') } });
});

it.each([
  ['0', '1'],
  ['1', 'x'],
])('refuses the versions %s and %s, and a cursor that no page gave', async (from, to) => {
  await versions({ a: '1' });
  expect((await diff(from, to)).status).toBe(422);
  expect((await diff(1, 1, { cursor: 'x' })).status).toBe(422);
});
