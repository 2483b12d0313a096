/**
 * Helpers for commands on the control plane's machine: choose their settings, and set the owner of
 * the files that they create.
 */
import { lchown, lstat, readdir, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { dataFolder, readDataPlace, useSettingsOfUnit } from '../config.ts';

/**
 * Prints the path of the settings file on stderr, if the settings come from a file. Returns the
 * path, or null. Throws SettingsError.
 */
export function chooseSettings(command: string, { quiet = false } = {}): string | null {
  const file = useSettingsOfUnit();
  if (file !== null && !quiet)
    process.stderr.write(
      `berth ${command}: uses the settings of ${file}, because DATABASE_URL is not set\n`,
    );
  return file;
}

type Owner = { uid: number; gid: number };
type System = {
  isRoot: boolean;
  /** User id of this process. */
  uid: number | undefined;
  ownerOf(folder: string): Promise<Owner>;
  lchown: typeof lchown;
};
const SYSTEM: System = {
  isRoot: process.getuid?.() === 0,
  uid: process.getuid?.(),
  ownerOf: (folder) => stat(folder),
  lchown,
};

/**
 * Runs a command that creates files in the folder of the database. As root, it then changes the
 * owner of the new files to the owner of the folder, so that the control plane can open them.
 */
export async function asOwner<T>(run: () => Promise<T>, system: System = SYSTEM): Promise<T> {
  const folder = resolve(dataFolder(readDataPlace()));
  const before = new Set(await namesIn(folder));
  try {
    return await run();
  } finally {
    const owner = system.isRoot ? await system.ownerOf(folder).catch(() => null) : null;
    if (owner !== null && owner.uid !== system.uid)
      for (const name of (await namesIn(folder)).filter((one) => !before.has(one)))
        await give(join(folder, name), owner, system);
  }
}

const namesIn = (folder: string): Promise<string[]> => readdir(folder).catch(() => []);

async function give(path: string, owner: Owner, system: System): Promise<void> {
  // Null if another process has removed the file meanwhile.
  const file = await lstat(path).catch(() => null);
  // Skips a file with several hard links: this command did not create it.
  if (file === null || file.uid !== system.uid || (file.isFile() && file.nlink > 1)) return;
  if (file.isDirectory())
    for (const name of await namesIn(path)) await give(join(path, name), owner, system);
  await system.lchown(path, owner.uid, owner.gid);
}
