/**
 * A generated secret in a file of mode 0600. If several processes start at the same time, all use
 * the secret that was written first.
 */
import { chmod, readFile, stat } from 'node:fs/promises';
import type { Logger } from './log.ts';
import { messageOf } from './message-of.ts';
import { writeFileWhole } from './write-file.ts';

export type SecretFile = {
  path: string;
  /** Name in errors and log lines. */
  name: string;
  /** End of every error: the setting to use instead of the file, and how to generate a value. */
  instead: string;
  /**
   * Returns what is wrong with the content and what to do, or null. It must not repeat the content.
   */
  problem: (text: string) => string | null;
  /** Advice for the case that other users might have read the file. */
  leaked: string;
};

/** Returns the secret, or null if the file does not exist. Throws an error that says what to do. */
export async function readSecretFile(
  { path, name, instead, problem, leaked }: SecretFile,
  log: Logger,
): Promise<string | null> {
  let text: string;
  try {
    const { mode } = await stat(path);
    text = (await readFile(path, 'utf8')).trim();
    if ((mode & 0o077) !== 0) {
      await chmod(path, 0o600);
      log.warn(
        { path, mode: (mode & 0o777).toString(8) },
        `${name} was readable by other users; its file has mode 0600 now. If somebody may have ` +
          `read it, ${leaked}`,
      );
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw new Error(
      `the ${name} ${path} cannot be read: ${messageOf(error)}. Make it a file of mode 0600 ` +
        `that this user owns, ${instead}`,
      {
        cause: error,
      },
    );
  }
  const wrong = problem(text);
  if (wrong !== null) throw new Error(`the ${name} ${path} ${wrong}, ${instead}`);
  return text;
}

/**
 * Writes the secret unless the file exists, and returns the content of the file. Throws an error
 * that says what to do.
 */
export async function createSecretFile(
  file: SecretFile,
  secret: string,
  log: Logger,
): Promise<string> {
  await writeOnce(file, secret);
  // Another process might have written its secret first.
  const written = await readSecretFile(file, log);
  if (written === null)
    throw new Error(
      `the ${file.name} ${file.path} cannot be read right after the write: do not delete the ` +
        `file, ${file.instead}`,
    );
  return written;
}

async function writeOnce({ path, name, instead }: SecretFile, secret: string): Promise<void> {
  try {
    await writeFileWhole(path, `${secret}\n`, { exclusive: true, folderMode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return;
    throw new Error(
      `the ${name} ${path} cannot be written: ${messageOf(error)}. Make the folder writable for ` +
        `this user, ${instead}`,
      {
        cause: error,
      },
    );
  }
}
