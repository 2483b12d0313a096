/**
 * Reads and writes the settings of this machine: environment files (for systemd and compose), and
 * secrets in one file each. Every write is atomic: it writes a temporary file, flushes it and
 * renames it.
 */
import {
  chmodSync,
  chownSync,
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
} from 'node:fs';
import { join } from 'node:path';
import { messageOf } from '@berth/kit/message-of';
import { isTemporary, writeFileWholeSync } from '@berth/kit/write-file';
import { Problem } from './command.ts';

/** The folder that contains all settings. */
export const ETC = '/etc/berth';

export type Owner = { uid: number; gid: number };
export type Access = Owner & { mode: number };

/** Returns the text, or undefined if the file does not exist. */
export function readText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new Problem(`${path} cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

/**
 * Opens a file in a folder that a service owns. Refuses symbolic links, because the service could
 * have created one. Returns undefined if the file does not exist.
 */
function withPlainFile<T>(path: string, use: (file: number) => T): T | undefined {
  let file: number;
  try {
    // Without O_NONBLOCK, opening a named pipe would block until a writer opens it.
    file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return undefined;
    if (code === 'ELOOP')
      throw new Problem(
        `${path} is a symbolic link, which is not followed: put a regular file there`,
        { cause: error },
      );
    throw new Problem(`${path} cannot be opened: ${messageOf(error)}`, { cause: error });
  }
  try {
    if (!fstatSync(file).isFile())
      throw new Problem(`${path} is not a regular file: put a regular file there`);
    return use(file);
  } finally {
    closeSync(file);
  }
}

/** Like readText, but the path must be a regular file and not a link. */
export const readPlain = (path: string): string | undefined =>
  withPlainFile(path, (file) => readFileSync(file, 'utf8'));

/** Returns the mode and owner of a regular file, or undefined if the file does not exist. */
export const plainAccess = (path: string): Access | undefined =>
  withPlainFile(path, (file) => {
    const { mode, uid, gid } = fstatSync(file);
    return { mode: mode & 0o7777, uid, gid };
  });

/** Sets the mode and owner of a regular file. */
export function setPlainAccess(path: string, access: Access): void {
  const isThere = withPlainFile(path, (file) => {
    setAccess(file, access);
    return true;
  });
  if (isThere === undefined) throw new Problem(`${path} is missing`);
}

function setAccess(file: number, { mode, uid, gid }: Access): void {
  fchownSync(file, uid, gid);
  // Set the mode after chown, because chown can clear mode bits.
  fchmodSync(file, mode);
}

export function writeText(path: string, text: string, { mode, uid, gid }: Access): void {
  try {
    writeFileWholeSync(path, text, { mode, owner: { uid, gid } });
  } catch (error) {
    throw new Problem(`${path} cannot be written: ${messageOf(error)}`, { cause: error });
  }
}

/** Creates a folder (its parent must exist), or sets the mode and owner of an existing folder. */
export function makeFolder(path: string, { mode, uid, gid }: Access): void {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST')
      throw new Problem(`${path} cannot be made: ${messageOf(error)}`, { cause: error });
  }
  chownSync(path, uid, gid);
  chmodSync(path, mode);
}

/** Returns whether a file or folder has this mode and owner. */
export function hasAccess(path: string, { mode, uid, gid }: Access): boolean {
  const stats = lstatSync(path);
  return (stats.mode & 0o7777) === mode && stats.uid === uid && stats.gid === gid;
}

/** Returns the temporary files that a killed run left in a folder. */
export const draftsIn = (folder: string): string[] =>
  readdirSync(folder)
    .filter(isTemporary)
    .map((name) => join(folder, name));

/** Removes the temporary files that a killed run left in a folder, and returns their paths. */
export function removeDrafts(folder: string): string[] {
  const drafts = draftsIn(folder);
  for (const path of drafts) rmSync(path);
  return drafts;
}

const LINE = /^([A-Za-z_][A-Za-z0-9_]*)=(.*)$/;

/** Parses an environment file. If a name occurs twice, the last line counts, as in systemd. */
export function parseEnv(text: string): Map<string, string> {
  const variables = new Map<string, string>();
  for (const line of text.split('\n')) {
    const [, name, value] = LINE.exec(line.trim()) ?? [];
    if (name !== undefined) variables.set(name, unquoted(value ?? ''));
  }
  return variables;
}

function unquoted(value: string): string {
  const quote = value[0];
  if ((quote !== '"' && quote !== "'") || value.length < 2 || !value.endsWith(quote)) return value;
  const inner = value.slice(1, -1);
  return quote === "'" ? inner : inner.replaceAll(/\\(["\\$`])/g, '$1');
}

const PLAIN = /^[A-Za-z0-9_@%+=:,./[\]*-]*$/;

function envLine(name: string, value: string): string {
  if (/[\n\r\0]/.test(value))
    throw new Problem(
      `the value of ${name} has a line break, which an environment file cannot hold`,
    );
  return `${name}=${PLAIN.test(value) ? value : `"${value.replaceAll(/["\\$`]/g, String.raw`\$&`)}"`}`;
}

/**
 * Sets variables in the text of an environment file; `undefined` removes a variable. Keeps
 * comments, other variables and the order.
 */
export function withVariables(
  text: string,
  variables: Readonly<Record<string, string | undefined>>,
): string {
  const rest = new Map(Object.entries(variables));
  const lines = text === '' ? [] : text.replace(/\n$/, '').split('\n');
  const kept = lines.flatMap((line) => {
    const name = LINE.exec(line.trim())?.[1];
    if (name === undefined || !Object.hasOwn(variables, name)) return [line];
    const value = variables[name];
    rest.delete(name);
    return value === undefined ? [] : [envLine(name, value)];
  });
  const added = [...rest].flatMap(([name, value]) =>
    value === undefined ? [] : [envLine(name, value)],
  );
  return [...kept, ...added].map((line) => `${line}\n`).join('');
}
