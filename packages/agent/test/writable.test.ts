/** /readyz says when a folder that the agent needs cannot be written. */
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createWritable } from '../src/writable.ts';

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'agent-writable-'));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const look = (path: string): Promise<string[]> => createWritable([{ setting: 'SVC_ROOT', path }])();

it('nothing is said of a folder that can be written, and nothing is left in it', async () => {
  expect(await look(dir)).toEqual([]);
  expect(await readdir(dir)).toEqual([]);
});

it('a folder that is gone, or is a file', async () => {
  expect(await look(join(dir, 'gone'))).toEqual([expect.stringMatching(/^SVC_ROOT \(\/.*\/gone\) cannot be written: ENOENT/)]);
  await writeFile(join(dir, 'file'), '');
  expect(await look(join(dir, 'file'))).toEqual([expect.stringMatching(/^SVC_ROOT \(\/.*\/file\) cannot be written: ENOTDIR/)]);
});

it('a disk that does not answer is said to be so, and is not asked a second time meanwhile', async () => {
  let asked = 0;
  const hang = (): Promise<void> => {
    asked += 1;
    return new Promise(() => undefined);
  };
  const writable = createWritable([{ setting: 'STATE_DIR', path: dir }], { write: hang, deadlineMs: 20, freshMs: 0 });
  expect(await writable()).toEqual([`STATE_DIR (${dir}) does not answer: a write was not done after 0.02 s`]);
  expect(await writable()).toHaveLength(1);
  expect(asked).toBe(1);
});

it('many who ask at once cost one write', async () => {
  let asked = 0;
  const write = async (): Promise<void> => void (asked += 1);
  const writable = createWritable([{ setting: 'STATE_DIR', path: dir }], { write });
  await Promise.all(Array.from({ length: 50 }, () => writable()));
  await writable();
  expect(asked).toBe(1);
});

describe.skipIf(process.getuid?.() !== 0)('mounted (skipped: not root)', () => {
  const mounted: string[] = [];
  afterEach(() => mounted.splice(0).forEach((path) => execFileSync('/usr/bin/umount', ['--lazy', path])));
  async function tmpfs(options: string): Promise<string> {
    const path = join(dir, 'disk');
    await mkdir(path);
    execFileSync('/usr/bin/mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', path]);
    mounted.push(path);
    return path;
  }
  it('a full disk, until there is room again', async () => {
    const path = await tmpfs('size=1m');
    await writeFile(join(path, 'filler'), Buffer.alloc(2_000_000)).catch(() => undefined);
    expect(await look(path)).toEqual([`SVC_ROOT (${path}) cannot be written: ENOSPC: no space left on device, write`]);
    expect(await readdir(path)).toEqual(['filler']);
    await rm(join(path, 'filler'));
    expect(await look(path)).toEqual([]);
  });

  it('a disk that the kernel has made read-only', async () => {
    const path = await tmpfs('ro');
    expect(await look(path)).toEqual([expect.stringContaining('cannot be written: EROFS: read-only file system')]);
  });
});
