/** How the exits of rsync are read. */
import { expect, it } from 'vitest';
import { readExit } from '../../src/data/rsync.ts';

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
  ['exit code 0', ended(0), { kind: 'done' }],
  [
    'a file that vanished',
    ended(
      24,
      'file has vanished: "/mnt/set/a"\nrsync warning: some files vanished before they could ' +
        'be transferred (code 24) at main.c(1338)',
    ),
    { kind: 'incomplete', killed: false },
  ],
  [
    'a missing file',
    ended(
      23,
      'rsync: [sender] link_stat "/mnt/set/a" failed: No such file or directory (2)\nrsync ' +
        'error: some files/attrs were not transferred',
    ),
    {
      kind: 'incomplete',
      killed: false,
      message: 'rsync: [sender] link_stat "/mnt/set/a" failed: No such file or directory (2)',
    },
  ],
  [
    'SIGKILL',
    ended(null, '', { signal: 'SIGKILL' }),
    { kind: 'incomplete', killed: true, message: 'rsync was killed by SIGKILL' },
  ],
  [
    'a killed receiver',
    ended(12, 'rsync: connection unexpectedly closed'),
    { kind: 'incomplete', killed: true },
  ],
  [
    'a sender without its peer',
    ended(
      10,
      'rsync: [sender] write error: Broken pipe (32)\nrsync error: error in socket IO (code ' +
        '10) at io.c(949) [sender=3.5.0]',
    ),
    { kind: 'incomplete', killed: true },
  ],
])('%s: the result', (_, result, expected) =>
  expect(readExit(result, 1_000)).toMatchObject(expected),
);
it.each([
  [
    'a full disk',
    ended(11, 'rsync: [receiver] write failed on "/svc/x": No space left on device (28)'),
    'disk_full',
  ],
  ['a quota', ended(11, 'rsync: write failed: Disk quota exceeded (122)'), 'disk_full'],
  [
    'a stale handle',
    ended(23, 'rsync: [sender] read errors mapping "/mnt/set/a": Stale file handle (116)'),
    'dataset_unreachable',
  ],
  [
    'an I/O error',
    ended(23, 'rsync: [sender] read errors mapping "/mnt/set/a": Input/output error (5)'),
    'dataset_unreachable',
  ],
  [
    'an unreadable file',
    ended(23, 'rsync: [sender] send_files failed to open "/mnt/set/a": Permission denied (13)'),
    'dataset_unreachable',
  ],
  [
    'a share whose server ended',
    ended(
      3,
      'rsync: [sender] change_dir "/mnt/set/" failed: Software caused connection abort ' +
        '(103)\nrsync error: errors selecting input/output files, dirs (code 3) at flist.c(2791) ' +
        '[sender=3.5.0]\nrsync error: received SIGUSR1 (code 19) at main.c(1660) [Receiver=3.5.0]',
    ),
    'dataset_unreachable',
  ],
  [
    'the time-out of rsync',
    ended(30, 'rsync error: timeout in data send/receive (code 30)'),
    'dataset_unreachable',
  ],
  ['the time-out of the agent', ended(null, '', { ended: 'timeout' }), 'dataset_copy_failed'],
  ['a wrong option', ended(1, 'rsync: --fsync: unknown option'), 'dataset_copy_failed'],
])('%s: the failure', (_, result, code) =>
  expect(() => readExit(result, 1_000)).toThrow(expect.objectContaining({ code }) as Error),
);
it('the failure names the error of the share, not its consequences', () => {
  const failed = (file: string): string =>
    `rsync: [sender] send_files failed to open "/mnt/set/${file}": Transport endpoint is not ` +
    'connected (107)';
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
  expect(() => readExit(result, 1_000)).toThrow(
    expect.objectContaining({
      message: expect.stringMatching(/shared storage: .*"\/mnt\/set\/b".*107\)$/),
    }) as Error,
  );
});
