/** What is said about copies: numbers for people, progress for the page, how rsync's ends are read, and how a mount is written for the engine. */
import type { CopyProgress } from '@berth/wire/dataset';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { AbandonedError, orAbandon } from '../../src/abandon.ts';
import { createCopyRate } from '../../src/data/copy-rate.ts';
import { createGauge } from '../../src/data/gauge.ts';
import { sizeText, timeText } from '../../src/data/say.ts';
import { createProgressSender } from '../../src/progress-sender.ts';
import { mountOption } from '../../src/tools/docker.ts';
import { read } from '../../src/tools/rsync.ts';
import { until } from '../fake-control-plane.ts';

it.each([
  [0, '0 B'],
  [999, '999 B'],
  [1_000, '1.0 kB'],
  [85_400_000, '85.4 MB'],
  [999_600_000, '1.0 GB'],
  [1_234_567_890_123, '1.2 TB'],
])('sizeText(%d) is %s', (bytes, text) => expect(sizeText(bytes)).toBe(text));
it.each([
  [450, '0.5 s'],
  [14_200, '14 s'],
  [150_000, '3 min'],
  [9_000_000, '2.5 h'],
])('timeText(%d) is %s', (ms, text) => expect(timeText(ms)).toBe(text));

const WANT = { dataset_id: 'd', name: 'set', nfs_path: 'set', version: 2, manifest_digest: '' };

describe('a gauge', () => {
  it('tells the rate of late, not of all the time, and what is left by it', () => {
    let now = 0;
    const gauge = createGauge(
      WANT,
      () => undefined,
      () => now,
    );
    gauge.step('copying', 10_000);
    gauge.bytes(0);
    expect(gauge.now()).toMatchObject({ bytes_per_second: null, remaining_seconds: null });
    now = 20_000;
    gauge.bytes(2_000);
    now = 22_000;
    gauge.bytes(4_000);
    expect(gauge.now()).toMatchObject({
      step: 'copying',
      bytes_done: 4_000,
      bytes_total: 10_000,
      bytes_per_second: 1_000,
      remaining_seconds: 6,
    });
    gauge.step('verifying');
    expect(gauge.now()).toMatchObject({ bytes_done: 4_000, bytes_per_second: null });
    gauge.restart({ ...WANT, version: 3 });
    expect(gauge.now()).toMatchObject({ version: 3, step: 'waiting', bytes_done: 0, bytes_total: 0 });
  });
});

describe('the copy rate', () => {
  it('is smoothed, does not go by small copies, and outlives the process', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'copy-rate-'));
    const path = join(dir, 'rate.json');
    const rate = await createCopyRate(path);
    expect(rate.get()).toBeNull();
    await rate.add(0, 5);
    expect(rate.get()).toBeNull();
    await rate.add(100_000_000, 1_000);
    await rate.add(10, 1_000);
    expect(rate.get()).toBe(100_000_000);
    await rate.add(200_000_000, 1_000);
    expect(rate.get()).toBe(130_000_000);
    expect((await createCopyRate(path)).get()).toBe(130_000_000);
    await rm(dir, { recursive: true });
  });
});

describe('the progress sender', () => {
  const row = (bytes_done: number): CopyProgress => ({ ...createGauge(WANT, () => undefined).now(), bytes_done });
  it('sends the newest, never twice at once, and drops what cannot be sent', async () => {
    const sent: number[] = [];
    let atWork = 0;
    const sender = createProgressSender(async ([first]) => {
      expect((atWork += 1)).toBe(1);
      await new Promise((resolve) => setTimeout(resolve, 5));
      atWork -= 1;
      sent.push(first?.bytes_done ?? -1);
      if (first?.bytes_done === 2) throw new Error('away');
    }, 1);
    sender.push([row(1)]);
    sender.push([row(2)]);
    await until('the first', () => sent.length === 1);
    sender.push([row(3)]);
    await sender.flush();
    expect(sent).toEqual([2, 3]);
    sender.stop();
    sender.push([row(4)]);
    await sender.flush();
    expect(sent).toEqual([2, 3]);
  });
  it('at the end waits for no second', async () => {
    const sent: number[] = [];
    const sender = createProgressSender(async ([first]) => void sent.push(first?.bytes_done ?? -1), 3_600_000);
    sender.push([row(1)]);
    await until('the first', () => sent.length === 1);
    sender.push([row(2)]);
    await sender.flush();
    expect(sent).toEqual([1, 2]);
  });
});

describe('an end of rsync', () => {
  const ended = (code: number | null, stderr = '', over = {}) => ({
    argv: [],
    code,
    signal: null,
    stdout: '',
    stdoutCut: false,
    stderr,
    ended: null,
    ...over,
  });
  it.each([
    ['0', ended(0), { kind: 'done' }],
    [
      'a file that vanished',
      ended(
        24,
        'file has vanished: "/mnt/set/a"\nrsync warning: some files vanished before they could be transferred (code 24) at main.c(1338)',
      ),
      { kind: 'incomplete', killed: false },
    ],
    [
      'a file that is not there',
      ended(
        23,
        'rsync: [sender] link_stat "/mnt/set/a" failed: No such file or directory (2)\nrsync error: some files/attrs were not transferred',
      ),
      { kind: 'incomplete', killed: false, said: 'rsync: [sender] link_stat "/mnt/set/a" failed: No such file or directory (2)' },
    ],
    ['SIGKILL', ended(null, '', { signal: 'SIGKILL' }), { kind: 'incomplete', killed: true, said: 'rsync was ended by SIGKILL' }],
    ['a receiver that was killed', ended(12, 'rsync: connection unexpectedly closed'), { kind: 'incomplete', killed: true }],
    [
      'a sender whose peer is gone',
      ended(10, 'rsync: [sender] write error: Broken pipe (32)\nrsync error: error in socket IO (code 10) at io.c(949) [sender=3.5.0]'),
      { kind: 'incomplete', killed: true },
    ],
  ])('%s', (_, result, expected) => expect(read(result, 1_000)).toMatchObject(expected));
  it.each([
    ['a full disk', ended(11, 'rsync: [receiver] write failed on "/svc/x": No space left on device (28)'), 'disk_full'],
    ['a quota', ended(11, 'rsync: write failed: Disk quota exceeded (122)'), 'disk_full'],
    ['a stale handle', ended(23, 'rsync: [sender] read errors mapping "/mnt/set/a": Stale file handle (116)'), 'dataset_unreachable'],
    ['an I/O error', ended(23, 'rsync: [sender] read errors mapping "/mnt/set/a": Input/output error (5)'), 'dataset_unreachable'],
    [
      'a file that may not be read',
      ended(23, 'rsync: [sender] send_files failed to open "/mnt/set/a": Permission denied (13)'),
      'dataset_unreachable',
    ],
    [
      'a share whose program ended',
      ended(
        3,
        'rsync: [sender] change_dir "/mnt/set/" failed: Software caused connection abort (103)\nrsync error: errors selecting input/output files, dirs (code 3) at flist.c(2791) [sender=3.5.0]\nrsync error: received SIGUSR1 (code 19) at main.c(1660) [Receiver=3.5.0]',
      ),
      'dataset_unreachable',
    ],
    ['its own time-out', ended(30, 'rsync error: timeout in data send/receive (code 30)'), 'dataset_unreachable'],
    ['our time-out', ended(null, '', { ended: 'timeout' }), 'dataset_copy_failed'],
    ['a wrong option', ended(1, 'rsync: --fsync: unknown option'), 'dataset_copy_failed'],
  ])('%s', (_, result, code) => expect(() => read(result, 1_000)).toThrow(expect.objectContaining({ code }) as Error));
  it('says what the share said, not what came of it', () => {
    const failed = (file: string): string =>
      `rsync: [sender] send_files failed to open "/mnt/set/${file}": Transport endpoint is not connected (107)`;
    const result = ended(
      10,
      [
        failed('a'),
        failed('b'),
        '',
        'rsync: [sender] write error: Broken pipe (32)',
        'rsync error: error in socket IO (code 10) at io.c(949) [sender=3.5.0]',
        'rsync error: received SIGUSR1 (code 19) at main.c(1660) [generator=3.5.0]',
      ].join('\n'),
    );
    expect(() => read(result, 1_000)).toThrow(
      expect.objectContaining({ message: expect.stringMatching(/could not be read: .*"\/mnt\/set\/b".*107\)$/) }) as Error,
    );
  });
});

it.each([
  [{ source: '/svc/mounts/d/a', target: '/data/a', readonly: true }, 'type=bind,src=/svc/mounts/d/a,dst=/data/a,readonly'],
  [{ source: '/mnt/a, b', target: '/data/"x"', readonly: false }, 'type=bind,"src=/mnt/a, b","dst=/data/""x"""'],
])('mountOption(%j)', (mount, text) => expect(mountOption(mount)).toBe(text));

describe('what hangs in the kernel', () => {
  const hangs = new Promise<never>(() => undefined);
  it('is left behind after its time', async () => {
    await expect(orAbandon(hangs, new AbortController().signal, 20, 10_000)).rejects.toThrow(AbandonedError);
  });
  it('is left behind when it does not end after it was told to', async () => {
    await expect(orAbandon(hangs, AbortSignal.abort(new Error('cancelled')), 3_600_000, 20)).rejects.toThrow('cancelled');
  });
  it('and what does not is waited for, told or not', async () => {
    expect(await orAbandon(Promise.resolve(1), AbortSignal.abort(new Error('cancelled')), 1_000, 1_000)).toBe(1);
  });
});
