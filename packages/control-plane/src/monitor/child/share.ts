/**
 * Is the base path still the share that it was? An unmounted share is an empty folder, and an empty folder must never read
 * as "all files removed": a marker with a random id lies at the base (where it can be written), and the mount that holds the
 * base is remembered. All calls block while the share hangs: only the scan's child process makes them.
 */
import { randomUUID } from 'node:crypto';
import { lstatSync, readFileSync, realpathSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ShareIdentity } from '../../domain/records.ts';

const MARKER = '.berth-share';
const MARKER_TEXT = /^berth-share ([0-9a-f-]{36})\n$/;
type Mount = ShareIdentity['mount'];

/** Why nothing can be said about the folder; its message is the outcome's `problem`. */
export class UnreachableError extends Error {
  override name = 'UnreachableError';
}

/** What a share does not answer with while it is well. */
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

/** What is said of the path with which a call to the system failed. */
export const reasonOf = (code: string | undefined): string => REASONS[code ?? ''] ?? `cannot be read (${code ?? 'unknown error'})`;

/** `what` is a subject: `The base path /mnt/nas`. */
export const unreachable = (what: string, code: string | undefined): UnreachableError => new UnreachableError(`${what} ${reasonOf(code)}.`);

/** The real path of a folder. Throws UnreachableError. */
export function realFolder(path: string, what: string): string {
  try {
    const real = realpathSync.native(path);
    if (!statSync(real).isDirectory()) throw unreachable(what, 'ENOTDIR');
    return real;
  } catch (error) {
    throw error instanceof UnreachableError ? error : unreachable(what, (error as NodeJS.ErrnoException).code);
  }
}

/**
 * Looks at the share that holds `base` (a real path) and compares it with what it was. One that has no marker yet gets one,
 * but never a folder that may be another one. Throws UnreachableError; with `accept` any share is taken for the right one. Where
 * only its marker is gone it gets the same one again: what is said of one dataset heals all others on the share.
 */
export function seeShare(base: string, was: ShareIdentity | null, accept: boolean): ShareIdentity {
  const is: ShareIdentity = { marker: readMarker(base), mount: mountOf(base, readFileSync('/proc/self/mountinfo', 'latin1')) };
  const problem = accept ? null : shareProblem(base, was, is);
  if (problem !== null) throw new UnreachableError(problem);
  const known = was !== null && sameMount(was.mount, is.mount) ? was.marker : null;
  return { ...is, marker: is.marker ?? leaveMarker(base, known ?? randomUUID()) };
}

/** Null: the same share. Else a sentence that says why it is not. */
function shareProblem(base: string, was: ShareIdentity | null, is: ShareIdentity): string | null {
  if (was === null) return null;
  const named = (mount: Mount): string => (mount === null ? 'on the system’s own disk' : `${mount.type} from ${mount.source}`);
  if (was.mount !== null && is.mount === null)
    return `The share is not mounted: ${base} was ${named(was.mount)} and is now an ordinary folder ${named(null)}.`;
  if (was.marker !== null && was.marker !== is.marker)
    return `${base} does not hold the share that it held: ${is.marker === null ? `its file ${MARKER} is missing` : `its file ${MARKER} has the id of another share`}.`;
  // The id is random: where it is the same the share is, from wherever it is mounted by now.
  if (was.marker !== null || sameMount(was.mount, is.mount)) return null;
  return `${base} is another mount than before: it was ${named(was.mount)}, now it is ${named(is.mount)}.`;
}

const sameMount = (a: Mount, b: Mount): boolean => JSON.stringify(a) === JSON.stringify(b);

function readMarker(base: string): string | null {
  const path = join(base, MARKER);
  try {
    // Not whatever somebody put there: a FIFO would hold us up.
    return lstatSync(path).isFile() ? (MARKER_TEXT.exec(readFileSync(path, 'latin1'))?.[1] ?? null) : null;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return null;
    throw unreachable(path, code);
  }
}

/** Two scans may do this at once: the first one's stays, and the other finds it next time. Null: the base is not writable. */
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
    // No room: half a marker would be nobody's.
    rmSync(path, { force: true });
    return null;
  }
}

/**
 * The mount that holds `path` (real), null where that is the root file system's. Source: proc_pid_mountinfo(5). Of several
 * over one another the last line is the one that is seen.
 */
export function mountOf(path: string, mountinfo: string): Mount {
  let found: { point: string; mount: Mount } = { point: '/', mount: null };
  for (const line of mountinfo.split('\n')) {
    const [left, right] = line.split(' - ');
    const [, , , root = '', point = ''] = (left ?? '').split(' ').map(unescape);
    const [type = '', source = ''] = (right ?? '').split(' ').map(unescape);
    if (point === '' || point.length < found.point.length) continue;
    if (point !== '/' && (path === point || path.startsWith(`${point}/`))) found = { point, mount: { type, source, root } };
  }
  return found.mount;
}

/** The file is read as bytes; octal escapes are spaces and the like. */
const unescape = (field: string): string =>
  Buffer.from(
    field.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8))),
    'latin1',
  ).toString('utf8');
