/** Reads the file with settings (berth.toml) in the build context's root of a clone. */
import { constants } from 'node:fs';
import { lstat, open } from 'node:fs/promises';
import { join, posix } from 'node:path';
import { type ConfigFile, MAX_CONFIG_FILE } from '@berth/wire/task';
import { TaskFailure } from '../failures.ts';

/**
 * Returns the file, or null if there is none. `folder`: the build context as the project names it.
 * The repository is not trusted: a link could lead to a file of the builder. Throws TaskFailure
 * config_invalid.
 */
export async function readConfigFile(
  context: string,
  folder: string,
  name: string,
): Promise<ConfigFile | null> {
  const path = join(context, name);
  const file = posix.join(folder, name);
  const refuse = (rule: string): TaskFailure =>
    new TaskFailure('config_invalid', `${file} ${rule}`);
  const entry = await lstat(path).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  });
  if (entry === null) return null;
  if (entry.isSymbolicLink()) throw refuse('must be a plain file, not a link');
  if (!entry.isFile()) throw refuse('must be a plain file');
  const handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const { size } = await handle.stat();
    if (size > MAX_CONFIG_FILE)
      throw refuse(`must have at most ${MAX_CONFIG_FILE} bytes (64 KiB); it has ${size}`);
    const text = textOf(await handle.readFile());
    if (text === null) throw refuse('must be UTF-8 text');
    return { file, text };
  } finally {
    await handle.close();
  }
}

function textOf(bytes: Uint8Array): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}
