/** The file of a backup: any change of it is found, encrypted or not. */
import { randomBytes } from 'node:crypto';
import { createReadStream, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { generateIdentity, identityToRecipient } from 'age-encryption';
import { describe, expect, onTestFinished, test } from 'vitest';
import { packed, unpack } from '../../src/backup/archive.ts';
import { newManifest } from '../../src/backup/manifest.ts';

const CONTENT = {
  berth: '0.1.0',
  created_at: '2026-11-23T15:00:00.000Z',
  installation: '0a1b2c3d',
  engine: 'sqlite' as const,
  migrations: ['0001_main_job'],
  rows: { projects: 1 },
  key_ids: [],
  settings: { BASE_DOMAIN: 'example.com' },
};
const MANIFEST = newManifest(CONTENT, { hasEtcSecrets: false });
const KEYS = { SECRETS_KEY: 'of a test' };

function folder(): string {
  const dir = mkdtempSync(join(tmpdir(), 'berth-archive-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

async function file(recipients: string[] = [], bytes = 700): Promise<Buffer> {
  const database = join(folder(), 'copy');
  writeFileSync(database, Buffer.alloc(bytes, 'a row of the database; '));
  return buffer(
    await packed({ manifest: MANIFEST, keys: KEYS, etcSecrets: [], database }, recipients),
  );
}

async function opened(content: Buffer | Readable, identities: string[] = []): Promise<string> {
  const into = mkdtempSync(join(tmpdir(), 'berth-archive-'));
  try {
    const source = Buffer.isBuffer(content) ? Readable.from([content]) : content;
    const { manifest, keys, database } = await unpack(source, {
      name: 'b',
      identities,
      into,
      accept: () => {},
    });
    return `${manifest.installation} ${keys?.['SECRETS_KEY']} ${readFileSync(database).length}`;
  } catch (error) {
    return (error as { code: string }).code;
  } finally {
    rmSync(into, { recursive: true, force: true });
  }
}

const STRIDE = 7;
const GOOD = '0a1b2c3d of a test 700';
const identity = await generateIdentity();
const recipient = await identityToRecipient(identity);

describe.each([
  ['not encrypted', [] as string[], [] as string[]],
  ['encrypted', [recipient], [identity]],
])('%s', (_, recipients, identities) => {
  test('each changed byte and each missing end is found', { timeout: 60_000 }, async () => {
    const content = await file(recipients);
    expect(await opened(content, identities)).toBe(GOOD);
    const found = new Set<string>();
    // Every seventh byte, and all of the footer. (Every byte was tried once: 17 s.)
    for (let i = 0; i < content.length; i += i < content.length - 110 ? STRIDE : 1) {
      const changed = Buffer.from(content);
      changed[i] = (changed[i] ?? 0) ^ (1 << (i % 8));
      found.add(await opened(changed, identities));
    }
    // The first bytes say that it is a backup, and a changed stanza of age is one for somebody
    // else.
    expect([...found].sort()).toEqual(
      recipients.length === 0
        ? ['damaged', 'not_a_backup']
        : ['damaged', 'not_a_backup', 'wrong_identity'],
    );
    for (let length = 0; length < content.length; length += 41)
      expect(await opened(content.subarray(0, length), identities), `${length} bytes`).toMatch(
        /^(damaged|not_a_backup)$/,
      );
    expect(await opened(Buffer.concat([content, Buffer.from([0])]), identities)).toBe('damaged');
  });
});

test('another identity, and none, are refused by name', async () => {
  const content = await file([recipient]);
  expect(await opened(content, [await generateIdentity()])).toBe('wrong_identity');
  expect(await opened(content)).toBe('wrong_identity');
});

test.each([
  ['without an identity', [recipient], [], 'wrong_identity'],
  ['for another identity', [recipient], [await generateIdentity()], 'wrong_identity'],
  ['with other content', null, [], 'not_a_backup'],
  ['with bytes after its end', [], [], 'damaged'],
])('the file of a refused backup is closed: %s', async (_, recipients, identities, code) => {
  const path = join(folder(), 'backup');
  const content = recipients === null ? randomBytes(5_000_000) : await file(recipients, 5_000_000);
  writeFileSync(path, Buffer.concat([content, Buffer.from([0])]));
  const source = createReadStream(path);
  expect(await opened(source, identities)).toBe(code);
  await expect.poll(() => source.closed).toBe(true);
});

test('each of several recipients opens it', async () => {
  const other = await generateIdentity();
  const content = await file([recipient, await identityToRecipient(other)]);
  expect(await opened(content, [other])).toBe(GOOD);
  expect(await opened(content, [identity])).toBe(GOOD);
});

test('a source that fails in the middle is not a damaged backup', async () => {
  const content = await file();
  const source = Readable.from(
    (function* () {
      yield content.subarray(0, 100);
      throw Object.assign(new Error('read EIO'), { code: 'EIO' });
    })(),
  );
  expect(await opened(source)).toBe('target_unavailable');
});

test('a backup of a newer format is refused by its number', async () => {
  const database = join(folder(), 'copy');
  writeFileSync(database, 'x');
  const newer = { ...MANIFEST, format: 3, berth: '9.0.0' };
  expect(
    await opened(
      await buffer(await packed({ manifest: newer, keys: null, etcSecrets: [], database }, [])),
    ),
  ).toBe('newer_backup');
});

test('a database that cannot be read ends the backup with an error', async () => {
  const dir = folder();
  const stream = await packed(
    { manifest: MANIFEST, keys: null, etcSecrets: [], database: join(dir, 'copy') },
    [],
  ).catch((error: unknown) => error);
  expect(stream).toMatchObject({ code: 'ENOENT' });
});

test.each(['../x', '/etc/passwd', 'a/../../x'])(
  'a settings file with the path %s is refused',
  async (path) => {
    const database = join(folder(), 'copy');
    writeFileSync(database, 'x');
    const files = [{ path, mode: 0o600, text: 'x' }];
    const etc = { folder: '/etc/berth', files, left_out: [] };
    const archive = { manifest: MANIFEST, keys: null, etcSecrets: [], database };
    expect(
      await opened(await buffer(await packed({ ...archive, manifest: { ...MANIFEST, etc } }, []))),
    ).toBe('damaged');
    expect(await opened(await buffer(await packed({ ...archive, etcSecrets: files }, [])))).toBe(
      'damaged',
    );
  },
);
