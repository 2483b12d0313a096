/** Names of projects are read for the ids of the page, in few requests. */
import { beforeEach, expect, it, vi } from 'vitest';

const { call } = vi.hoisted(() => ({ call: vi.fn<(name: string, input: { query: { ids: string } }) => Promise<unknown>>() }));
vi.mock('../src/api/client.ts', () => ({ call, isAway: () => false }));
const { readName } = await import('../src/parts/names.ts');

beforeEach(() => void call.mockReset());

it('reads 250 names in three requests, and none of other projects', async () => {
  const asked: string[][] = [];
  call.mockImplementation((_name, { query }) => {
    const ids = query.ids.split(',');
    asked.push(ids);
    return Promise.resolve({ items: ids.filter((id) => id !== 'p7').map((id) => ({ id, name: `name of ${id}` })), next_cursor: null });
  });
  const names = await Promise.all(Array.from({ length: 250 }, (_, i) => readName(`p${i}`)));
  expect(asked.map((batch) => batch.length)).toEqual([100, 100, 50]);
  expect([names[0], names[7], names[249]]).toEqual(['name of p0', null, 'name of p249']);
});

it('fails the names of a request that fails, and reads them the next time', async () => {
  call.mockRejectedValueOnce(new Error('away'));
  await expect(Promise.allSettled(['a', 'b'].map(readName))).resolves.toMatchObject([{ status: 'rejected' }, { status: 'rejected' }]);
  call.mockResolvedValueOnce({ items: [{ id: 'a', name: 'A' }], next_cursor: null });
  await expect(readName('a')).resolves.toBe('A');
});
