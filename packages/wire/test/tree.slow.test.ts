/**
 * Checks the tree format against simple models: round trips, differences as between two maps, and
 * names as bytes.
 */
import { createHash } from 'node:crypto';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  compareNames,
  decodeName,
  decodeTree,
  diffTrees,
  displayPath,
  encodeName,
  encodeTree,
  MOST_ENTRIES,
  type NamedEntry,
  type TreeChange,
  TreeFormatError,
  walkTree,
} from '../src/tree.ts';

const sha256 = (data: string | Uint8Array): string =>
  createHash('sha256').update(data).digest('hex');

/** A store that records which objects were loaded. */
function treeStore() {
  const objects = new Map<string, string>();
  const loaded: string[] = [];
  return {
    objects,
    loaded,
    writer: { sha256, write: (digest: string, text: string) => void objects.set(digest, text) },
    load: async (digest: string): Promise<string> => {
      loaded.push(digest);
      const text = objects.get(digest);
      if (text === undefined) throw new Error(`no object ${digest}`);
      return text;
    },
  };
}
type Store = ReturnType<typeof treeStore>;

const collect = async <T>(items: AsyncIterable<T>): Promise<T[]> => {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
};

/** The simple model: a file is its content, a link is `-> target`, a folder is a map. */
type Node = string | { link: string } | Model;
type Model = Map<string, Node>;
const isFolder = (node: Node | undefined): node is Model => node instanceof Map;

function build(model: Model, store: Store): { digest: string; files: number; bytes: number } {
  const entries = [...model].map(([name, node]): NamedEntry => {
    if (isFolder(node)) return { kind: 'folder', name, ...build(node, store) };
    if (typeof node === 'string')
      return {
        kind: 'file',
        name,
        size: Buffer.byteLength(node),
        checksum: sha256(node),
        executable: node.startsWith('#!'),
      };
    const raw = decodeName(node.link);
    return { kind: 'link', name, size: raw.length, checksum: sha256(raw), target: node.link };
  });
  return encodeTree(
    entries.sort((a, b) => compareNames(a.name, b.name)),
    store.writer,
  );
}

/**
 * Maps each path to the checksum and kind of the file or link; the paths of empty folders end in
 * `/`.
 */
function flat(
  model: Model,
  under = '',
  into = new Map<string, { size: number; checksum: string; line: string }>(),
) {
  for (const [name, node] of model) {
    const path = under + name;
    if (isFolder(node)) {
      if (node.size === 0) into.set(`${path}/`, { size: 0, checksum: '', line: '' });
      flat(node, `${path}/`, into);
    } else {
      const raw = typeof node === 'string' ? Buffer.from(node) : decodeName(node.link);
      into.set(path, {
        size: raw.length,
        checksum: sha256(raw),
        line: typeof node === 'string' ? `f${node}` : `l${node.link}`,
      });
    }
  }
  return into;
}

function naiveDiff(was: Model, is: Model): TreeChange[] {
  const [olds, news] = [flat(was), flat(is)];
  const paths = [...new Set([...olds.keys(), ...news.keys()])].filter(
    (path) => !path.endsWith('/'),
  );
  return paths.flatMap((path): TreeChange[] => {
    const [a, b] = [olds.get(path), news.get(path)];
    const previous = { previous_size: a?.size ?? null, previous_checksum: a?.checksum ?? null };
    if (b === undefined)
      return [{ path, change: 'removed', size: null, checksum: null, ...previous }];
    if (a?.line === b.line) return [];
    return [
      {
        path,
        change: a === undefined ? 'added' : 'modified',
        size: b.size,
        checksum: b.checksum,
        ...previous,
      },
    ];
  });
}

const rawName = fc
  .oneof(
    fc.uint8Array({ minLength: 1, maxLength: 20 }),
    fc
      .constantFrom(
        '-rf',
        'a b',
        'new\nline',
        '%41',
        'é',
        '\u202Eoops',
        ' ',
        '~',
        'a\\b',
        '"',
        '...',
      )
      .map((s) => Buffer.from(s)),
    fc.constantFrom('a', 'b', 'c', 'ab', 'a.b').map((s) => Buffer.from(s)),
  )
  .filter(
    (raw) =>
      !raw.includes(0) &&
      !raw.includes(0x2f) &&
      !['.', '..'].includes(Buffer.from(raw).toString('latin1')),
  );
const name = rawName.map(encodeName);
const { model } = fc.letrec<{ model: Model; node: Node }>((tie) => ({
  node: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.constantFrom('', 'one', 'two', '#!/bin/sh'),
    name.map((link) => ({ link })),
    tie('model'),
  ),
  model: fc.array(fc.tuple(name, tie('node')), { maxLength: 6 }).map((pairs) => new Map(pairs)),
}));

describe('names', () => {
  it('are bytes: any bytes survive a round trip through printable ASCII without spaces', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1 }), (raw) => {
        const encoded = encodeName(raw);
        expect(encoded).toMatch(/^[!-~]+$/);
        expect([...decodeName(encoded)]).toEqual([...raw]);
      }),
    );
  });

  it('are ordered by their raw bytes, not by their encoded form', () => {
    fc.assert(
      fc.property(rawName, rawName, (a, b) => {
        expect(Math.sign(compareNames(encodeName(a), encodeName(b)))).toBe(Buffer.compare(a, b));
      }),
    );
  });

  it.each(['%', '%4', '%41', '%e9', '%2', 'a b', 'é', '', '%zz'])(
    'have exactly one encoded form: %j is refused',
    (encoded) => {
      if (encoded === '') expect(decodeName(encoded)).toHaveLength(0);
      else expect(() => decodeName(encoded)).toThrow(TreeFormatError);
    },
  );

  it.each([
    ['caf%C3%A9/a%20b.csv', 'café/a b.csv'],
    ['plain/name', 'plain/name'],
    ['caf%E9', 'caf%E9'],
    ['a%0Ab', 'a%0Ab'],
    ['%E2%80%AEtxt', '%E2%80%AEtxt'],
    ['100%25', '100%'],
  ])('%s is shown as %s', (encoded, shown) => expect(displayPath(encoded)).toBe(shown));
});

describe('objects', () => {
  it('survive a round trip, with any bytes as names', async () => {
    await fc.assert(
      fc.asyncProperty(model, async (tree) => {
        const store = treeStore();
        const root = build(tree, store);
        for (const [digest, text] of store.objects) {
          expect(digest).toBe(`sha256:${sha256(text)}`);
          expect(text).toMatch(/^berth-tree 1\n([!-~ ]+\n)*$/);
          const entries = decodeTree(text) as NamedEntry[];
          expect(encodeTree(entries, treeStore().writer).digest).toBe(digest);
        }
        const leaves = await collect(walkTree(root.digest, store.load));
        const model = flat(tree);
        expect(
          new Set(leaves.map(({ path, entry }) => (entry.kind === 'folder' ? `${path}/` : path))),
        ).toEqual(new Set(model.keys()));
        expect(root.files).toBe([...model.keys()].filter((path) => !path.endsWith('/')).length);
        expect(root.bytes).toBe([...model.values()].reduce((sum, { size }) => sum + size, 0));
      }),
    );
  });

  const hex = 'a'.repeat(64);
  it.each([
    ['', 'begin'],
    ['berth-tree 2\n', 'begin'],
    [`berth-tree 1\nf 1 ${hex} a`, 'no line feed'],
    ['berth-tree 1\n\n', 'not a line'],
    [`berth-tree 1\nf 1 ${hex} a\nf 1 ${hex} a\n`, 'order'],
    [`berth-tree 1\nf 1 ${hex} b\nf 1 ${hex} a\n`, 'order'],
    [`berth-tree 1\nf 1 ${hex} a\nf 1 ${hex} %0A\n`, 'order'],
    [`berth-tree 1\nf 01 ${hex} a\n`, 'not a line'],
    [`berth-tree 1\nf -1 ${hex} a\n`, 'not a line'],
    [`berth-tree 1\nf 9999999999999999 ${hex} a\n`, 'too large'],
    [`berth-tree 1\nf 1 ${'A'.repeat(64)} a\n`, 'not a line'],
    [`berth-tree 1\nf 1 ${hex} ..\n`, 'not a file name'],
    [`berth-tree 1\nf 1 ${hex} .\n`, 'not a file name'],
    [`berth-tree 1\nf 1 ${hex} ../a\n`, 'not a file name'],
    [`berth-tree 1\nd 1 1 ${hex} a/b\n`, 'not a file name'],
    [`berth-tree 1\nf 1 ${hex} a%00\n`, 'not an encoded name'],
    [`berth-tree 1\nf 1 ${hex} %61\n`, 'not an encoded name'],
    [`berth-tree 1\nf 1 ${hex} a\r\n`, 'not a line'],
    [`berth-tree 1\nl 2 ${hex} a b\n`, 'size'],
    [`berth-tree 1\nl 1 ${hex} a\n`, 'not a line'],
    [`berth-tree 1\nf 1 ${hex} a\nc 1 1 ${hex}\n`, 'mixed'],
    [`berth-tree 1\nc 1 1 ${hex}\nf 1 ${hex} a\n`, 'mixed'],
    [
      'berth-tree ' +
        `1\n${Array.from({ length: 1025 }, (_, i) => `f 1 ${hex} ${10_000 + i}\n`).join('')}`,
      'more than',
    ],
  ])('are refused with the violated rule: %j', (text, rule) => {
    expect(() => decodeTree(text)).toThrow(TreeFormatError);
    expect(() => decodeTree(text)).toThrow(rule);
  });

  it('cannot be made from entries that are out of order', () => {
    const entry = { kind: 'file', size: 0, checksum: sha256(''), executable: false } as const;
    const entries = ['b', 'a'].map((name) => ({ ...entry, name }));
    expect(() => encodeTree(entries, treeStore().writer)).toThrow('not in order');
  });
});

describe('differences', () => {
  it('equal the differences of two maps', async () => {
    await fc.assert(
      fc.asyncProperty(model, model, async (was, is) => {
        const store = treeStore();
        const [a, b] = [build(was, store).digest, build(is, store).digest];
        const changes = await collect(diffTrees(a, b, store.load));
        expect(changes).toHaveLength(new Set(changes.map(({ path }) => path)).size);
        const byPath = (x: TreeChange, y: TreeChange): number => (x.path < y.path ? -1 : 1);
        expect(changes.toSorted(byPath)).toEqual(naiveDiff(was, is).toSorted(byPath));
        expect((await collect(diffTrees(null, b, store.load))).map(({ change }) => change)).toEqual(
          [...flat(is).keys()].filter((path) => !path.endsWith('/')).map(() => 'added'),
        );
      }),
    );
  });

  it('of large folders equal the differences of two maps, whichever side has chunks', async () => {
    const few = fc.array(fc.nat(4000), { maxLength: 8 });
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1000, max: 3500 }),
        few,
        few,
        few,
        async (count, gone, come, moved) => {
          const store = treeStore();
          const was: Model = new Map(
            Array.from({ length: count }, (_, i) => [`file-${i}`, 'same'] as const),
          );
          const is: Model = new Map(was);
          for (const i of gone) is.delete(`file-${i}`);
          for (const i of moved) if (is.has(`file-${i}`)) is.set(`file-${i}`, 'changed');
          for (const i of come) is.set(`new-${i}`, 'new');
          const changes = await collect(
            diffTrees(build(was, store).digest, build(is, store).digest, store.load),
          );
          const byPath = (x: TreeChange, y: TreeChange): number => (x.path < y.path ? -1 : 1);
          expect(changes.toSorted(byPath)).toEqual(naiveDiff(was, is).toSorted(byPath));
        },
      ),
      { numRuns: 20 },
    );
  });

  it('do not load equal subtrees', async () => {
    const store = treeStore();
    const same: Model = new Map([['deep', new Map([['x', 'y']])]]);
    const was: Model = new Map<string, Node>([['same', same]]).set('a', 'one');
    const is: Model = new Map<string, Node>([['same', same]]).set('a', 'two');
    const roots = [build(was, store).digest, build(is, store).digest] as const;
    expect(await collect(diffTrees(...roots, store.load))).toHaveLength(1);
    expect(new Set(store.loaded)).toEqual(new Set(roots));
  });
});

describe('a large folder', () => {
  const folder = (names: Iterable<string>): Model =>
    new Map([['big', new Map([...names].map((name) => [name, 'x'] as const))]]);
  const names = Array.from(
    { length: 10_000 },
    (_, i) => `reading-${String(i).padStart(6, '0')}.csv`,
  );

  it('is refused if two of its chunks have the same name, which could be a symlink in one chunk and a folder in the other', async () => {
    const hex = '0'.repeat(64);
    const objects = new Map<string, string>();
    const put = (body: string): string => {
      const text = `berth-tree 1\n${body}`;
      objects.set(`sha256:${sha256(text)}`, text);
      return sha256(text);
    };
    const folder = put(`f 1 ${hex} passwd\n`);
    const link = put(`l 4 ${hex} a /etc\n`);
    const other = put(`d 1 1 ${folder} a\n`);
    const root = put(`c 1 4 ${link}\nc 1 1 ${other}\n`);
    const walk = async (): Promise<void> => {
      for await (const _ of walkTree(`sha256:${root}`, async (digest) => objects.get(digest) ?? ''))
        void _;
    };
    await expect(walk()).rejects.toThrow(/not in order/);
  });

  it('is split into chunks of bounded size', () => {
    const store = treeStore();
    build(folder(names), store);
    const sizes = [...store.objects.values()]
      .map((text) => decodeTree(text))
      .filter(([first]) => first?.kind === 'file');
    expect(sizes.length).toBeGreaterThan(10);
    expect(Math.max(...sizes.map((entries) => entries.length))).toBeLessThanOrEqual(MOST_ENTRIES);
    expect(sizes.reduce((sum, entries) => sum + entries.length, 0)).toBe(10_000);
  });

  it('changes at most three objects besides the path to the root when one name is added', () => {
    const store = treeStore();
    build(folder(names), store);
    const before = new Set(store.objects.keys());
    fc.assert(
      fc.property(name, (added) => {
        fc.pre(!names.includes(added));
        const after = treeStore();
        build(folder([...names, added]), after);
        const fresh = [...after.objects].filter(([digest]) => !before.has(digest));
        // Two new objects are the root and the folder's own object; the others are chunks.
        expect(fresh.length - 2).toBeLessThanOrEqual(3);
      }),
      { numRuns: 25 },
    );
  });
});
