/**
 * Opens the vault at the start of the control plane: reads or generates SECRETS_KEY, checks that it
 * decrypts the database's secrets, and wraps the project keys with the current key. A control plane
 * with a wrong key does not start, because every request for a secret would fail. A reload does the
 * same with new keys; if a needed key is missing, it keeps the old keys.
 */
import { join } from 'node:path';
import { fingerprintsOf } from '@berth/kit/fingerprint';
import { live } from '@berth/kit/live';
import type { Logger } from '@berth/kit/log';
import { createSecretFile, readSecretFile, type SecretFile } from '@berth/kit/secret-file';
import type { MetaStore } from '../domain/platform/meta-store.ts';
import type { ProjectKeyStore, Vault } from '../domain/secrets/vault.ts';
import { SECRETS_CHECK, sealedBy } from '../domain/secrets/sealed.ts';
import { CHECK } from './canary.ts';
import { keyIdOf, newKey } from './cipher.ts';
import { createKeyRing, type KeyRing } from './key-ring.ts';
import { createVault, rewrapAll } from './vault.ts';

export const SECRETS_KEY_FILE = 'secrets-key';
const DOCS = 'docs/secrets.md "Keys"';

export type OpenVault = {
  /** Keys of SECRETS_KEY; null if it is not set. */
  given: readonly Buffer[] | null;
  /** Folder of the generated key; null for a database in memory, whose key stays in memory. */
  folder: string | null;
  /** Whether other control planes can be using the database now. */
  isShared: boolean;
  keys: ProjectKeyStore;
  meta: MetaStore;
  now: () => number;
  log: Logger;
};

export type OpenedVault = Vault & {
  /**
   * Replaces the keys and wraps the project keys with the first one. Throws if a key that the
   * database needs is missing.
   */
  use(given: readonly Buffer[]): Promise<void>;
  /**
   * Wraps the project keys with the current key again, where another control plane used an older
   * key.
   */
  rewrap(): Promise<void>;
  /** Id of the current wrapping key. */
  wrapsWith(): string;
  /** Fingerprints of the keys, the current one first. */
  fingerprints(): string[];
};

/** Throws if SECRETS_KEY lacks a key that the database needs; the message names the missing key. */
export async function openVault(deps: OpenVault): Promise<OpenedVault> {
  const { given, folder, keys, log, now } = deps;
  const path = given === null && folder !== null ? join(folder, SECRETS_KEY_FILE) : null;
  const first = given ?? (await generatedKeys(path, deps));
  const ring = createKeyRing(first);
  let fingerprints = printsOf(first);
  await refuseWrongKey(ring, path, deps);
  const { read, replace } = live(ring);
  async function rewrap(): Promise<void> {
    const wrapped = await rewrapAll(keys, read());
    if (wrapped > 0)
      log.info(
        { project_keys: wrapped, key_id: read().currentId },
        'project keys wrapped with the current SECRETS_KEY',
      );
  }
  await rewrap();
  return {
    ...createVault({ keys, ring: read, now }),
    async use(next) {
      const nextRing = createKeyRing(next);
      await refuseWrongKey(nextRing, path, deps);
      replace(nextRing);
      fingerprints = printsOf(next);
      await rewrap();
    },
    rewrap,
    wrapsWith: () => read().currentId,
    fingerprints: () => fingerprints,
  };
}

const printsOf = (keys: readonly Buffer[]): string[] =>
  fingerprintsOf(
    'SECRETS_KEY',
    keys.map((key) => key.toString('base64')),
  );

const secretFileAt = (path: string): SecretFile => ({
  path,
  name: 'key of the secrets',
  instead: 'or set SECRETS_KEY',
  problem: (text) =>
    keysIn(text) === null ? 'is not 32 bytes in base64. Restore the file from a backup' : null,
  leaked: `change the key (${DOCS})`,
});

/** Parses the generated file. It has one key; `berth rotate secrets` adds another one in front. */
function keysIn(text: string): Buffer[] | null {
  const keys = text
    .split(',')
    .map((entry) => ({ entry: entry.trim(), key: Buffer.from(entry, 'base64') }));
  return keys.every(({ entry, key }) => key.length === 32 && key.toString('base64') === entry)
    ? keys.map(({ key }) => key)
    : null;
}

async function generatedKeys(
  path: string | null,
  { keys, meta, isShared, log }: OpenVault,
): Promise<Buffer[]> {
  if (path === null) return [newKey()];
  const file = secretFileAt(path);
  const storedKeys = await readKeys(file, log);
  if (storedKeys !== null) return storedKeys;
  // Do not generate a key here: a new key could decrypt none of the secrets, and its file would
  // hide that the old key is missing.
  const needed = await neededIds(keys, meta, isShared);
  if (needed.length > 0) {
    // Reads the file again: another control plane that starts now writes the file before the
    // database needs its key.
    const written = await readKeys(file, log);
    if (written !== null) return written;
    throw new Error(
      `the key of the secrets ${path} is missing, and the database needs it (key id ` +
        `${needed.join(', ')}): ` +
        'restore the file from a backup, copy it from another control plane, or set ' +
        `SECRETS_KEY (${DOCS})`,
    );
  }
  const text = await createSecretFile(file, newKey().toString('base64'), log);
  log.info({ path }, 'key of the secrets generated; add the file to your backups');
  return keysIn(text) ?? [];
}

/** Returns null if the file does not exist. */
async function readKeys(file: SecretFile, log: Logger): Promise<Buffer[] | null> {
  const text = await readSecretFile(file, log);
  if (text === null) return null;
  log.info({ path: file.path }, 'key of the secrets read');
  return keysIn(text) ?? [];
}

/** Returns the ids of the keys that are needed to decrypt the database. */
async function neededIds(
  keys: ProjectKeyStore,
  meta: MetaStore,
  isShared: boolean,
): Promise<string[]> {
  const wrapping = [...(await keys.counts()).keys()];
  // Without project keys, a lost key makes no data unreadable. But another control plane can still
  // use this key with the same database.
  const check =
    wrapping.length > 0 || isShared ? sealedBy((await meta.get(SECRETS_CHECK)) ?? '') : null;
  return [...new Set([...wrapping, ...(check === null ? [] : [check])])].sort();
}

async function refuseWrongKey(
  ring: KeyRing,
  path: string | null,
  { given, folder, keys, meta, isShared, log }: OpenVault,
): Promise<void> {
  const check = ring.seal(CHECK.aad, CHECK.value);
  // If two control planes start on a new database, the second one gets the check value of the
  // first.
  const stored = await meta.setOnce(SECRETS_CHECK, check);
  const missing = (await neededIds(keys, meta, isShared)).filter((id) => !ring.has(id));
  if (missing.length > 0) {
    const source = path ?? 'SECRETS_KEY';
    const hint =
      given === null || folder === null
        ? null
        : await fileHint(join(folder, SECRETS_KEY_FILE), missing, log);
    throw new Error(
      `${source} does not have the key that encrypts the secrets in the database (missing key ` +
        `id: ${missing.join(', ')}). ` +
        (hint ??
          'Add the missing key to SECRETS_KEY, or start with the key of the other control planes') +
        ` (${DOCS})`,
    );
  }
  if (
    ring.open(CHECK.aad, stored)?.equals(CHECK.value) === true &&
    sealedBy(stored) === ring.currentId
  )
    return;
  await meta.set(SECRETS_CHECK, check);
}

/**
 * Returns a hint if the generated file has the missing key: SECRETS_KEY was set for the first time.
 */
async function fileHint(
  path: string,
  missing: readonly string[],
  log: Logger,
): Promise<string | null> {
  const text = await readSecretFile(secretFileAt(path), log).catch(() => null);
  const keys = text === null ? null : keysIn(text);
  return keys?.some((key) => missing.includes(keyIdOf(key))) === true
    ? `The file ${path} has it: append its content to SECRETS_KEY`
    : null;
}
