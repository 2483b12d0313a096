/**
 * Files are written whole: complete or not at all, with the given permissions, and nothing stays
 * behind.
 */
import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  isTemporary,
  removeTemporary,
  replaceFile,
  replaceFileSync,
  writeFileWhole,
  writeFileWholeSync,
} from '../src/write-file.ts';

let folder: string;
let path: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'berth-write-'));
  path = join(folder, 'state.json');
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const modeOf = async (file: string): Promise<number> => (await stat(file)).mode & 0o7777;

describe.each([
  ['writeFileWhole', writeFileWhole],
  [
    'writeFileWholeSync',
    async (...given: Parameters<typeof writeFileWholeSync>) => writeFileWholeSync(...given),
  ],
] as const)('%s', (_name, write) => {
  test('replaces the content and leaves nothing else', async () => {
    await write(path, 'old, and longer');
    await write(path, Buffer.from([0, 255, 10]));
    expect([...(await readFile(path))]).toEqual([0, 255, 10]);
    expect(await readdir(folder)).toEqual(['state.json']);
  });

  test('gives the file exactly the mode, also where it had another one', async () => {
    await write(path, 'x');
    expect(await modeOf(path)).toBe(0o600);
    await chmod(path, 0o666);
    await write(path, 'x');
    expect(await modeOf(path)).toBe(0o600);
    await write(path, 'x', { mode: 0o664 });
    expect(await modeOf(path)).toBe(0o664);
  });

  test.skipIf(process.getuid?.() !== 0)(
    'gives the file its owner and keeps special bits of the mode (needs root)',
    async () => {
      await write(path, 'x', { owner: { uid: 12_345, gid: 54_321 }, mode: 0o4755 });
      expect(await stat(path)).toMatchObject({ uid: 12_345, gid: 54_321 });
      expect(await modeOf(path)).toBe(0o4755);
    },
  );

  test('an error keeps the old content and leaves no temporary file', async () => {
    await mkdir(join(path, 'full'), { recursive: true });
    await expect(write(path, 'new')).rejects.toThrow(/EISDIR|ENOTEMPTY/);
    expect(await readdir(folder)).toEqual(['state.json']);
    expect(await readdir(path)).toEqual(['full']);
  });

  test('exclusive: the first one wins, and the others fail with EEXIST', async () => {
    const outcomes = await Promise.allSettled(
      ['a', 'b', 'c', 'd'].map((text) => write(path, text, { exclusive: true })),
    );
    const won = outcomes.findIndex((o) => o.status === 'fulfilled');
    const codes = outcomes.map((o) =>
      o.status === 'fulfilled' ? 'written' : String((o.reason as NodeJS.ErrnoException).code),
    );
    expect(codes.sort()).toEqual(['EEXIST', 'EEXIST', 'EEXIST', 'written']);
    expect(await readFile(path, 'utf8')).toBe('abcd'[won]);
    expect(await readdir(folder)).toEqual(['state.json']);
  });

  test('a missing folder is an error that names it', async () => {
    await expect(write(join(folder, 'missing', 'file'), 'x')).rejects.toThrow(/ENOENT.*missing/);
  });
});

test('writers at the same time never mix their contents', async () => {
  const texts = Array.from({ length: 20 }, (_, i) => String.fromCharCode(97 + i).repeat(50_000));
  const seen = new Set<string>();
  let writing = true;
  await writeFileWhole(path, texts[0] ?? '');
  const reader = (async () => {
    while (writing) seen.add(await readFile(path, 'utf8'));
  })();
  await Promise.all(texts.map((text) => writeFileWhole(path, text)));
  writing = false;
  await reader;
  for (const text of seen) expect(texts).toContain(text);
});

test('folderMode creates the folder, also while another process removes it', async () => {
  const deep = join(folder, 'a', 'b');
  for (let i = 0; i < 20; i += 1)
    await Promise.all([
      writeFileWhole(join(deep, `file-${i}`), 'x', { folderMode: 0o700 }),
      // A removal fails where the folder fills meanwhile.
      rm(join(folder, 'a'), { recursive: true, force: true }).catch(() => undefined),
    ]);
  await writeFileWhole(join(deep, 'last'), 'x', { folderMode: 0o700 });
  expect(await modeOf(deep)).toBe(0o700);
});

test('a finished file gets its name', async () => {
  for (const replace of [
    replaceFile,
    async (from: string, to: string) => replaceFileSync(from, to),
  ]) {
    await writeFile(path, 'old');
    await writeFile(join(folder, 'draft'), 'new');
    await replace(join(folder, 'draft'), path);
    expect(await readFile(path, 'utf8')).toBe('new');
    expect(await readdir(folder)).toEqual(['state.json']);
  }
});

test('files of killed processes are found by their name and removed; a young one stays where others write', async () => {
  const names = ['.state.json.0123456789ab.new', '.other.ffffffffffff.new'];
  const others = [
    'state.json',
    'state.json.new',
    '.env',
    '.a.0123456789ab.new.bak',
    'b.0123456789ab.new',
  ];
  for (const name of [...names, ...others]) await writeFile(join(folder, name), 'x');
  expect([...names, ...others].filter(isTemporary)).toEqual(names);
  const old = new Date(Date.now() - 120_000);
  await utimes(join(folder, names[0] ?? ''), old, old);
  await removeTemporary(folder, 60_000);
  expect((await readdir(folder)).sort()).toEqual([names[1] ?? '', ...others].sort());
  await removeTemporary(folder);
  expect((await readdir(folder)).sort()).toEqual([...others].sort());
});
