/**
 * Checks that the base path still contains the same share. An unmounted share looks like an empty
 * folder, which must never be read as "all files removed". Therefore the base has a marker file
 * with a random id (if it is writable), and the mount is stored. All calls block while the share
 * hangs, so only the scan process makes them.
 */
import { randomUUID } from 'node:crypto';
import { lstatSync, readFileSync, realpathSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ShareIdentity } from '../../domain/platform/records.ts';

const MARKER = '.berth-share';
const MARKER_TEXT = /^berth-share ([0-9a-f-]{36})\n$/;
type Mount = ShareIdentity['mount'];

/**
 * Thrown if the share or the folder cannot be read. The message becomes the outcome's `problem`.
 */
export class ShareUnreachableError extends Error {
  override name = 'ShareUnreachableError';
}

/** Texts for error codes of system calls. */
const REASONS: Record<string, string> = {
  ENOENT: 'is missing',
  ENOTDIR: 'is not a folder',
  EACCES: 'may not be read (permission denied)',
  EPERM: 'may not be read (operation not permitted)',
  ESTALE: 'is gone on the server (stale file handle); mount the share again',
  EIO: 'cannot be read (input/output error)',
  ENOTCONN: 'cannot be read (the share is not connected)',
  ECONNABORTED: 'cannot be read (the share’s connection was aborted)',
  ETIMEDOUT: 'cannot be read (the share timed out)',
  EHOSTDOWN: 'cannot be read (the server is down)',
  ELOOP: 'leads in a circle',
};

/** Returns the predicate of a sentence about a path, such as “is missing”. */
export const reasonOf = (code: string | undefined): string =>
  REASONS[code ?? ''] ?? `cannot be read (${code ?? 'unknown error'})`;

/** Creates the error. `what`: the subject of the sentence, such as `The base path /mnt/nas`. */
export const unreachable = (what: string, code: string | undefined): ShareUnreachableError =>
  new ShareUnreachableError(`${what} ${reasonOf(code)}.`);

/** Returns the real path of a folder. Throws ShareUnreachableError. */
export function realFolder(path: string, what: string): string {
  try {
    const real = realpathSync.native(path);
    if (!statSync(real).isDirectory()) throw unreachable(what, 'ENOTDIR');
    return real;
  } catch (error) {
    throw error instanceof ShareUnreachableError
      ? error
      : unreachable(what, (error as NodeJS.ErrnoException).code);
  }
}

/**
 * Identifies the share that contains `base` (a real path) and compares it with `was`. Writes a
 * marker if the share has none. If `was` is accepted, any share is valid, and `same` tells whether
 * it is the same share as before. If only the marker is missing on the same mount, the share gets
 * its old marker again, so accepting the share for one dataset repairs all its datasets. Throws
 * ShareUnreachableError.
 */
export function seeShare(
  base: string,
  was: ShareIdentity | null,
): { share: ShareIdentity; same: boolean } {
  const is: ShareIdentity = {
    marker: readMarker(base),
    mount: mountOf(base, readFileSync('/proc/self/mountinfo', 'latin1')),
  };
  const problem = shareProblem(base, was, is);
  if (problem !== null && was?.accepted !== true) throw new ShareUnreachableError(problem);
  const earlierMarker = was !== null && sameMount(was.mount, is.mount) ? was.marker : null;
  return {
    share: { ...is, marker: is.marker ?? leaveMarker(base, earlierMarker ?? randomUUID()) },
    same: problem === null,
  };
}

const NEXT_STEP =
  'Mount the right share, or accept this one with POST /api/datasets/ID/scan {"accept_share": ' +
  'true}.';

/** Returns null if it is the same share, otherwise a sentence with the reason. */
function shareProblem(base: string, was: ShareIdentity | null, is: ShareIdentity): string | null {
  if (was === null) return null;
  const named = (mount: Mount): string =>
    mount === null ? 'on the system disk' : `${mount.type} from ${mount.source}`;
  if (was.mount !== null && is.mount === null)
    return (
      `The share is not mounted: ${base} was ${named(was.mount)} and is now an ordinary folder ` +
      `${named(null)}.`
    );
  if (was.marker !== null && was.marker !== is.marker)
    return (
      `Berth does not recognize the share at ${base}: its file ${MARKER} ` +
      `${is.marker === null ? 'is missing' : 'has the id of another share'}. ${NEXT_STEP}`
    );
  // The same random id in the marker means the same share, even if the mount has changed.
  if (was.marker !== null || sameMount(was.mount, is.mount)) return null;
  return (
    `${base} is another mount than before: it was ${named(was.mount)}, now it is ` +
    `${named(is.mount)}. ${NEXT_STEP}`
  );
}

const sameMount = (a: Mount, b: Mount): boolean => JSON.stringify(a) === JSON.stringify(b);

function readMarker(base: string): string | null {
  const path = join(base, MARKER);
  try {
    // Read only regular files: a FIFO would block.
    return lstatSync(path).isFile()
      ? (MARKER_TEXT.exec(readFileSync(path, 'latin1'))?.[1] ?? null)
      : null;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return null;
    throw unreachable(path, code);
  }
}

/**
 * Writes the marker and returns its id; null if the base is read-only. If two scans do this at
 * once, the first one wins, and the other finds its marker next time.
 */
function leaveMarker(base: string, id: string): string | null {
  const path = join(base, MARKER);
  try {
    writeFileSync(path, '', { flag: 'wx', mode: 0o644 });
  } catch {
    return readMarker(base);
  }
  try {
    writeFileSync(path, `berth-share ${id}\n`, { flush: true });
    return id;
  } catch {
    // The disk is full: remove the incomplete marker.
    rmSync(path, { force: true });
    return null;
  }
}

/**
 * Returns the mount that contains `path` (a real path); null for the root file system. Source:
 * proc_pid_mountinfo(5). If mounts are stacked, the last line is the visible one.
 */
export function mountOf(path: string, mountinfo: string): Mount {
  let visible: { point: string; mount: Mount } = { point: '/', mount: null };
  for (const line of mountinfo.split('\n')) {
    const [left, right] = line.split(' - ');
    const [, , , root = '', point = ''] = (left ?? '').split(' ').map(unescape);
    const [type = '', source = ''] = (right ?? '').split(' ').map(unescape);
    if (point === '' || point.length < visible.point.length) continue;
    if (point !== '/' && (path === point || path.startsWith(`${point}/`)))
      visible = { point, mount: { type, source, root } };
  }
  return visible.mount;
}

/** Decodes octal escapes in mountinfo (spaces, tabs, newlines). */
const unescape = (field: string): string =>
  Buffer.from(
    field.replaceAll(/\\([0-7]{3})/g, (_, octal: string) =>
      String.fromCharCode(Number.parseInt(octal, 8)),
    ),
    'latin1',
  ).toString('utf8');
