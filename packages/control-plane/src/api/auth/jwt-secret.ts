/**
 * The secret that signs API tokens if JWT_SECRET is not set. It is in a file beside the database,
 * never in the database, so that a copy of the database is not enough to sign tokens.
 */
import { createHash, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { derived, type Live } from '@berth/kit/live';
import type { Logger } from '@berth/kit/log';
import { createSecretFile, readSecretFile, type SecretFile } from '@berth/kit/secret-file';
import type { MetaStore } from '../../domain/platform/meta-store.ts';

export const JWT_SECRET_FILE = 'jwt-secret';
/** Row of `meta` where older versions kept the secret. */
const OLD_KEY = 'jwt_secret';
const MIN_LENGTH = 32;

/**
 * Reads the secret, or generates one. If several processes start at once, all use the secret of the
 * first process. Errors say what to do.
 */
export async function jwtSecretIn(folder: string, meta: MetaStore, log: Logger): Promise<string> {
  const path = join(folder, JWT_SECRET_FILE);
  const file: SecretFile = {
    path,
    name: 'JWT secret',
    instead: 'or set JWT_SECRET (openssl rand -hex 32)',
    problem: (text) =>
      text.length < MIN_LENGTH || /\s/.test(text)
        ? `is not one line of ${MIN_LENGTH} characters or more. Delete the file to get a new one`
        : null,
    leaked: 'delete the file and restart',
  };
  const old = await meta.get(OLD_KEY);
  let secret = await readSecretFile(file, log);
  if (secret === null) {
    secret = await createSecretFile(file, old ?? randomBytes(48).toString('base64url'), log);
    if (old !== null)
      log.info(
        { path },
        'JWT secret moved from the database to a file; add the file to your backups',
      );
  }
  // Remove the old row only after the file is on the disk.
  if (old !== null) await meta.remove(OLD_KEY);
  return secret;
}

/** Prefix of the rows of `meta` with the fingerprints of the control planes' secrets. */
const FINGERPRINT_KEY = 'jwt_secret_seen ';
/** A control plane counts as stopped when its entry is older than this. */
const STOPPED_AFTER_MS = 4 * 60_000;

export type SecretWatch = {
  /** Publishes this control plane's fingerprint and reads the fingerprints of the others. */
  look(): Promise<void>;
  /** Text for /readyz; null if this control plane can read the tokens of all others. */
  problem(): string | null;
  close(): Promise<void>;
};

/**
 * Compares fingerprints in the database, because each control plane must accept the tokens of all
 * others.
 */
export function createSecretWatch(deps: {
  meta: MetaStore;
  secrets: Live<readonly string[]>;
  now: () => number;
}): SecretWatch {
  const { meta, now } = deps;
  const inUse = derived(deps.secrets, (secrets) => {
    const [own = '', ...earlier] = secrets.map((secret) => FINGERPRINT_KEY + fingerprintOf(secret));
    return { own, readable: new Set([own, ...earlier]) };
  });
  let differs = false;
  let published: string | null = null;
  return {
    async look() {
      const { own, readable } = inUse();
      await meta.set(own, String(now()));
      // After a rotation, remove the old entry. A control plane that still signs with the old
      // secret writes it again.
      if (published !== null && published !== own) await meta.remove(published);
      published = own;
      const entries = await meta.startingWith(FINGERPRINT_KEY);
      const stopped = entries.filter(({ value }) => !(Number(value) > now() - STOPPED_AFTER_MS));
      for (const { key } of stopped) await meta.remove(key);
      differs = entries.some((entry) => !stopped.includes(entry) && !readable.has(entry.key));
    },
    problem: () =>
      differs
        ? 'another control plane signs with another JWT secret, and its tokens are refused here: ' +
          'copy the file jwt-secret of one to STATE_DIR of each, or set JWT_SECRET'
        : null,
    close: () => meta.remove(inUse().own),
  };
}

const fingerprintOf = (secret: string): string =>
  createHash('sha256').update(`berth jwt fingerprint\n${secret}`).digest('hex').slice(0, 16);
