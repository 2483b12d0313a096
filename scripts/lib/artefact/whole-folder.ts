/** Writes a folder as a whole: whoever reads it finds the earlier one or the new one. */
import { existsSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { resolve } from 'node:path';

/**
 * `out`: a folder that does not exist, is empty, or has the file `marker` of an earlier `what`, which
 * is replaced. `write` gets the path of a draft beside it, and makes it. Returns its result.
 */
export async function writeWhole<T>(
  out: string,
  { marker, what }: { marker: string; what: string },
  write: (draft: string, out: string) => Promise<T>,
): Promise<T> {
  const target = resolve(out);
  const files = existsSync(target) ? readdirSync(target) : [];
  if (files.length > 0 && !files.includes(marker))
    throw new Error(`${target} is not empty and holds no ${what} of Berth: name another folder`);
  const draft = `${target}.${process.pid}`;
  rmSync(draft, { recursive: true, force: true });
  try {
    const result = await write(draft, target);
    rmSync(target, { recursive: true, force: true });
    renameSync(draft, target);
    return result;
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}
