/**
 * Scans of real folders by the real `find`, in real child processes: each outcome and its
 * conditions.
 */
import { createHash } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execOk } from '@berth/kit/exec';
import { processesOf } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import { decodeName, diffTrees } from '@berth/wire/tree';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { ShareIdentity } from '../../src/domain/platform/records.ts';
import { ScanError } from '../../src/monitor/scanner.ts';
import {
  changed,
  clockBehind,
  coarseTimes,
  datedAhead,
  leavesOf,
  type Monitored,
  monitored,
  noTimes,
  SYSTEM_PATH,
  scanOnce,
  scratchFolder,
  standInForFind,
} from './support.ts';

const sha256 = (data: string | Buffer): string => createHash('sha256').update(data).digest('hex');
const bytesHashed = ({ seen }: { seen: { step: string; bytes: number }[] }): number =>
  Math.max(0, ...seen.filter(({ step }) => step === 'hashing').map(({ bytes }) => bytes));

function isZombie(pid: string): boolean {
  return /^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
}

const run = (...argv: string[]) =>
  execOk(argv, { env: { PATH: `${SYSTEM_PATH}:/usr/sbin:/sbin` } });

/** Needs root and the right to mount. A plain container has neither. */
const canMount = await works(async (dir) => {
  await run('mount', '-t', 'tmpfs', 'probe', dir);
  await run('umount', dir);
});
/** Root without the capability to ignore file modes. */
const WITHOUT_RIGHTS = ['--bounding-set=-dac_override,-dac_read_search', '--'];
const canDropRights = await works(async (dir) => {
  writeFileSync(join(dir, 'f'), '', { mode: 0 });
  await run('setpriv', ...WITHOUT_RIGHTS, 'test', '!', '-r', join(dir, 'f'));
});
const canMakeDevices = await works(
  async (dir) => void (await run('mknod', join(dir, 'null'), 'c', '1', '3')),
);

async function works(attempt: (dir: string) => Promise<void>): Promise<boolean> {
  const dir = mkdtempSync(join(tmpdir(), 'berth-can-'));
  try {
    await attempt(dir);
    return true;
  } catch {
    return false;
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

describe('the first scan', () => {
  test('finds every file with its size and checksum, folders and symlinks', async () => {
    const ds = monitored();
    mkdirSync(join(ds.folder, 'a/b'), { recursive: true });
    mkdirSync(join(ds.folder, 'empty'));
    ds.file('a/b/data.csv', 'x,y\n');
    ds.file('a/none', '');
    ds.file('run.sh', '#!/bin/sh\n');
    chmodSync(join(ds.folder, 'run.sh'), 0o755);
    symlinkSync('b/data.csv', join(ds.folder, 'a/newest'));
    const result = changed(await ds.scan());
    expect(result).toMatchObject({
      files: 4,
      bytes: 4 + 10 + 10,
      skipped: { count: 0, first: [] },
    });
    expect(Object.fromEntries(await leavesOf(result))).toEqual({
      'a/b/data.csv': {
        kind: 'file',
        name: 'data.csv',
        size: 4,
        checksum: sha256('x,y\n'),
        executable: false,
      },
      'a/newest': {
        kind: 'link',
        name: 'newest',
        size: 10,
        checksum: sha256('b/data.csv'),
        target: 'b/data.csv',
      },
      'a/none': { kind: 'file', name: 'none', size: 0, checksum: sha256(''), executable: false },
      empty: {
        kind: 'folder',
        name: 'empty',
        files: 0,
        bytes: 0,
        digest: `sha256:${sha256('berth-tree 1\n')}`,
      },
      'run.sh': {
        kind: 'file',
        name: 'run.sh',
        size: 10,
        checksum: sha256('#!/bin/sh\n'),
        executable: true,
      },
    });
  });

  test('of an empty folder is a version without files', async () => {
    expect(await monitored().scan()).toMatchObject({ kind: 'changed', files: 0, bytes: 0 });
  });

  test('takes names as bytes', async () => {
    const ds = monitored();
    const names = [
      Buffer.from('new\nline'),
      Buffer.from('-rf'),
      Buffer.from(' lead and trail '),
      Buffer.from([0x66, 0xff, 0xfe, 0x01]),
      Buffer.from('100% é “quoted” \\0 \\n'),
      Buffer.from('n'.repeat(255)),
      Buffer.from('...'),
    ];
    for (const name of names) ds.file(name, name);
    mkdirSync(Buffer.concat([Buffer.from(`${ds.folder}/`), Buffer.from([0xc3, 0x28])]));
    ds.file(Buffer.from([0xc3, 0x28, 0x2f, 0x0a]), 'in it');
    const leaves = await leavesOf(await ds.scan());
    const found = [...leaves.keys()].map((path) => decodeName(path).toString('hex'));
    expect(found.toSorted()).toEqual(
      [...names, Buffer.from([0xc3, 0x28, 0x2f, 0x0a])]
        .map((name) => name.toString('hex'))
        .toSorted(),
    );
    for (const [path, entry] of leaves)
      expect(entry).toMatchObject({
        checksum: sha256(path.includes('/') ? 'in it' : decodeName(path)),
      });
  });

  test('leaves out what is no file, each with the reason', async () => {
    const ds = monitored();
    ds.file('kept');
    ds.file('.nfs00000000001a2b3c00000007');
    ds.file('.nfsnotes', 'an ordinary name');
    mkdirSync(join(ds.folder, '.snapshot/hourly.0'), { recursive: true });
    ds.file('.snapshot/hourly.0/kept');
    await run('mkfifo', join(ds.folder, 'pipe'));
    const server = createServer();
    await new Promise<void>((resolve) => void server.listen(join(ds.folder, 'socket'), resolve));
    onTestFinished(() => void server.close());
    symlinkSync('/etc/passwd', join(ds.folder, 'absolute'));
    symlinkSync('../../outside', join(ds.folder, 'outside'));
    symlinkSync('../ds/kept', join(ds.folder, 'by-another-way'));
    symlinkSync('nothing/here', join(ds.folder, 'dangling'));
    symlinkSync('circle', join(ds.folder, 'circle'));
    const result = await ds.scan();
    expect([...(await leavesOf(result)).keys()]).toEqual([
      '.nfsnotes',
      'circle',
      'dangling',
      'kept',
    ]);
    const { skipped } = changed(result);
    expect(skipped.count).toBe(7);
    expect(Object.fromEntries(skipped.first.map(({ path, reason }) => [path, reason]))).toEqual({
      '.nfs00000000001a2b3c00000007': expect.stringContaining('NFS'),
      '.snapshot': expect.stringContaining('snapshots'),
      pipe: 'a FIFO',
      socket: 'a socket',
      absolute: expect.stringContaining('absolute path (/etc/passwd)'),
      outside: expect.stringContaining('leaves the dataset (../../outside)'),
      'by-another-way': expect.stringContaining('leaves the dataset'),
    });
  });

  test('follows a symlink through others before it says that it stays inside', async () => {
    const ds = monitored();
    mkdirSync(join(ds.base, 'secret'));
    mkdirSync(join(ds.folder, 'in'));
    symlinkSync('../../secret', join(ds.folder, 'in/out'));
    symlinkSync('in/out', join(ds.folder, 'innocent'));
    const result = await ds.scan();
    expect([...(await leavesOf(result)).keys()]).toEqual(['in']);
    expect(
      changed(result)
        .skipped.first.map(({ path }) => path)
        .toSorted(),
    ).toEqual(['in/out', 'innocent']);
  });

  test.skipIf(!canMakeDevices)('leaves out devices', async () => {
    const ds = monitored();
    await run('mknod', join(ds.folder, 'null'), 'c', '1', '3');
    expect(changed(await ds.scan()).skipped).toEqual({
      count: 1,
      first: [{ path: 'null', reason: 'a character device' }],
    });
  });

  test('names at most 100 of what it left out, and counts all', async () => {
    const ds = monitored();
    for (let i = 0; i < 120; i++) symlinkSync('/', join(ds.folder, `link-${i}`));
    const { skipped } = changed(await ds.scan());
    expect([skipped.count, skipped.first.length]).toEqual([120, 100]);
  });
});

describe('the next scan', () => {
  test('of the same files reads none of them', async () => {
    const ds = monitored({ searchPath: clockBehind() });
    ds.file('big', Buffer.alloc(4_000_000));
    const first = changed(await ds.scan());
    const before = ds.seen.length;
    expect(await ds.scan()).toEqual({
      kind: 'unchanged',
      files: 1,
      bytes: 4_000_000,
      skipped: first.skipped,
      share: first.share,
    });
    expect(ds.seen.slice(before).filter(({ step }) => step !== 'listing')).toEqual([]);
  });

  test('of 5,000 files with five changes reads the five', async () => {
    const ds = monitored({ searchPath: clockBehind() });
    for (let d = 0; d < 50; d++) {
      mkdirSync(join(ds.folder, `d${d}`));
      for (let i = 0; i < 100; i++) ds.file(`d${d}/f${i}`, `${d}-${i}`);
    }
    const first = changed(await ds.scan());
    ds.file('d7/f7', 'changed');
    ds.file('d8/added', 'new');
    rmSync(join(ds.folder, 'd9/f9'));
    renameSync(join(ds.folder, 'd10/f1'), join(ds.folder, 'd10/moved'));
    chmodSync(join(ds.folder, 'd11/f1'), 0o755);
    ds.seen.length = 0;
    const second = changed(await ds.scan());
    expect(bytesHashed(ds)).toBeLessThan(100);
    expect(second.files).toBe(5_000);
    const load = (digest: string): Promise<string> =>
      second.objects(digest).catch(() => first.objects(digest));
    const rows: string[] = [];
    for await (const { path, change } of diffTrees(
      first.manifestDigest,
      second.manifestDigest,
      load,
    ))
      rows.push(`${change} ${path}`);
    expect(rows).toEqual([
      'removed d10/f1',
      'added d10/moved',
      'modified d11/f1',
      'modified d7/f7',
      'added d8/added',
      'removed d9/f9',
    ]);
  });

  test('sees a file that was rewritten with the same size and its old time', async () => {
    const ds = monitored({ searchPath: clockBehind() });
    ds.file('f', 'aaaa');
    ds.file('g', 'aaaa');
    await ds.scan();
    const { atime, mtime } = statSync(join(ds.folder, 'f'));
    ds.file('f', 'bbbb');
    utimesSync(join(ds.folder, 'f'), atime, mtime);
    expect((await leavesOf(await ds.scan())).get('f')).toMatchObject({ checksum: sha256('bbbb') });
  });

  test('sees a file that another one with the same size and times took the place of', async () => {
    const ds = monitored({ searchPath: noTimes() });
    ds.file('f', 'aaaa');
    await ds.scan();
    writeFileSync(join(ds.base, 'other'), 'bbbb');
    renameSync(join(ds.base, 'other'), join(ds.folder, 'f'));
    expect((await leavesOf(await ds.scan())).get('f')).toMatchObject({ checksum: sha256('bbbb') });
  });

  test('reads a file again that was written within the grain of the times when it was hashed', async () => {
    const ds = monitored({ searchPath: coarseTimes() });
    ds.file('f', 'aaaa');
    await ds.scan();
    ds.file('f', 'bbbb');
    expect((await leavesOf(await ds.scan())).get('f')).toMatchObject({ checksum: sha256('bbbb') });
  });

  test('does not read a file again and again that is dated ahead, when it was not changed lately', async () => {
    const ds = monitored({ searchPath: datedAhead() });
    ds.file('f', 'aaaa');
    await ds.scan();
    ds.file('f', 'bbbb');
    expect(await ds.scan()).toMatchObject({ kind: 'unchanged' });
  });

  test('with `full` reads everything, also what shows no sign of a change', async () => {
    const ds = monitored({ searchPath: noTimes() });
    ds.file('f', 'aaaa');
    await ds.scan();
    ds.file('f', 'bbbb');
    expect(await ds.scan()).toMatchObject({ kind: 'unchanged' });
    expect((await leavesOf(await ds.scan({ full: true }))).get('f')).toMatchObject({
      checksum: sha256('bbbb'),
    });
    expect(await ds.scan({ full: true })).toMatchObject({ kind: 'unchanged' });
  });

  test('says a change again that nobody recorded', async () => {
    const ds = monitored({ searchPath: clockBehind() });
    ds.file('f');
    const first = changed(await ds.look());
    await first.dispose();
    const again = changed(await ds.look());
    expect(again.manifestDigest).toBe(first.manifestDigest);
    expect((await leavesOf(again)).get('f')).toMatchObject({ checksum: sha256('content') });
    await again.dispose();
  });

  test('is unchanged when only times, owners or the order of names differ', async () => {
    const ds = monitored({ searchPath: clockBehind() });
    ds.file('a');
    ds.file('b');
    await ds.scan();
    utimesSync(join(ds.folder, 'a'), 1, 1);
    chmodSync(join(ds.folder, 'b'), 0o640);
    ds.file('c');
    rmSync(join(ds.folder, 'c'));
    expect(await ds.scan()).toMatchObject({ kind: 'unchanged', files: 2 });
  });

  test.each(['lost', 'cut off', 'damaged', 'of another version'])(
    'does without what was kept when that is %s',
    async (how) => {
      const ds = monitored({ searchPath: clockBehind() });
      ds.file('f', 'content');
      await ds.scan();
      const kept = join(ds.stateDir, 'datasets', 'ds-1', 'last-scan');
      const content = readFileSync(kept);
      if (how === 'lost') rmSync(kept);
      if (how === 'cut off') writeFileSync(kept, content.subarray(0, -10));
      // Changes the middle of the checksums: the name and its NUL are right before them.
      if (how === 'damaged')
        content[content.indexOf(' f\0') + 10] = (content[content.indexOf(' f\0') + 10] ?? 0) ^ 1;
      if (how === 'of another version') content.write('2', content.length - 2);
      if (how === 'damaged' || how === 'of another version') writeFileSync(kept, content);
      ds.file('g', 'more');
      const leaves = await leavesOf(await ds.scan());
      expect(leaves.get('f')).toMatchObject({ checksum: sha256('content') });
      expect(leaves.get('g')).toMatchObject({ checksum: sha256('more') });
    },
  );

  test('knows hard links and files of the same content as what they are', async () => {
    const ds = monitored();
    ds.file('a', 'same');
    linkSync(join(ds.folder, 'a'), join(ds.folder, 'b'));
    expect(changed(await ds.scan())).toMatchObject({ files: 2, bytes: 8 });
  });
});

describe('a loss', () => {
  test('of everything is suspicious until somebody accepts it', async () => {
    const ds = monitored();
    for (const name of ['a', 'b', 'c']) ds.file(name);
    await ds.scan();
    for (const name of ['a', 'b', 'c']) rmSync(join(ds.folder, name));
    const problem = expect.stringContaining('is empty; the newest version has 3 files');
    expect(await ds.scan()).toEqual({
      kind: 'suspicious',
      problem,
      files: 0,
      bytes: 0,
      share: ds.request.share,
    });
    expect(await ds.scan({ full: true })).toMatchObject({ kind: 'suspicious' });
    expect(await ds.scan({ acceptLoss: true })).toMatchObject({ kind: 'changed', files: 0 });
    expect(await ds.scan()).toMatchObject({ kind: 'unchanged', files: 0 });
  });

  test('of more than half is suspicious, of half is not', async () => {
    const ds = monitored();
    for (let i = 0; i < 10; i++) ds.file(`f${i}`);
    await ds.scan();
    for (let i = 0; i < 5; i++) rmSync(join(ds.folder, `f${i}`));
    expect(await ds.look()).toMatchObject({ kind: 'changed', files: 5 });
    rmSync(join(ds.folder, 'f5'));
    expect(await ds.scan()).toMatchObject({
      kind: 'suspicious',
      files: 4,
      bytes: 28,
      problem: expect.stringContaining('4 are left of 10'),
    });
    ds.file('f5');
    expect(await ds.scan()).toMatchObject({ kind: 'changed', files: 5 });
  });
});

describe('a loss of content', () => {
  test('files that were cut to nothing are suspicious, although every name is still there', async () => {
    const ds = monitored();
    for (let i = 0; i < 10; i++) ds.file(`f${i}`, 'content');
    await ds.scan();
    for (let i = 0; i < 10; i++) truncateSync(join(ds.folder, `f${i}`), 0);
    expect(await ds.scan()).toMatchObject({
      kind: 'suspicious',
      files: 10,
      bytes: 0,
      problem: expect.stringContaining('0 bytes are left of 70 bytes'),
    });
    expect(await ds.scan({ acceptLoss: true })).toMatchObject({
      kind: 'changed',
      files: 10,
      bytes: 0,
    });
  });

  test('fewer and empty files in place of the old ones are suspicious', async () => {
    const ds = monitored();
    for (let i = 0; i < 100; i++) ds.file(`f${i}`, 'content');
    await ds.scan();
    for (let i = 0; i < 100; i++) rmSync(join(ds.folder, `f${i}`));
    for (let i = 0; i < 60; i++) ds.file(`new-${i}`, '');
    expect(await ds.scan()).toMatchObject({ kind: 'suspicious', files: 60, bytes: 0 });
  });

  test('of half of the bytes is none, and what never had content cannot lose it', async () => {
    const ds = monitored();
    ds.file('a', '12345678');
    await ds.scan();
    ds.file('a', '1234');
    expect(await ds.scan()).toMatchObject({ kind: 'changed', bytes: 4 });
    const empty = monitored();
    for (let i = 0; i < 4; i++) empty.file(`f${i}`, '');
    await empty.scan();
    empty.file('f4', '');
    expect(await empty.scan()).toMatchObject({ kind: 'changed', files: 5, bytes: 0 });
  });
});

test('the folder of what scans keep is for its owner alone', async () => {
  const ds = monitored();
  ds.file('a', 'content');
  await ds.scan();
  const modes = [
    ds.stateDir,
    join(ds.stateDir, 'datasets'),
    join(ds.stateDir, 'datasets', 'ds-1'),
    join(ds.stateDir, 'scans'),
  ].map((folder) => (statSync(folder).mode & 0o777).toString(8));
  expect(modes).toEqual(['700', '700', '700', '700']);
});

describe('a scan that was ended', () => {
  test('has kept what it had hashed for the next one', async () => {
    const ds = monitored({ searchPath: clockBehind(), keepMs: 100, workers: 1 });
    const [count, size] = [60, 48_000_000];
    for (let i = 0; i < count; i++) {
      ds.file(`f${i}`, '');
      truncateSync(join(ds.folder, `f${i}`), size);
    }
    const abort = new AbortController();
    const scan = ds.look({}, abort.signal);
    const refused = expect(scan).rejects.toThrow('enough');
    const busy = { deadlineMs: 60_000 };
    const hashed = await waitFor(
      'some files are hashed',
      () => ds.seen.find(({ step, files }) => step === 'hashing' && files >= 5),
      busy,
    );
    const kept = join(ds.stateDir, 'datasets', 'ds-1', 'last-scan');
    const before = Date.now();
    await waitFor('that is kept', () => existsSync(kept) && statSync(kept).mtimeMs > before, busy);
    abort.abort(new Error('enough'));
    await refused;
    expect(hashed.files).toBeLessThan(count);
    ds.seen.length = 0;
    expect(await ds.scan()).toMatchObject({ kind: 'changed', files: count, bytes: count * size });
    expect(bytesHashed(ds)).toBeLessThanOrEqual((count - 5) * size);
  });
});

describe('changing', () => {
  test('is a folder whose file is rewritten throughout: named, and no version; then it is scanned as ever', async () => {
    const ds = monitored();
    ds.file('still', 'still');
    ds.file('busy', '0');
    let count = 0;
    const writing = setInterval(() => ds.file('busy', String(count++)), 1);
    const result = await ds.scan().finally(() => clearInterval(writing));
    expect(result).toEqual({ kind: 'changing', problem: expect.stringContaining('(last busy)') });
    const leaves = await leavesOf(await ds.scan());
    expect(leaves.get('busy')).toMatchObject({
      checksum: sha256(readFileSync(join(ds.folder, 'busy'))),
    });
  });

  test('is not one in which a lock file came and went', async () => {
    // The first listing shows a lock file that is gone when it is hashed. After each listing
    // another one comes and goes.
    const searchPath = standInForFind(`
const { existsSync, rmSync } = require('node:fs');
const lock = process.argv[3] + '/lock';
const first = !existsSync(dir + '/listed');
if (first) writeFileSync(lock, 'a');
writeSync(1, run().stdout);
writeFileSync(dir + '/listed', '');
writeFileSync(lock, 'b');
rmSync(lock);`);
    const ds = monitored({ searchPath });
    ds.file('f');
    const result = await ds.scan();
    expect([...(await leavesOf(result)).keys()]).toEqual(['f']);
  });
});

/** The dataset's share after somebody said that whatever is mounted now is right. */
const accepted = (ds: Monitored): ShareIdentity => ({
  marker: null,
  mount: null,
  ...ds.request.share,
  accepted: true,
});

describe('unreachable', () => {
  test('is a base, a folder that is missing or no folder, also when the loss is accepted', async () => {
    const ds = monitored();
    ds.file('f');
    await ds.scan();
    for (const acceptLoss of [false, true]) {
      renameSync(ds.folder, `${ds.folder}-away`);
      expect(await ds.scan({ acceptLoss })).toEqual({
        kind: 'unreachable',
        problem: `The folder ${ds.folder} is missing.`,
      });
      writeFileSync(ds.folder, '');
      expect(await ds.scan({ acceptLoss })).toEqual({
        kind: 'unreachable',
        problem: `The folder ${ds.folder} is not a folder.`,
      });
      rmSync(ds.folder);
      renameSync(ds.base, `${ds.base}-away`);
      expect(await ds.scan({ acceptLoss })).toEqual({
        kind: 'unreachable',
        problem: `The base path ${ds.base} is missing.`,
      });
      renameSync(`${ds.base}-away`, ds.base);
      renameSync(`${ds.folder}-away`, ds.folder);
    }
    expect(await ds.scan()).toMatchObject({ kind: 'unchanged' });
  });

  test('is a folder that by now leads out of the base', async () => {
    const ds = monitored();
    const elsewhere = scratchFolder();
    rmSync(ds.folder, { recursive: true });
    symlinkSync(elsewhere, ds.folder);
    expect(await ds.scan()).toEqual({
      kind: 'unreachable',
      problem: `The folder ${ds.folder} leads out of the base path, to ${elsewhere}.`,
    });
  });

  test('is a base without its marker, or with that of another share, until somebody says that it is right', async () => {
    const ds = monitored();
    const marker = join(ds.base, '.berth-share');
    ds.file('f');
    await ds.scan();
    const text = readFileSync(marker, 'latin1');
    expect(text).toBe(`berth-share ${ds.request.share?.marker}\n`);
    rmSync(marker);
    expect(await ds.scan()).toMatchObject({
      kind: 'unreachable',
      problem: expect.stringContaining('.berth-share is missing'),
    });
    expect(existsSync(marker)).toBe(false);
    writeFileSync(marker, 'berth-share 00000000-0000-0000-0000-000000000000\n');
    expect(await ds.scan()).toMatchObject({
      kind: 'unreachable',
      problem: expect.stringContaining('the id of another share'),
    });
    expect(await ds.scan({ acceptLoss: true })).toMatchObject({ kind: 'unreachable' });
    expect(await ds.scan({ share: accepted(ds) })).toMatchObject({ kind: 'unchanged' });
    expect(ds.request.share).toMatchObject({ marker: '00000000-0000-0000-0000-000000000000' });
    expect(ds.request.share).not.toHaveProperty('accepted');
    expect(await ds.scan()).toMatchObject({ kind: 'unchanged' });
  });

  test('is not a share that somebody accepted, whose loss nobody accepts in the same scan', async () => {
    const ds = monitored();
    for (const name of ['a', 'b', 'c']) ds.file(name);
    await ds.scan();
    for (const name of ['.berth-share', 'ds/a', 'ds/b', 'ds/c']) rmSync(join(ds.base, name));
    // Accepted although it is the same share: only a share that differs is accepted, and its loss
    // is another question.
    expect(await ds.scan({ acceptLoss: true, share: accepted(ds) })).toMatchObject({
      kind: 'suspicious',
      files: 0,
    });
    expect(await ds.scan({ acceptLoss: true })).toMatchObject({ kind: 'changed', files: 0 });
  });

  test.each([false, true])(
    'is a share that is swapped during the scan, loss accepted: %s',
    async (acceptLoss) => {
      const searchPath = standInForFind(`
const { existsSync, renameSync, mkdirSync } = require('node:fs');
const base = require('node:path').dirname(process.argv[3]);
if (existsSync(base + '/swap')) {
  renameSync(base, base + '-away');
  mkdirSync(base + '/ds', { recursive: true });
}
writeSync(1, run().stdout);`);
      const ds = monitored({ searchPath });
      ds.file('f');
      await ds.scan();
      writeFileSync(join(ds.base, 'swap'), '');
      const result = await ds.scan({ acceptLoss });
      expect(['unreachable', 'suspicious']).toContain(result.kind);
      if (acceptLoss) expect(result.kind).toBe('unreachable');
    },
  );

  test('is one whose marker is gone, for all its datasets, until somebody says of one of them that it is right', async () => {
    const ds = monitored();
    const marker = join(ds.base, '.berth-share');
    ds.file('f');
    mkdirSync(join(ds.base, 'other'));
    const other = { datasetId: 'ds-2', nfsPath: 'other', previous: null };
    await ds.scan();
    const before = changed(await ds.look(other));
    const again = {
      ...other,
      share: before.share,
      previous: { manifestDigest: before.manifestDigest, files: 0, bytes: 0 },
    };
    const text = readFileSync(marker, 'latin1');
    rmSync(marker);
    expect(await ds.look(again)).toMatchObject({ kind: 'unreachable' });
    expect(await ds.scan({ share: accepted(ds) })).toMatchObject({ kind: 'unchanged' });
    expect(readFileSync(marker, 'latin1')).toBe(text);
    expect(await ds.look(again)).toMatchObject({ kind: 'unchanged' });
    // A different mount may be another share, so it gets another marker.
    rmSync(marker);
    const mount = { type: 'nfs4', source: 'nas:/x', root: '/' };
    expect(
      await ds.look({ share: { marker: ds.request.share?.marker ?? null, mount, accepted: true } }),
    ).toMatchObject({
      share: { mount: null },
    });
    expect(readFileSync(marker, 'latin1')).not.toBe(text);
  });

  test.skipIf(!canMount)(
    'is a share that is not mounted any more, and another one mounted there',
    async () => {
      const ds = monitored();
      const mount = async (): Promise<void> => {
        await run('mount', '-t', 'tmpfs', 'a-share', ds.base);
        mkdirSync(ds.folder);
      };
      const unmount = () => run('umount', ds.base);
      await mount();
      let mounted = true;
      onTestFinished(async () => {
        if (mounted) await unmount();
      });
      ds.file('f');
      await ds.scan();
      expect(ds.request.share?.mount).toMatchObject({ type: 'tmpfs', source: 'a-share' });
      expect(await ds.scan()).toMatchObject({ kind: 'unchanged' });
      await unmount();
      mounted = false;
      // Without the mount, the base path is the empty folder under it. An accepted loss does not
      // change that.
      for (const acceptLoss of [false, true])
        expect(await ds.scan({ acceptLoss })).toMatchObject({
          kind: 'unreachable',
          problem: expect.stringContaining('The share is not mounted'),
        });
      expect(readdirSync(ds.base)).toEqual(['ds']);
      await mount();
      mounted = true;
      expect(await ds.scan()).toMatchObject({
        kind: 'unreachable',
        problem: expect.stringContaining('.berth-share is missing'),
      });
    },
  );

  test.skipIf(!canMount)(
    'is not a share that cannot be written: it has no marker, and its mount tells',
    async () => {
      const ds = monitored();
      await run('mount', '-t', 'tmpfs', 'a-share', ds.base);
      onTestFinished(async () => void (await run('umount', ds.base)));
      mkdirSync(ds.folder);
      ds.file('f');
      await run('mount', '-o', 'remount,ro', ds.base);
      expect(await ds.scan()).toMatchObject({
        kind: 'changed',
        share: { marker: null, mount: { type: 'tmpfs', source: 'a-share' } },
      });
      expect(
        await ds.scan({
          share: { marker: null, mount: { type: 'nfs4', source: 'nas:/x', root: '/' } },
        }),
      ).toMatchObject({
        kind: 'unreachable',
        problem: expect.stringContaining('it was nfs4 from nas:/x, now it is tmpfs from a-share'),
      });
    },
  );

  test('is one that does not list whole: no version without the part that could not be read', async () => {
    const searchPath = standInForFind(`
process.stderr.write("find: '/mnt/nas/ds/part': Stale file handle\\n");
writeSync(1, run().stdout);
process.exitCode = 1;`);
    const ds = monitored({ searchPath });
    ds.file('f');
    const problem = "Not all of the folder can be read: '/mnt/nas/ds/part': Stale file handle.";
    expect(await ds.scan()).toEqual({ kind: 'unreachable', problem });
  });

  test.skipIf(!canDropRights)(
    'is a file or a folder that may not be read, by its name',
    async () => {
      const ds = monitored();
      ds.file('open');
      mkdirSync(join(ds.folder, 'part'));
      const scan = async (): Promise<unknown> =>
        JSON.parse((await run('setpriv', ...WITHOUT_RIGHTS, ...scanOnce(ds))).stdout);
      expect(await scan()).toMatchObject({ kind: 'changed', files: 1 });
      chmodSync(join(ds.folder, 'part'), 0);
      const problem = `Not all of the folder can be read: '${ds.folder}/part': Permission denied.`;
      expect(await scan()).toEqual({ kind: 'unreachable', problem });
      chmodSync(join(ds.folder, 'part'), 0o755);
      ds.file('part/secret');
      chmodSync(join(ds.folder, 'part/secret'), 0);
      expect(await scan()).toEqual({
        kind: 'unreachable',
        problem: `The file ${ds.folder}/part/secret may not be read (permission denied).`,
      });
    },
  );

  test('is one that hangs: ended within the deadline, with all that was started, while we live on', async () => {
    const searchPath = standInForFind(`
writeFileSync(dir + '/pid', String(process.pid));
setInterval(() => undefined, 1000);`);
    const ds = monitored({ searchPath, stallMs: 5_000 });
    ds.file('f');
    let beats = 0;
    const beating = setInterval(() => beats++, 20);
    const result = await ds.scan().finally(() => clearInterval(beating));
    expect(result).toEqual({
      kind: 'unreachable',
      problem: expect.stringContaining('made no progress for 5 s'),
    });
    expect(beats).toBeGreaterThan(20);
    const pid = readFileSync(join(searchPath.split(':')[0] ?? '', 'pid'), 'utf8');
    expect(existsSync(`/proc/${pid}/exe`) && !isZombie(pid)).toBe(false);
    expect(readdirSync(join(ds.stateDir, 'scans'))).toEqual([]);
  });

  test('is one that takes longer than a scan may', async () => {
    // The scan always makes progress, so it does not stall.
    const searchPath = standInForFind(
      `setInterval(() => writeSync(1, 'dfolder' + Math.random() + '\\0'), 50);`,
    );
    const ds = monitored({ searchPath, deadlineMs: 6_000, stallMs: 5_000 });
    expect(await ds.scan()).toEqual({
      kind: 'unreachable',
      problem: expect.stringContaining('took longer than 6 s'),
    });
  });
});

describe('the scanner', () => {
  test('says that it failed itself, and nothing of the dataset, when there is no find or no room', async () => {
    const without = monitored({ searchPath: '/nonexistent' });
    await expect(without.scan()).rejects.toThrow(ScanError);
    const full = monitored({
      searchPath: standInForFind(
        `process.stderr.write('find: write error: No space left on device\\n'); process.exit(1);`,
      ),
    });
    await expect(full.scan()).rejects.toThrow('No space left on device');
  });

  test('ends a scan when it is asked to, and when it is closed', async () => {
    const searchPath = standInForFind('setInterval(() => undefined, 1000);');
    const ds = monitored({ searchPath });
    const abort = new AbortController();
    const scan = ds.scanner.scan(ds.request, { signal: abort.signal });
    abort.abort(new Error('enough'));
    await expect(scan).rejects.toThrow('enough');
    const other = ds.scanner.scan(ds.request, { signal: new AbortController().signal });
    const refused = expect(other).rejects.toThrow('closed');
    await ds.scanner.close();
    await refused;
    expect(readdirSync(join(ds.stateDir, 'scans'))).toEqual([]);
  });

  test('keeps the objects of a change until they are disposed of, and removes what a killed run left', async () => {
    const ds = monitored();
    ds.file('f');
    const result = changed(await ds.look());
    expect(await result.objects(result.manifestDigest)).toMatch(/^berth-tree 1\nf 7 /);
    await expect(result.objects(`sha256:${'0'.repeat(64)}`)).rejects.toThrow('no tree object');
    const scans = join(ds.stateDir, 'scans');
    expect(readdirSync(scans)).toHaveLength(1);
    await result.dispose();
    expect(readdirSync(scans)).toEqual([]);
    mkdirSync(join(scans, '999999999-left'));
    monitored({ stateDir: ds.stateDir });
    expect(readdirSync(scans)).toEqual([]);
  });

  test('steps back from the processor, with all that it starts', async () => {
    const told = join(scratchFolder(), 'priority');
    const ds = monitored({
      searchPath: standInForFind(`
const { existsSync } = require('node:fs');
const group = '/proc/self/autogroup';
writeFileSync(${JSON.stringify(told)}, [require('node:os').getPriority(), existsSync(group) ? readFileSync(group, 'utf8') : 'nice 10'].join(' '));
writeSync(1, run().stdout);`),
    });
    await ds.scan();
    expect(readFileSync(told, 'utf8').trim()).toMatch(/^10 .*nice 10$/);
  });

  test('leaves time to people who wait, and takes it back when they are gone', async () => {
    let waiting = true;
    const ds = monitored({ workers: 1, peopleWait: () => waiting });
    // Not on the disk: the scan waits only for the processor.
    ds.file('big', '');
    truncateSync(join(ds.folder, 'big'), 64 * 1024 ** 3);
    const enough = new AbortController();
    const scan = expect(ds.look({}, enough.signal)).rejects.toThrow('enough');
    const busy = { deadlineMs: 45_000, intervalMs: 10 };
    await waitFor(
      'it is hashing',
      () => ds.seen.some(({ step, bytes }) => step === 'hashing' && bytes > 0),
      busy,
    );
    const [pid = 0] = await processesOf((argv) => argv.includes(ds.stateDir));
    /** Returns how often the threads yielded the processor while they hashed. */
    const restsDuring = async (bytes: number): Promise<number> => {
      const restsNow = (): number =>
        readdirSync(`/proc/${pid}/task`).reduce((sum, id) => {
          const status = readFileSync(`/proc/${pid}/task/${id}/status`, 'utf8');
          return sum + Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(status)?.[1]);
        }, 0);
      const hashed = (): number => ds.seen.at(-1)?.bytes ?? 0;
      const [rests, from] = [restsNow(), hashed()];
      await waitFor('it has hashed more', () => hashed() - from >= bytes, busy);
      return restsNow() - rests;
    };
    const some = 256 * 1024 ** 2;
    const gentle = await restsDuring(some);
    expect(gentle).toBeGreaterThan(100);
    waiting = false;
    // The child learns it at the scanner's next check, which is late on a busy machine.
    await waitFor('it rests less', async () => (await restsDuring(some)) < gentle / 3, busy);
    enough.abort(new Error('enough'));
    await scan;
  });

  describe('keeps the process that scanned', () => {
    /** Returns the child processes of all scans so far: the parents of the stand-in for `find`. */
    function given(keepProcessMs?: number) {
      const told = join(scratchFolder(), 'parents');
      const searchPath = standInForFind(`
writeFileSync(${JSON.stringify(told)}, process.ppid + '\\n', { flag: 'a' });
writeSync(1, run().stdout);`);
      const ds = monitored({
        searchPath,
        ...(keepProcessMs === undefined ? {} : { keepProcessMs }),
      });
      const parents = (): string[] => [...new Set(readFileSync(told, 'utf8').trim().split('\n'))];
      return { ds, parents };
    }
    const isGone = (pid = ''): boolean => !existsSync(`/proc/${pid}/exe`) || isZombie(pid);

    test('for the next scan, with nothing left open of the last one', async () => {
      const { ds, parents } = given();
      await ds.scan();
      const fds = `/proc/${parents()[0]}/fd`;
      const open = (): string[] => readdirSync(fds).map((fd) => readlinkSync(join(fds, fd)));
      for (let i = 0; i < 3; i++) {
        ds.file(`f${i}`);
        expect((await ds.scan()).kind).toBe('changed');
        expect((await ds.scan()).kind).toBe('unchanged');
      }
      expect(parents()).toHaveLength(1);
      expect(
        open().filter((path) => path.startsWith(ds.stateDir) || path.startsWith(ds.base)),
      ).toEqual([]);
    });

    test('but not for ever', async () => {
      const { ds, parents } = given(50);
      await ds.scan();
      await waitFor('it is gone', () => isGone(parents()[0]));
      expect((await ds.scan()).kind).toBe('unchanged');
      expect(parents()).toHaveLength(2);
    });

    test('and does without it when it died meanwhile', async () => {
      const { ds, parents } = given();
      await ds.scan();
      process.kill(Number(parents()[0]), 'SIGKILL');
      expect((await ds.scan()).kind).toBe('unchanged');
      expect(parents()).toHaveLength(2);
    });

    test('not after a scan of a share that cannot be read, and not when it is closed', async () => {
      const { ds, parents } = given();
      await ds.scan();
      expect((await ds.scan({ nfsPath: 'elsewhere' })).kind).toBe('unreachable');
      await waitFor('it is gone', () => isGone(parents()[0]));
      await ds.scan();
      await ds.scanner.close();
      expect(isGone(parents()[1])).toBe(true);
    });
  });

  test('forgets a dataset', async () => {
    const ds = monitored();
    await ds.scan();
    await ds.scanner.forget('ds-1');
    expect(readdirSync(join(ds.stateDir, 'datasets'))).toEqual([]);
    await ds.scanner.forget('never-there');
    expect(() => ds.scanner.forget('../x')).toThrow('not a dataset id');
  });
});
