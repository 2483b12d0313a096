/**
 * The manifest of a dataset version: a Merkle tree of text objects, one per folder, addressed by
 * their content. If one of a million files changes, the new version needs only a few new objects.
 * This file alone defines the format, its rules and its version.
 *
 *   berth-tree 1
 *   f <size> <sha256> <name>                regular file
 *   x <size> <sha256> <name>                executable regular file
 *   l <size> <sha256 of target> <name> <target>   symlink inside the dataset
 *   d <files> <bytes> <sha256 of object> <name>   folder, with the totals of all files below it
 *   c <files> <bytes> <sha256 of object>    chunk; the object of a folder with more than 1,024 entries has only such lines
 *
 * Lines are sorted by the raw bytes of the name. Names are percent-encoded (`encodeName`).
 * The format does not store times, owners or modes.
 */

/**
 * `checksum` is 64 hex digits, as `sha256sum` prints them; `size` is in bytes; `name` is encoded.
 */
export type FileEntry = {
  kind: 'file';
  name: string;
  size: number;
  checksum: string;
  executable: boolean;
};
/**
 * `target` is encoded like a name, but keeps `/`. `size` is the length of its raw bytes and
 * `checksum` their SHA-256.
 */
export type LinkEntry = {
  kind: 'link';
  name: string;
  size: number;
  checksum: string;
  target: string;
};
/**
 * `digest` (`sha256:<hex>`) names the object of the folder. `files` and `bytes` count files and
 * symlinks at any depth below it.
 */
export type FolderEntry = {
  kind: 'folder';
  name: string;
  files: number;
  bytes: number;
  digest: string;
};
export type ChunkEntry = { kind: 'chunk'; files: number; bytes: number; digest: string };
export type NamedEntry = FileEntry | LinkEntry | FolderEntry;
/** A tree object has either named entries or chunks, never both. */
export type TreeEntry = NamedEntry | ChunkEntry;

/**
 * Loads the text of an object by its digest. Implementations that use the network must verify the
 * digest; this module does not.
 */
export type LoadTree = (digest: string) => Promise<string>;

/**
 * The text is not a tree object of this format. The message names the line and the violated rule.
 */
export class TreeFormatError extends Error {
  override name = 'TreeFormatError';
}

const HEADER = 'berth-tree 1\n';
/**
 * A folder with more entries than this is split into chunks, and a chunk has at most this many
 * entries.
 */
export const MOST_ENTRIES = 1024;
/** On average, one name in 256 ends a chunk. */
const CHUNK_MASK = 0xff;

// ---- Names

const ESCAPES = Array.from({ length: 256 }, (_, byte) =>
  byte >= 0x21 && byte <= 0x7e && byte !== 0x25
    ? String.fromCharCode(byte)
    : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`,
);
const PLAIN = /^[\x21-\x24\x26-\x7e]*$/;
const ENCODED = /^(?:[\x21-\x24\x26-\x7e]|%(?:[01][0-9A-F]|2[05]|7F|[89A-F][0-9A-F]))+$/;

/**
 * Encodes the raw bytes of a name, path or link target as printable ASCII: bytes outside 0x21-0x7e,
 * and `%`, become %XX.
 */
export function encodeName(raw: Uint8Array): string {
  const text = Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength).toString('latin1');
  if (PLAIN.test(text)) return text;
  let encoded = '';
  for (const byte of raw) encoded += ESCAPES[byte];
  return encoded;
}

/** Reverses `encodeName`. Throws TreeFormatError for a text that `encodeName` cannot produce. */
export function decodeName(encoded: string): Buffer {
  if (PLAIN.test(encoded)) return Buffer.from(encoded, 'latin1');
  if (!ENCODED.test(encoded))
    throw new TreeFormatError(`not an encoded name: ${JSON.stringify(encoded.slice(0, 200))}`);
  return Buffer.from(
    encoded.replaceAll(/%(..)/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16))),
    'latin1',
  );
}

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * Formats an encoded name or path for people: decoded if it is UTF-8 without control characters,
 * else unchanged.
 */
export function displayPath(encoded: string): string {
  if (!encoded.includes('%')) return encoded;
  try {
    const text = UTF8.decode(decodeName(encoded));
    return /\p{Cc}|\p{Cf}|\p{Zl}|\p{Zp}/u.test(text) ? encoded : text;
  } catch {
    return encoded;
  }
}

/**
 * Compares two encoded names by their raw bytes, which is the order of the lines in a tree object.
 */
export function compareNames(a: string, b: string): number {
  if (a === b) return 0;
  if (a.includes('%') || b.includes('%')) return Buffer.compare(decodeName(a), decodeName(b));
  return a < b ? -1 : 1;
}

// ---- Encoding

export type TreeWriter = {
  /** Returns the SHA-256 of an ASCII text as 64 hex digits. */
  sha256: (text: string) => string;
  /** Called once for each object; chunks of a folder come before the object of the folder. */
  write: (digest: string, text: string) => void;
};
export type TreeTotals = { digest: string; files: number; bytes: number };

/**
 * Writes the objects of one folder. `entries` must be in the order of `compareNames`, else it
 * throws TreeFormatError.
 */
export function encodeTree(entries: Iterable<NamedEntry>, writer: TreeWriter): TreeTotals {
  const total = { files: 0, bytes: 0 };
  const chunks: TreeTotals[] = [];
  // Lines not written yet, and the indexes at which a chunk ends. Chunks are written only after the
  // folder exceeds MOST_ENTRIES.
  let open: string[] = [];
  let cuts: number[] = [];
  let counts: { files: number; bytes: number }[] = [];
  let part = { files: 0, bytes: 0 };
  let sinceCut = 0;
  let chunked = false;
  let last: string | null = null;

  const object = (body: string): string => {
    const text = HEADER + body;
    const digest = `sha256:${writer.sha256(text)}`;
    writer.write(digest, text);
    return digest;
  };
  const flush = (): void => {
    let from = 0;
    for (const [i, to] of cuts.entries()) {
      const { files, bytes } = counts[i] as { files: number; bytes: number };
      chunks.push({ digest: object(open.slice(from, to).join('')), files, bytes });
      from = to;
    }
    open = open.slice(from);
    cuts = [];
    counts = [];
  };
  const cut = (): void => {
    cuts.push(open.length);
    counts.push(part);
    part = { files: 0, bytes: 0 };
    sinceCut = 0;
    if (chunked) flush();
  };

  for (const entry of entries) {
    if (last !== null && compareNames(last, entry.name) >= 0)
      throw new TreeFormatError(`not in order: ${entry.name} after ${last}`);
    last = entry.name;
    const [files, bytes] = entry.kind === 'folder' ? [entry.files, entry.bytes] : [1, entry.size];
    total.files += files;
    total.bytes += bytes;
    part.files += files;
    part.bytes += bytes;
    open.push(encodeLine(entry));
    sinceCut++;
    if (!chunked && open.length > MOST_ENTRIES) {
      chunked = true;
      flush();
    }
    if (sinceCut === MOST_ENTRIES || endsChunk(entry.name)) cut();
  }
  if (!chunked) return { digest: object(open.join('')), ...total };
  if (sinceCut > 0) cut();
  const lines = chunks.map((c) => `c ${c.files} ${c.bytes} ${c.digest.slice(7)}\n`);
  return { digest: object(lines.join('')), ...total };
}

function encodeLine(entry: NamedEntry): string {
  if (entry.kind === 'folder')
    return `d ${entry.files} ${entry.bytes} ${entry.digest.slice(7)} ${entry.name}\n`;
  if (entry.kind === 'link')
    return `l ${entry.size} ${entry.checksum} ${entry.name} ${entry.target}\n`;
  return `${entry.executable ? 'x' : 'f'} ${entry.size} ${entry.checksum} ${entry.name}\n`;
}

/**
 * Returns whether a name ends a chunk. Only the name decides, so that an added or removed neighbour
 * does not move other chunk ends. The hash is FNV-1a with a final mix, because the low bits of
 * plain FNV-1a are not random enough.
 */
function endsChunk(name: string): boolean {
  let h = 0x811c9dc5;
  for (let i = 0; i < name.length; i++) h = Math.imul(h ^ name.charCodeAt(i), 0x01000193);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return ((h ^ (h >>> 16)) & CHUNK_MASK) === 0;
}

// ---- Decoding

const NUMBER = String.raw`(0|[1-9]\d{0,15})`;
const HEX = '([0-9a-f]{64})';
const LEAF = new RegExp(`^([fx]) ${NUMBER} ${HEX} ([!-~]+)$`);
const LINK = new RegExp(`^l ${NUMBER} ${HEX} ([!-~]+) ([!-~]+)$`);
const FOLDER = new RegExp(`^d ${NUMBER} ${NUMBER} ${HEX} ([!-~]+)$`);
const CHUNK = new RegExp(`^c ${NUMBER} ${NUMBER} ${HEX}$`);

/**
 * Returns the entries of an object, in order. Objects come from the network and name files that
 * will be created, so this function checks everything: the form of each line, that a name is a
 * single name (no `/`, `.`, `..`, NUL), the order, and duplicates. Throws TreeFormatError.
 */
export function decodeTree(text: string): TreeEntry[] {
  if (!text.startsWith(HEADER))
    throw new TreeFormatError(`does not begin with ${JSON.stringify(HEADER)}`);
  if (!text.endsWith('\n')) throw new TreeFormatError('the last line has no line feed at its end');
  const entries: TreeEntry[] = [];
  let last: string | null = null;
  for (let from = HEADER.length, number = 2; from < text.length; number++) {
    const to = text.indexOf('\n', from);
    const entry = decodeLine(text.slice(from, to), number);
    from = to + 1;
    if (entry.kind === 'chunk' ? last !== null : entries[0]?.kind === 'chunk')
      throw new TreeFormatError(`line ${number}: chunks and entries are mixed`);
    if (entry.kind !== 'chunk') {
      if (last !== null && compareNames(last, entry.name) >= 0)
        throw new TreeFormatError(`line ${number}: names are not in order`);
      last = entry.name;
    }
    entries.push(entry);
  }
  if (last !== null && entries.length > MOST_ENTRIES)
    throw new TreeFormatError(`has more than ${MOST_ENTRIES} entries without chunks`);
  return entries;
}

function decodeLine(line: string, number: number): TreeEntry {
  const refuse = (rule: string): never => {
    throw new TreeFormatError(`line ${number}: ${rule}: ${JSON.stringify(line.slice(0, 200))}`);
  };
  const count = (digits = ''): number =>
    Number.isSafeInteger(Number(digits)) ? Number(digits) : refuse('the number is too large');
  const encoded = (name = ''): string =>
    ENCODED.test(name) && !name.includes('%00') ? name : refuse('not an encoded name');
  const named = (name = ''): string =>
    name === '.' || name === '..' || name.includes('/') ? refuse('not a file name') : encoded(name);

  const leaf = LEAF.exec(line);
  if (leaf !== null)
    return {
      kind: 'file',
      name: named(leaf[4]),
      size: count(leaf[2]),
      checksum: leaf[3] ?? '',
      executable: leaf[1] === 'x',
    };
  const folder = FOLDER.exec(line);
  if (folder !== null)
    return {
      kind: 'folder',
      name: named(folder[4]),
      files: count(folder[1]),
      bytes: count(folder[2]),
      digest: `sha256:${folder[3]}`,
    };
  const link = LINK.exec(line);
  if (link !== null) {
    const entry: LinkEntry = {
      kind: 'link',
      name: named(link[3]),
      size: count(link[1]),
      checksum: link[2] ?? '',
      target: encoded(link[4]),
    };
    return decodeName(entry.target).length === entry.size
      ? entry
      : refuse('the size differs from the length of the target');
  }
  const chunk = CHUNK.exec(line);
  if (chunk !== null)
    return {
      kind: 'chunk',
      files: count(chunk[1]),
      bytes: count(chunk[2]),
      digest: `sha256:${chunk[3]}`,
    };
  return refuse('not a line of a tree object');
}

// ---- Reading whole trees

/**
 * `path` is encoded, with `/` between names and no leading `/`. No part of `path` is `.` or `..`.
 */
export type TreeLeaf = { path: string; entry: NamedEntry };

/**
 * Yields every file and symlink below `root` and each empty folder, in order; the paths imply all
 * other folders. It keeps one object per level in memory. Rejects with TreeFormatError, or with the
 * error of `load`.
 */
export async function* walkTree(
  root: string,
  load: LoadTree,
  under = '',
): AsyncGenerator<TreeLeaf> {
  for await (const part of entriesOf(await folderOf(root, load), NONE, load))
    yield* leavesOf(part, load, under);
}
const NONE: ReadonlySet<string> = new Set();

async function* leavesOf(
  entries: readonly NamedEntry[],
  load: LoadTree,
  under: string,
): AsyncGenerator<TreeLeaf> {
  for (const entry of entries) {
    const path = under + entry.name;
    if (entry.kind !== 'folder') {
      yield { path, entry };
      continue;
    }
    let empty = true;
    for await (const leaf of walkTree(entry.digest, load, `${path}/`)) {
      empty = false;
      yield leaf;
    }
    if (empty) yield { path, entry };
  }
}

/**
 * A row of the history. `size` and `checksum` are null for a removed file; the previous values are
 * null for an added file.
 */
export type TreeChange = {
  path: string;
  change: 'added' | 'modified' | 'removed';
  size: number | null;
  checksum: string | null;
  previous_size: number | null;
  previous_checksum: string | null;
};

/** Compares two entries by name. The end of a folder (null) comes after all entries. */
function compareEntries(a: NamedEntry | null, b: NamedEntry | null): number {
  if (a === null) return 1;
  return b === null ? -1 : compareNames(a.name, b.name);
}

/**
 * Yields the files and symlinks in which two trees differ. `null` stands for the empty tree.
 * Folders have no rows. Each path occurs once, except where a file replaced a folder or a folder
 * replaced a file. Subtrees with equal digests are not loaded.
 */
export async function* diffTrees(
  oldRoot: string | null,
  newRoot: string | null,
  load: LoadTree,
  under = '',
): AsyncGenerator<TreeChange> {
  if (oldRoot === newRoot) return;
  const [oldFolder, newFolder] = [await folderOf(oldRoot, load), await folderOf(newRoot, load)];
  const shared = sharedChunks(oldFolder, newFolder);
  const [olds, news] = [
    await cursorOf(oldFolder, shared, load),
    await cursorOf(newFolder, shared, load),
  ];
  for (;;) {
    const [was, is] = [olds.entry(), news.entry()];
    if (was === null && is === null) return;
    const order = compareEntries(was, is);
    const [gone, come] = [order <= 0 ? was : null, order >= 0 ? is : null];
    const path = under + (come ?? gone)?.name;
    const [oldLeaf, newLeaf] = [leafOf(gone), leafOf(come)];
    const previous = {
      previous_size: oldLeaf?.size ?? null,
      previous_checksum: oldLeaf?.checksum ?? null,
    };
    if (oldLeaf !== null && newLeaf === null)
      yield { path, change: 'removed', size: null, checksum: null, ...previous };
    const [from, to] = [digestOf(gone), digestOf(come)];
    if (from !== to) yield* diffTrees(from, to, load, `${path}/`);
    if (newLeaf !== null && (oldLeaf === null || !sameLeaf(oldLeaf, newLeaf))) {
      const { size, checksum } = newLeaf;
      yield { path, change: oldLeaf === null ? 'added' : 'modified', size, checksum, ...previous };
    }
    // Await only if the next part must be loaded, because this code runs for every entry.
    if (gone !== null && olds.next()) await olds.more();
    if (come !== null && news.next()) await news.more();
  }
}

type Leaf = Exclude<NamedEntry, { kind: 'folder' }>;
const leafOf = (entry: NamedEntry | null): Leaf | null =>
  entry === null || entry.kind === 'folder' ? null : entry;
const digestOf = (entry: NamedEntry | null): string | null =>
  entry?.kind === 'folder' ? entry.digest : null;

/** Compares two leaves that have the same name. */
function sameLeaf(a: Leaf, b: Leaf): boolean {
  if (a.size !== b.size || a.checksum !== b.checksum) return false;
  return a.kind === 'link'
    ? b.kind === 'link' && a.target === b.target
    : b.kind === 'file' && a.executable === b.executable;
}

type Folder = { root: string; entries: TreeEntry[] };
const folderOf = async (root: string | null, load: LoadTree): Promise<Folder | null> =>
  root === null ? null : { root, entries: decodeTree(await load(root)) };

type Cursor = {
  /** Current entry; null at the end. */
  entry(): NamedEntry | null;
  /** Moves to the next entry. Returns true if that entry is not loaded yet; `more` loads it. */
  next(): boolean;
  more(): Promise<void>;
};

async function cursorOf(
  folder: Folder | null,
  skip: ReadonlySet<string>,
  load: LoadTree,
): Promise<Cursor> {
  const parts = entriesOf(folder, skip, load);
  let part: NamedEntry[] = [];
  let at = 0;
  const more = async (): Promise<void> => {
    const result = await parts.next();
    [part, at] = [result.done === true ? [] : result.value, 0];
  };
  await more();
  return { entry: () => part[at] ?? null, next: () => ++at >= part.length, more };
}

/**
 * Yields the entries of a folder in order, in one part or one part per chunk. Skips the chunks in
 * `skip`; no part is empty.
 */
async function* entriesOf(
  folder: Folder | null,
  skip: ReadonlySet<string>,
  load: LoadTree,
): AsyncGenerator<NamedEntry[]> {
  if (folder === null) return;
  const plain = folder.entries.filter((entry) => entry.kind !== 'chunk');
  if (plain.length > 0) yield plain;
  let last: string | undefined;
  for (const entry of folder.entries) {
    if (entry.kind !== 'chunk' || skip.has(entry.digest)) continue;
    const entries = await entriesOfChunk(entry.digest, load);
    const [first] = entries;
    // Check the order across chunks: otherwise one name could be a symlink in one chunk and a
    // folder in another, and an agent would create files at the symlink's target.
    if (last !== undefined && first !== undefined && compareNames(last, first.name) >= 0)
      throw new TreeFormatError(`names are not in order across the chunks of ${folder.root}`);
    last = entries.at(-1)?.name ?? last;
    if (entries.length > 0) yield entries;
  }
}

async function entriesOfChunk(digest: string, load: LoadTree): Promise<NamedEntry[]> {
  return decodeTree(await load(digest)).map((entry) => {
    if (entry.kind === 'chunk')
      throw new TreeFormatError(`${digest} is a chunk that contains chunks`);
    return entry;
  });
}

/**
 * Returns the digests of chunks that both folders have. A digest covers names and contents, so
 * these chunks contain no differences.
 */
function sharedChunks(a: Folder | null, b: Folder | null): Set<string> {
  const there = new Set(chunksOf(b));
  return new Set(chunksOf(a).filter((digest) => there.has(digest)));
}
const chunksOf = (folder: Folder | null): string[] =>
  folder === null
    ? []
    : folder.entries.flatMap((entry) => (entry.kind === 'chunk' ? [entry.digest] : []));
