/** /readyz reports a folder that the agent cannot write to. */
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createWritable } from '../../src/disk/writable.ts';

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'agent-writable-'));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

/** The deadline is long, so that a busy machine does not count as a hanging disk. */
const check = (path: string): Promise<string[]> =>
  createWritable([{ setting: 'SVC_ROOT', path }], { deadlineMs: 60_000 })();

it('a writable folder has no problem, and stays empty', async () => {
  expect(await check(dir)).toEqual([]);
  expect(await readdir(dir)).toEqual([]);
});

it('a missing folder, or a file in its place, is reported', async () => {
  expect(await check(join(dir, 'gone'))).toEqual([
    expect.stringMatching(/^SVC_ROOT \(\/.*\/gone\) cannot be written: ENOENT/),
  ]);
  await writeFile(join(dir, 'file'), '');
  expect(await check(join(dir, 'file'))).toEqual([
    expect.stringMatching(/^SVC_ROOT \(\/.*\/file\) cannot be written: ENOTDIR/),
  ]);
});

it('a disk that hangs is reported, and gets no second write', async () => {
  let asked = 0;
  const hang = (): Promise<void> => {
    asked += 1;
    return new Promise(() => undefined);
  };
  const writable = createWritable([{ setting: 'STATE_DIR', path: dir }], {
    write: hang,
    deadlineMs: 20,
    freshMs: 0,
  });
  expect(await writable()).toEqual([
    `STATE_DIR (${dir}) does not answer: a write did not finish within 0.02 s`,
  ]);
  expect(await writable()).toHaveLength(1);
  expect(asked).toBe(1);
});

it('parallel requests share one write', async () => {
  let asked = 0;
  const write = async (): Promise<void> => void (asked += 1);
  const writable = createWritable([{ setting: 'STATE_DIR', path: dir }], { write });
  await Promise.all(Array.from({ length: 50 }, () => writable()));
  await writable();
  expect(asked).toBe(1);
});

describe.skipIf(process.getuid?.() !== 0)('mounted (skipped: not root)', () => {
  const mounted: string[] = [];
  afterEach(() =>
    mounted.splice(0).forEach((path) => execFileSync('/usr/bin/umount', ['--lazy', path])),
  );
  async function tmpfs(options: string): Promise<string> {
    const path = join(dir, 'disk');
    await mkdir(path);
    execFileSync('/usr/bin/mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', path]);
    mounted.push(path);
    return path;
  }
  it('a full disk is reported until it has room again', async () => {
    const path = await tmpfs('size=1m');
    await writeFile(join(path, 'filler'), Buffer.alloc(2_000_000)).catch(() => undefined);
    expect(await check(path)).toEqual([
      `SVC_ROOT (${path}) cannot be written: ENOSPC: no space left on device, write`,
    ]);
    expect(await readdir(path)).toEqual(['filler']);
    await rm(join(path, 'filler'));
    expect(await check(path)).toEqual([]);
  });

  it('a read-only disk is reported', async () => {
    const path = await tmpfs('ro');
    expect(await check(path)).toEqual([
      expect.stringContaining('cannot be written: EROFS: read-only file system'),
    ]);
  });
});
