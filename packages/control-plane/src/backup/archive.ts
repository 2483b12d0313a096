/**
 * The file format of a backup: a tar with `manifest.json`, the copy of the database and optionally
 * `keys.json` and `etc-secrets.json`, compressed by gzip, then the footer (footer.ts), then
 * optionally encrypted by age. Reading and writing are streamed. To read it by hand: `age -d -i
 * IDENTITY FILE | tar xz`.
 */
import { createReadStream, createWriteStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { ReadableStream } from 'node:stream/web';
import { createGunzip, createGzip } from 'node:zlib';
import { messageOf } from '@berth/kit/message-of';
import { Decrypter } from 'age-encryption';
import { extract, pack } from 'tar-stream';
import { BackupError, isDiskFull } from './errors.ts';
import { appendFooter, checkFooter } from './footer.ts';
import { type EtcSecrets, etcSecretsIn } from './etc.ts';
import { encrypterFor } from './recipients.ts';
import { type Keys, type Manifest, keysIn, manifestIn } from './manifest.ts';

/** Name of the database copy inside the archive: a SQLite file, or the custom format of pg_dump. */
const DATABASE = { sqlite: 'berth.db', postgres: 'berth.dump' } as const;
const MANIFEST = 'manifest.json';
const KEYS = 'keys.json';
const ETC_SECRETS = 'etc-secrets.json';
const MOST_JSON = 4 * 1024 ** 2;
/**
 * Level 4 takes about half the time of the default level and compresses a database nearly as well.
 */
const GZIP_LEVEL = 4;
const AGE_HEAD = Buffer.from('age-encryption.org/v1\n');
const GZIP_HEAD = Buffer.from([0x1f, 0x8b]);

export type Contents = {
  manifest: Manifest;
  keys: Keys | null;
  etcSecrets: EtcSecrets;
  database: string;
};

/**
 * Returns the bytes of the backup. `recipients`: age recipients; if empty, the backup is not
 * encrypted. Throws for a recipient with an unknown format.
 */
export async function packed(
  { manifest, keys, etcSecrets, database }: Contents,
  recipients: readonly string[],
): Promise<Readable> {
  const { size } = await stat(database);
  const tar = pack();
  const plain = new PassThrough({ highWaterMark: 1024 ** 2 });
  const mtime = new Date(manifest.created_at);
  const add = async (): Promise<void> => {
    tar.entry({ name: MANIFEST, mode: 0o600, mtime }, JSON.stringify(manifest, null, 2));
    if (keys !== null) tar.entry({ name: KEYS, mode: 0o600, mtime }, JSON.stringify(keys, null, 2));
    if (etcSecrets.length > 0)
      tar.entry({ name: ETC_SECRETS, mode: 0o600, mtime }, JSON.stringify(etcSecrets, null, 2));
    await pipeline(
      createReadStream(database),
      tar.entry({ name: DATABASE[manifest.engine], size, mode: 0o600, mtime }),
    );
    tar.finalize();
  };
  const fail = (error: unknown): void => void plain.destroy(error as Error);
  add().catch(fail);
  pipeline(tar, createGzip({ level: GZIP_LEVEL }), appendFooter(), plain).catch(fail);
  if (recipients.length === 0) return plain;
  const encrypter = encrypterFor(recipients);
  return Readable.fromWeb((await encrypter.encrypt(webOf(plain))) as ReadableStream);
}

const webOf = (stream: Readable): globalThis.ReadableStream<Uint8Array> => Readable.toWeb(stream);

/**
 * Writes the parts of a backup into an empty folder and checks every byte. `accept` gets the
 * manifest before the database is read, and throws for a backup that this version cannot use. Do
 * not use any file in the folder before this function returns. `name`: for errors.
 */
export async function unpack(
  source: Readable,
  {
    name,
    identities,
    into,
    accept,
  }: {
    name: string;
    identities: readonly string[];
    into: string;
    accept: (manifest: Manifest) => void;
  },
): Promise<Contents> {
  const contents: {
    manifest?: Manifest;
    keys: Keys | null;
    etcSecrets: EtcSecrets;
    database?: string;
  } = { keys: null, etcSecrets: [] };
  try {
    const plain = await decrypted(source, identities);
    const tar = extract();
    tar.on('entry', (header, content, next) => {
      const taken = async (): Promise<void> => {
        try {
          await take(header.name, content as unknown as Readable);
          next();
        } catch (error) {
          tar.destroy(error as Error);
        }
      };
      void taken();
    });
    const take = async (entry: string, content: Readable): Promise<void> => {
      if (entry === MANIFEST) {
        contents.manifest = manifestIn(await json(content));
        accept(contents.manifest);
      } else if (entry === KEYS) contents.keys = keysIn(await json(content));
      else if (entry === ETC_SECRETS) contents.etcSecrets = etcSecretsIn(await json(content));
      else if (contents.manifest !== undefined && entry === DATABASE[contents.manifest.engine]) {
        contents.database = join(into, entry);
        await pipeline(content, createWriteStream(contents.database, { flags: 'wx', mode: 0o600 }));
      } else throw new BackupError('damaged', `it has an unknown part “${entry.slice(0, 100)}”`);
    };
    await pipeline(plain, checkFooter(), createGunzip(), tar);
  } catch (error) {
    throw failureOf(error, name, into);
  }
  const { manifest, keys, etcSecrets, database } = contents;
  if (manifest === undefined || database === undefined)
    throw new BackupError('damaged', `the backup ${name} is damaged: a part is missing`);
  return { manifest, keys, etcSecrets, database };
}

async function json(content: Readable): Promise<unknown> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of content as AsyncIterable<Buffer>) {
    parts.push(part);
    bytes += part.length;
    if (bytes > MOST_JSON) throw new BackupError('damaged', 'its manifest is too large');
  }
  return JSON.parse(Buffer.concat(parts).toString());
}

/** Messages of the age library that mean "wrong key". */
const NO_IDENTITY = /no identity matched/i;

async function decrypted(source: Readable, identities: readonly string[]): Promise<Readable> {
  const { head, whole } = await peek(source, AGE_HEAD.length);
  if (head.subarray(0, GZIP_HEAD.length).equals(GZIP_HEAD)) return whole;
  if (!head.equals(AGE_HEAD)) {
    whole.destroy();
    throw new BackupError('not_a_backup', 'it does not begin like one');
  }
  if (identities.length === 0) {
    whole.destroy();
    throw new BackupError(
      'wrong_identity',
      'it is encrypted: give the file of an age identity with --identity',
    );
  }
  const decrypter = new Decrypter();
  for (const identity of identities) decrypter.addIdentity(identity);
  try {
    return Readable.fromWeb((await decrypter.decrypt(webOf(whole))) as ReadableStream);
  } catch (error) {
    whole.destroy();
    if (NO_IDENTITY.test(messageOf(error)))
      throw new BackupError(
        'wrong_identity',
        'none of the given age identities opens it; it was encrypted for another one',
        {
          cause: error,
        },
      );
    throw error;
  }
}

/** Returns the first bytes of a stream, and a stream of all bytes. */
async function peek(source: Readable, bytes: number): Promise<{ head: Buffer; whole: Readable }> {
  const iterator = (source as AsyncIterable<Buffer>)[Symbol.asyncIterator]();
  const first: Buffer[] = [];
  let length = 0;
  while (length < bytes) {
    const { done, value } = await iterator.next();
    if (done === true) break;
    first.push(value);
    length += value.length;
  }
  const beginning = Buffer.concat(first);
  async function* all(): AsyncGenerator<Buffer> {
    if (beginning.length > 0) yield beginning;
    for (;;) {
      const { done, value } = await iterator.next();
      if (done === true) return;
      yield value;
    }
  }
  const whole = Readable.from(all(), { objectMode: false, highWaterMark: 1024 ** 2 });
  // Not in a `finally` of `all`: if nobody reads `whole`, the generator never starts.
  whole.once('close', () => source.destroy());
  return { head: beginning.subarray(0, bytes), whole };
}

/** Returns whether the source (object storage or disk) failed, and not the content. */
const isOfSource = (error: unknown): boolean =>
  error instanceof Error &&
  'code' in error &&
  /^(E[A-Z]+|ERR_STREAM_PREMATURE_CLOSE)$/.test(String(error.code));

function failureOf(error: unknown, name: string, into: string): BackupError {
  if (isDiskFull(error))
    return new BackupError('disk_full', `the disk of ${into} is full; nothing was restored`, {
      cause: error,
    });
  if (error instanceof BackupError) {
    const { code, message } = error;
    if (code === 'damaged')
      return new BackupError(code, `the backup ${name} is damaged: ${message}`, { cause: error });
    if (code === 'newer_backup') return error;
    const what = code === 'not_a_backup' ? 'is not a backup of Berth' : 'cannot be opened';
    return new BackupError(code, `${name} ${what}: ${message}`, { cause: error });
  }
  if (isOfSource(error))
    return new BackupError('target_unavailable', `${name} cannot be read: ${messageOf(error)}`, {
      cause: error,
    });
  // The bytes are wrong: age, gzip, tar and JSON each report this with a different error.
  return new BackupError('damaged', `the backup ${name} is damaged: ${messageOf(error)}`, {
    cause: error,
  });
}
