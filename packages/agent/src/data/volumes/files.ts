/**
 * Packs the files of volumes into a tar stream, and computes a digest that proves the copy: both
 * ends of a move read every file, and the digest covers path, type, mode, owner, size and content.
 * Sockets are left out, because they are useless without their process. Needs GNU tar.
 */
import { createHash } from 'node:crypto';
import { lstat, readdir, readlink } from 'node:fs/promises';
import { exec, type ExecResult, exitError } from '@berth/kit/exec';
import { createSha256Pool } from '@berth/kit/sha256-files';
import type { MoveResult } from '@berth/wire/volume';
import { TaskFailure } from '../../failures.ts';

const KEEP = ['--numeric-owner', '--xattrs', '--xattrs-include=*', '--acls'] as const;
type Options = { inherit: NodeJS.ProcessEnv; signal: AbortSignal };

/** Packs the folders `names` of `root`. If `onOutput` is slow, tar waits. */
export async function packFolders(
  root: string,
  names: readonly string[],
  { inherit, signal, onOutput }: Options & { onOutput: (bytes: Buffer) => Promise<void> },
): Promise<void> {
  const argv = [
    'tar',
    '--create',
    '--file=-',
    '--format=posix',
    '--sparse',
    ...KEEP,
    `--directory=${root}`,
    '--',
    ...names,
  ];
  checkExit(
    await exec(argv, { env: { ...inherit, LC_ALL: 'C' }, signal, onOutput, dieWithParent: true }),
    signal,
  );
}

/** Unpacks a stream of packFolders below `root`, with owners and modes. */
export async function unpackFolders(
  root: string,
  input: AsyncIterable<Uint8Array>,
  { inherit, signal }: Options,
): Promise<void> {
  const argv = [
    'tar',
    '--extract',
    '--file=-',
    '--same-owner',
    '--same-permissions',
    ...KEEP,
    `--directory=${root}`,
  ];
  checkExit(
    await exec(argv, { env: { ...inherit, LC_ALL: 'C' }, signal, input, dieWithParent: true }),
    signal,
  );
}

function checkExit(result: ExecResult, signal: AbortSignal): void {
  signal.throwIfAborted();
  if (result.code === 0) return;
  if (/no space left on device|disk quota exceeded/i.test(result.stderr)) throw exitError(result);
  throw new TaskFailure('volume_failed', exitError(result).message);
}

const SLASH = Buffer.from('/');
const SOCKET = 0o140000;
const FORMAT = 0o170000;
const TYPES: Record<number, string> = {
  0o100000: 'f',
  0o040000: 'd',
  0o120000: 'l',
  0o010000: 'p',
  0o020000: 'c',
  0o060000: 'b',
};

/**
 * Reads every file of the folders and returns their digest. Throws volume_failed if a file changes
 * meanwhile.
 */
export async function digestOf(
  root: string,
  names: readonly string[],
  signal: AbortSignal,
): Promise<MoveResult> {
  const hash = createHash('sha256');
  const total = { files: 0, bytes: 0 };
  /** Content digests of the files in one folder. */
  let sums = new Map<string, string>();
  let problem: string | null = null;
  const pool = createSha256Pool<{ path: Buffer; size: number }>({ workers: 1 }, (file, result) => {
    if (result.kind === 'ok')
      sums.set(file.path.toString('hex'), Buffer.from(result.sha256).toString('hex'));
    else
      problem ??=
        `${file.path.toString()} ` +
        (result.kind === 'changed'
          ? 'changed while it was read'
          : `cannot be read (${result.code})`);
  });
  /** First path of each file that has several hard links. */
  const linked = new Map<string, string>();
  const base = Buffer.from(root);

  async function folder(path: Buffer, children: readonly Buffer[]): Promise<void> {
    signal.throwIfAborted();
    sums = new Map();
    const folders: Buffer[] = [];
    const entries: { path: Buffer; size: number; line: (content: string) => string }[] = [];
    for (const name of children.toSorted(Buffer.compare)) {
      const child = Buffer.concat([path, SLASH, name]);
      const stat = await lstat(child);
      const type = stat.mode & FORMAT;
      if (type === SOCKET) continue;
      const relative = child.subarray(base.length).toString('latin1');
      const shown = [TYPES[type] ?? '?', (stat.mode & 0o7777).toString(8), stat.uid, stat.gid];
      if (type === 0o040000) {
        folders.push(child);
        entries.push({ path: child, size: 0, line: () => [...shown, '', relative].join('\0') });
      } else if (type === 0o120000) {
        const target = (await readlink(child, { encoding: 'buffer' })).toString('latin1');
        entries.push({ path: child, size: 0, line: () => [...shown, target, relative].join('\0') });
      } else if (type === 0o100000) {
        total.files += 1;
        total.bytes += stat.size;
        const key = `${stat.dev}:${stat.ino}`;
        const first = stat.nlink > 1 ? linked.get(key) : undefined;
        if (stat.nlink > 1 && first === undefined) linked.set(key, relative);
        if (first === undefined) await pool.add({ path: child, size: stat.size });
        entries.push({
          path: child,
          size: stat.size,
          line: (content) => [...shown, stat.size, first ?? content, relative].join('\0'),
        });
      } else
        entries.push({
          path: child,
          size: 0,
          line: () => [...shown, stat.rdev, relative].join('\0'),
        });
    }
    await pool.drain();
    if (problem !== null) throw new TaskFailure('volume_failed', problem);
    for (const entry of entries)
      hash.update(`${entry.line(sums.get(entry.path.toString('hex')) ?? '')}\n`);
    for (const child of folders) await folder(child, await readdir(child, { encoding: 'buffer' }));
  }

  try {
    await folder(
      base,
      names.map((name) => Buffer.from(name)),
    );
    return { digest: hash.digest('hex'), ...total };
  } finally {
    pool.close();
  }
}
