/** Copies datasets with the real rsync: what arrives, what is linked, and what the log says. */
import { mkdir, readdir, readFile, readlink, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createSyncHandler } from '../../src/tasks/sync.ts';
import { syncTask } from '../fake-control-plane.ts';
import {
  ensureCached,
  context,
  verifyVersion,
  type Share,
  type Site,
  startShare,
  startSite,
} from './share.ts';

let share: Share;
let site: Site;
beforeEach(async () => {
  share = await startShare();
  site = await startSite(share);
});
afterEach(async () => {
  await site.data.stop();
  await share.stop();
});
const at = (version: number, ...path: string[]): string =>
  join(site.root, 'objects', 'set', `v${version}`, ...path);
const leftInStaging = async (): Promise<string[]> =>
  (await readdir(join(site.root, '.staging'), { recursive: true })).filter(
    (name) => !/^[^/]+(\/\.process\.json)?$/.test(name),
  );

describe('a copied version', () => {
  it('equals its manifest: unusual names, empty files and folders, the executable bit, symlinks', async () => {
    const raw = (name: Buffer | string): Buffer =>
      Buffer.concat([Buffer.from(`${share.path('set')}/`), Buffer.from(name)]);
    await mkdir(share.path('set', 'a folder', 'empty'), { recursive: true });
    const names = [
      'plain',
      'with\nnewline',
      '-rf',
      '--delete',
      '#comment',
      ';comment',
      ' space ',
      '%41',
      '*',
      '[a]',
      'a\\b',
      'über',
      '...',
    ];
    for (const name of names) await writeFile(raw(name), `this is ${name}`);
    await writeFile(raw(Buffer.from([0x66, 0xff, 0xfe, 0x0a])), 'not UTF-8');
    await writeFile(raw('empty'), '');
    await writeFile(raw('tool'), '#!/bin/sh\n', { mode: 0o700 });
    await writeFile(raw('closed'), 'x', { mode: 0o600 });
    await writeFile(raw('a folder/\ttab'), 'x');
    await symlink('a folder/\ttab', raw('link'));
    await symlink(Buffer.from([0x66, 0xff, 0xfe, 0x0a]), raw('link to bytes'));
    const set = await share.dataset('set');
    const { copied, release } = await ensureCached(site, set);
    expect(copied?.files).toBe(names.length + 5);
    release();
    await verifyVersion(site.root, 'set', 1, set.objects, set.source.manifest_digest);
    expect((await stat(at(1, 'tool'))).mode & 0o777).toBe(0o555);
    expect((await stat(at(1, 'closed'))).mode & 0o777).toBe(0o444);
    expect(await readlink(at(1, 'link'))).toBe('a folder/\ttab');
    expect(await leftInStaging()).toEqual([]);
  });

  it('may be an empty folder', async () => {
    await mkdir(share.path('set'));
    const set = await share.dataset('set');
    expect((await ensureCached(site, set)).copied).toEqual({ files: 0, bytes: 0 });
    expect(await readdir(at(1))).toEqual([]);
  });

  it('is copied once: the second request copies nothing and needs no share', async () => {
    await share.write('set/file', 'x');
    const set = await share.dataset('set');
    (await ensureCached(site, set)).release();
    await rm(share.base, { recursive: true });
    expect((await ensureCached(site, set)).copied).toBeNull();
  });

  it('is reported to the control plane with the time of its last use', async () => {
    await share.write('set/file', 'x'.repeat(1000));
    const set = await share.dataset('set');
    const before = Date.now();
    const { release } = await ensureCached(site, set);
    const [row] = (await site.data.inventory.cached()) ?? [];
    expect(row).toMatchObject({
      dataset_id: 'set',
      name: 'set',
      version: 1,
      bytes: 1000,
      pinned: false,
    });
    expect(Date.parse(row?.last_used_at ?? '')).toBeGreaterThanOrEqual(before);
    // A version that a task protects is not reported as pinned: nothing would report the end of the
    // protection.
    expect(site.changes()).toBe(1);
    release();
  });
});

describe('the next version', () => {
  it('links unchanged and moved files and copies the rest: with 1 % changed it copies at most 10 % of the bytes', async () => {
    for (let i = 0; i < 200; i += 1)
      await share.write(`set/d${i % 10}/f${i}`, `${i} `.repeat(2000 + i));
    const set = await share.dataset('set');
    (await ensureCached(site, set)).release();
    await share.write('set/d0/f0', 'another content');
    await share.write(
      'set/d1/f1',
      (await readFile(share.path('set/d1/f1'), 'utf8')).toUpperCase().replaceAll(' ', '_'),
    );
    await mkdir(share.path('set', 'moved'));
    await writeFile(share.path('set/moved/f2'), await readFile(share.path('set/d2/f2')));
    await rm(share.path('set/d2/f2'));
    await rm(share.path('set/d3/f3'));
    await set.scan();
    const logged: string[] = [];
    const { copied, want } = await ensureCached(site, set, undefined, logged);
    expect(want.version).toBe(2);
    expect(copied?.files).toBe(2);
    expect(copied?.bytes).toBeLessThan(set.source.bytes * 0.1);
    expect(logged.at(-1)).toMatch(
      /^copied [\d.]+ kB of set v2 in [\d.]+ s, [\d.]+ [kM]?B\/s; 197 of 199 files were already on this node$/,
    );
    await verifyVersion(site.root, 'set', 2, set.objects, set.source.manifest_digest);
    const inode = async (path: string): Promise<number> => (await stat(path)).ino;
    expect(await inode(at(2, 'd5', 'f5'))).toBe(await inode(at(1, 'd5', 'f5')));
    expect(await inode(at(2, 'moved', 'f2'))).toBe(await inode(at(1, 'd2', 'f2')));
    expect(await inode(at(2, 'd0', 'f0'))).not.toBe(await inode(at(1, 'd0', 'f0')));
  });

  it('does not link a file whose executable bit changed', async () => {
    await share.write('set/tool', 'x');
    const set = await share.dataset('set');
    (await ensureCached(site, set)).release();
    await rm(share.path('set/tool'));
    await share.write('set/tool', 'x', 0o755);
    await set.scan();
    expect((await ensureCached(site, set)).want.version).toBe(2);
    expect([
      (await stat(at(1, 'tool'))).mode & 0o777,
      (await stat(at(2, 'tool'))).mode & 0o777,
    ]).toEqual([0o444, 0o555]);
  });

  it('fetches only new tree objects', async () => {
    for (let i = 0; i < 40; i += 1) await share.write(`set/d${i}/f`, `${i}`);
    const set = await share.dataset('set');
    (await ensureCached(site, set)).release();
    await share.write('set/d7/f', 'changed');
    await set.scan();
    const asked: string[] = [];
    const { objects } = set;
    set.objects = {
      has: (d: string) => (asked.push(d), objects.has(d)),
      get: (d: string) => objects.get(d),
    } as Map<string, string>;
    (await ensureCached(site, set)).release();
    expect(asked).toHaveLength(2);
  });
});

describe('a sync task', () => {
  it('copies, reports its progress, and reports what it copied', async () => {
    await share.write('set/file', Buffer.alloc(3_000_000, 'x'));
    const set = await share.dataset('set');
    const taskContext = context();
    const handler = createSyncHandler(site.data);
    const { report } = await handler(syncTask(set.source), taskContext);
    expect(report).toMatchObject({
      status: 'completed',
      result: { dataset_id: 'set', version: 1, bytes_copied: 3_000_000, files_copied: 1 },
    });
    expect(taskContext.logged[0]).toBe('copying set v1: 3.0 MB in 1 file; 0 already on this node');
    expect(taskContext.lines.map((l) => l.step)).toEqual(
      expect.arrayContaining(['waiting', 'making room', 'copying', 'verifying', 'done']),
    );
    expect(taskContext.lines.at(-1)).toMatchObject({
      name: 'set',
      version: 1,
      step: 'done',
      bytes_done: 3_000_000,
      bytes_total: 3_000_000,
    });
    expect(site.data.inventory.copyRate()).toBeGreaterThan(0);
    expect((await handler(syncTask(set.source), taskContext)).report.result).toMatchObject({
      bytes_copied: 0,
    });
  });
});
