/** `berth dataset diff`: two versions of a dataset as the real control plane has them. */
import { beforeAll, expect, test } from 'vitest';
import { fakeTree } from '../../control-plane/test/fake-tree.ts';
import { found, record, versionOf } from '../../control-plane/test/store/datasets-in.ts';
import { type Person, serveOnce, signedIn } from './support.ts';

const served = serveOnce();
let who: Person;
const many = (text: string): Record<string, string> =>
  Object.fromEntries(
    Array.from({ length: 230 }, (_, i) => [`many/${String(i).padStart(3, '0')}`, text]),
  );

beforeAll(async () => {
  who = await signedIn(served.url);
  const { stores } = served.api;
  const { id } = await stores.datasets.create({ name: 'photos', nfs_path: 'photos' }, 1);
  const versions: Record<string, string>[] = [
    { a: '1', 'd/b': '22', 'd/c': '333' },
    { a: '1', 'd/b': 'longer', 'f/new': '7777' },
    many('old'),
    many('newer'),
  ];
  for (const [i, files] of versions.entries()) {
    await stores.datasets.requestScan(id, { full: false, acceptLoss: false }, i);
    const claim = await stores.datasets.claimDue(`t${i}`, 1e12, 2e12);
    if (claim === null) throw new Error('fixture: nothing is due');
    const tree = fakeTree(files);
    expect(await record(stores, claim, tree)).toBe(true);
    expect(
      await stores.datasets.finishScan(
        claim,
        { set: found(i), newVersion: versionOf(claim, tree) },
        i,
      ),
    ).toBe(true);
  }
}, 60_000);

const diff = (...argv: string[]) => who.berth(['dataset', 'diff', 'photos', ...argv]);

test('prints the totals, and each file with its sizes before and now', async () => {
  const { code, out, err } = await diff('1', '2');
  expect({ code, err }).toEqual({ code: 0, err: '' });
  expect(out).toBe(
    [
      'v1 to v2: 1 added (4 B), 1 modified (2 B before, 6 B now), 1 removed (3 B)',
      '',
      'CHANGE    BEFORE  NOW  PATH',
      'modified  2 B     6 B  d/b',
      'removed   3 B          d/c',
      'added             4 B  f/new',
      '',
    ].join('\n'),
  );
});

test('compares in both directions, and says it when nothing differs', async () => {
  expect((await diff('v2', 'v1')).out).toContain(
    'v2 to v1: 1 added (3 B), 1 modified (6 B before, 2 B now), 1 removed (4 B)',
  );
  expect((await diff('2', '2')).out).toBe(
    'v2 to v2: 0 added (0 B), 0 modified (0 B before, 0 B now), 0 removed (0 B)\n',
  );
});

test('reads as many pages as the limit needs, and prints one object with --json', async () => {
  const items = async (...limit: string[]): Promise<unknown[]> => {
    const { code, out, err } = await diff('3', '4', '--json', ...limit);
    expect({ code, err }).toEqual({ code: 0, err: '' });
    const found = JSON.parse(out) as { items: unknown[]; totals: object };
    expect(found.totals).toMatchObject({ modified: { files: 230 }, complete: true });
    return found.items;
  };
  expect(await items()).toHaveLength(50);
  expect(await items('-n', '210')).toHaveLength(210);
  expect(await items('-n', '1000')).toHaveLength(230);
});

test.each([
  [['1', '9'], 1, /version/],
  [['1', 'newest'], 2, /version/],
])('%j is refused', async (argv, code, text) => {
  expect(await diff(...argv)).toMatchObject({ code, out: '', err: expect.stringMatching(text) });
});
