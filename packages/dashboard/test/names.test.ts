/** Names of projects are read for the ids of the page, in few requests. */
import { expect, it } from 'vitest';
import { createNameReader } from '../src/parts/name-reader.ts';

it('reads 250 names in three requests, and none of other projects', async () => {
  const asked: (readonly string[])[] = [];
  const readName = createNameReader((ids) => {
    asked.push(ids);
    return Promise.resolve({
      items: ids.filter((id) => id !== 'p7').map((id) => ({ id, name: `name of ${id}` })),
    });
  });
  const names = await Promise.all(Array.from({ length: 250 }, (_, i) => readName(`p${i}`)));
  expect(asked.map((batch) => batch.length)).toEqual([100, 100, 50]);
  expect([names[0], names[7], names[249]]).toEqual(['name of p0', null, 'name of p249']);
});

it('fails the names of a request that fails, and reads them the next time', async () => {
  let isAway = true;
  const readName = createNameReader((ids) =>
    isAway
      ? Promise.reject(new Error('away'))
      : Promise.resolve({ items: ids.map((id) => ({ id, name: id.toUpperCase() })) }),
  );
  await expect(Promise.allSettled(['a', 'b'].map(readName))).resolves.toMatchObject([
    { status: 'rejected' },
    { status: 'rejected' },
  ]);
  isAway = false;
  await expect(readName('a')).resolves.toBe('A');
});
