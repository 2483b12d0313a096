/** Names of projects are read for the ids of the page, in few requests. */
import { afterEach, expect, it, vi } from 'vitest';
import { readName } from '../src/parts/names.ts';

afterEach(() => vi.unstubAllGlobals());

it('reads 250 names in three requests, each id once, and none of other projects', async () => {
  const asked: string[][] = [];
  vi.stubGlobal('fetch', (url: string) => {
    const ids = (new URL(url, 'http://berth').searchParams.get('ids') ?? '').split(',');
    asked.push(ids);
    const items = ids.filter((id) => id !== 'p7').map((id) => ({ id, name: `name of ${id}` }));
    return Promise.resolve(Response.json({ items, next_cursor: null }));
  });
  const ids = Array.from({ length: 250 }, (_, i) => `p${i % 240}`);
  const names = await Promise.all(ids.map(readName));
  expect(asked.map((batch) => [batch.length, new Set(batch).size])).toEqual([
    [100, 100],
    [100, 100],
    [50, 50],
  ]);
  expect([names[0], names[7], names[239]]).toEqual(['name of p0', null, 'name of p239']);
});

it('fails all names of a request that fails', async () => {
  vi.stubGlobal('fetch', () => Promise.resolve(new Response('{}', { status: 500 })));
  await expect(Promise.all(['a', 'b'].map(readName))).rejects.toThrow();
});
