/**
 * The secret that signs API tokens where JWT_SECRET is not set. It is in a file beside the database, never in the database:
 * a copy of the database must not be enough to sign tokens.
 */
import { createHash, randomBytes } from 'node:crypto';
import { chmod, link, mkdir, open, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '@berth/kit/log';
import type { MetaStore } from '../../domain/stores.ts';

const FILE = 'jwt-secret';
/** Row of `meta` where earlier versions kept the secret. */
const OLD_KEY = 'jwt_secret';
const MIN_LENGTH = 32;
const ALTERNATIVE = 'or set JWT_SECRET (openssl rand -hex 32)';

/** Reads the secret, or generates one. If several processes start at once, all use the secret of the first. Errors say what to do. */
export async function jwtSecretIn(folder: string, meta: MetaStore, log: Logger): Promise<string> {
  const path = join(folder, FILE);
  const old = await meta.get(OLD_KEY);
  let secret = await readSecret(path, log);
  if (secret === null) {
    await createFile(folder, path, old ?? randomBytes(48).toString('base64url'));
    // Another process may have written its secret first.
    secret = await readSecret(path, log);
    if (secret === null)
      throw new Error(`the JWT secret ${path} cannot be read right after the write: do not delete the file, ${ALTERNATIVE}`);
    if (old !== null) log.info({ path }, 'JWT secret moved from the database to a file; add the file to your backups');
  }
  // Remove it from the database only after the file is on the disk.
  if (old !== null) await meta.remove(OLD_KEY);
  return secret;
}

/** Returns null where there is no file yet. */
async function readSecret(path: string, log: Logger): Promise<string | null> {
  let text: string;
  try {
    const { mode } = await stat(path);
    text = (await readFile(path, 'utf8')).trim();
    if ((mode & 0o077) !== 0) {
      await chmod(path, 0o600);
      log.warn(
        { path, mode: (mode & 0o777).toString(8) },
        'JWT secret was readable by other users; its file has mode 0600 now. If somebody may have read it, delete the file and restart',
      );
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw new Error(
      `the JWT secret ${path} cannot be read: ${reasonOf(error)}. Make it a file of mode 0600 that this user owns, ${ALTERNATIVE}`,
      {
        cause: error,
      },
    );
  }
  if (text.length < MIN_LENGTH || /\s/.test(text))
    throw new Error(
      `the JWT secret ${path} is not one line of ${MIN_LENGTH} characters or more. Delete the file to get a new one, ${ALTERNATIVE}`,
    );
  return text;
}

/** Writes the whole file or nothing: writes under another name, then links. The link fails if another process was first. */
async function createFile(folder: string, path: string, secret: string): Promise<void> {
  const fresh = `${path}.${randomBytes(6).toString('hex')}`;
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    try {
      const file = await open(fresh, 'wx', 0o600);
      try {
        await file.writeFile(`${secret}\n`);
        await file.sync();
      } finally {
        await file.close();
      }
      await link(fresh, path);
    } finally {
      await rm(fresh, { force: true });
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return;
    throw new Error(
      `the JWT secret ${path} cannot be written: ${reasonOf(error)}. Make the folder writable for this user, ${ALTERNATIVE}`,
      {
        cause: error,
      },
    );
  }
}

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Prefix of the rows of `meta` with the fingerprints of the control planes' secrets. */
const FINGERPRINT_KEY = 'jwt_secret_seen ';
/** A control plane counts as stopped when its entry is older than this. */
const STOPPED_AFTER_MS = 4 * 60_000;

export type SecretWatch = {
  /** Publishes the fingerprint of the own secret and reads those of the other control planes. */
  look(): Promise<void>;
  /** Text for /readyz; null: this control plane can read the tokens of all others. */
  problem(): string | null;
  close(): Promise<void>;
};

/** Compares fingerprints in the database: each control plane must accept the tokens of every other one. */
export function createSecretWatch(deps: { meta: MetaStore; secrets: readonly string[]; now: () => number }): SecretWatch {
  const { meta, now } = deps;
  const [own = '', ...earlier] = deps.secrets.map((secret) => FINGERPRINT_KEY + fingerprintOf(secret));
  const readable = new Set([own, ...earlier]);
  let differs = false;
  return {
    async look() {
      await meta.set(own, String(now()));
      const entries = await meta.startingWith(FINGERPRINT_KEY);
      const stopped = entries.filter(({ value }) => !(Number(value) > now() - STOPPED_AFTER_MS));
      for (const { key } of stopped) await meta.remove(key);
      differs = entries.some((entry) => !stopped.includes(entry) && !readable.has(entry.key));
    },
    problem: () =>
      differs
        ? 'another control plane signs with another JWT secret, and its tokens are refused here: copy the file jwt-secret of one to STATE_DIR of each, or set JWT_SECRET'
        : null,
    close: () => meta.remove(own),
  };
}

const fingerprintOf = (secret: string): string =>
  createHash('sha256').update(`berth jwt fingerprint\n${secret}`).digest('hex').slice(0, 16);
