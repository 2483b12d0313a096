/**
 * The manifest of a dataset version: a Merkle tree of text objects, content-addressed per folder, so that a version of a
 * million files with one change is a handful of new objects. The format, its rules and its version stand here only.
 *
 *   berth-tree 1
 *   f <size> <sha256> <name>                regular file
 *   x <size> <sha256> <name>                regular file that its owner may execute
 *   l <size> <sha256 of target> <name> <target>   symlink inside the dataset
 *   d <files> <bytes> <sha256 of object> <name>   folder; totals of all that is below it
 *   c <files> <bytes> <sha256 of object>    chunk: of a folder with more than 1,024 entries, whose object is such lines only
 *
 * Sorted by the raw bytes of the name. Names are percent-encoded (`encodeName`). Times, owners and modes are no part of it.
 */

/** `checksum` is 64 hex digits, as `sha256sum` prints them; `size` is in bytes; `name` is encoded. */
export type FileEntry = { kind: 'file'; name: string; size: number; checksum: string; executable: boolean };
/** `target` is encoded like a name, `/` as itself; `size` is its length and `checksum` the SHA-256 of its raw bytes. */
export type LinkEntry = { kind: 'link'; name: string; size: number; checksum: string; target: string };
/** `digest` (`sha256:<hex>`) names the folder's own object; `files` and `bytes` count files and symlinks at any depth below it. */
export type FolderEntry = { kind: 'folder'; name: string; files: number; bytes: number; digest: string };
export type ChunkEntry = { kind: 'chunk'; files: number; bytes: number; digest: string };
export type NamedEntry = FileEntry | LinkEntry | FolderEntry;
/** A tree object has either named entries or chunks. */
export type TreeEntry = NamedEntry | ChunkEntry;

/** Reads the text of an object by its digest. Whoever fetches it from elsewhere compares the digest: this module does not hash. */
export type LoadTree = (digest: string) => Promise<string>;

/** Something that is not a tree object of this format. Its message names the line and the rule. */
export class TreeFormatError extends Error {
  override name = 'TreeFormatError';
}

const HEADER = 'berth-tree 1\n';
/** A folder with more entries than this is cut into chunks; no chunk has more of them either. */
export const MOST_ENTRIES = 1024;
/** One name in so many ends a chunk. */
const CHUNK_MASK = 0xff;

// ---- Names

const ESCAPES = Array.from({ length: 256 }, (_, byte) =>
  byte >= 0x21 && byte <= 0x7e && byte !== 0x25 ? String.fromCharCode(byte) : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`,
);
const PLAIN = /^[\x21-\x24\x26-\x7e]*$/;
const ENCODED = /^(?:[\x21-\x24\x26-\x7e]|%(?:[01][0-9A-F]|2[05]|7F|[89A-F][0-9A-F]))+$/;

/** Raw bytes of a name, path or link target as printable ASCII: all but 0x21-0x7e, and `%` itself, as %XX. */
export function encodeName(raw: Uint8Array): string {
  const text = Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength).toString('latin1');
  if (PLAIN.test(text)) return text;
  let encoded = '';
  for (const byte of raw) encoded += ESCAPES[byte];
  return encoded;
}

/** The raw bytes of what `encodeName` made. Throws TreeFormatError for anything that it would not have made. */
export function decodeName(encoded: string): Buffer {
  if (PLAIN.test(encoded)) return Buffer.from(encoded, 'latin1');
  if (!ENCODED.test(encoded)) throw new TreeFormatError(`not an encoded name: ${JSON.stringify(encoded.slice(0, 200))}`);
  return Buffer.from(
    encoded.replaceAll(/%(..)/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16))),
    'latin1',
  );
}

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** An encoded name or path for people: as UTF-8 where it is that and has no control characters, else as it is. */
export function displayPath(encoded: string): string {
  if (!encoded.includes('%')) return encoded;
  try {
    const text = UTF8.decode(decodeName(encoded));
    return /\p{Cc}|\p{Cf}|\p{Zl}|\p{Zp}/u.test(text) ? encoded : text;
  } catch {
    return encoded;
  }
}

/** The order of a tree object's lines: by raw bytes. */
export function compareNames(a: string, b: string): number {
  if (a === b) return 0;
  if (a.includes('%') || b.includes('%')) return Buffer.compare(decodeName(a), decodeName(b));
  return a < b ? -1 : 1;
}

// ---- Encoding

export type TreeWriter = {
  /** 64 hex digits of the SHA-256 of an ASCII text. */
  sha256: (text: string) => string;
  /** Called once for each object, those of a folder's chunks before its own. */
  write: (digest: string, text: string) => void;
};
export type TreeTotals = { digest: string; files: number; bytes: number };

/** Writes the objects of one folder. `entries` come in the order of `compareNames`, else TreeFormatError; they are not kept. */
export function encodeTree(entries: Iterable<NamedEntry>, writer: TreeWriter): TreeTotals {
  const total = { files: 0, bytes: 0 };
  const chunks: TreeTotals[] = [];
  // What is not in a chunk yet, and where among it a chunk ends that is written as soon as it is sure that chunks are needed.
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
    if (last !== null && compareNames(last, entry.name) >= 0) throw new TreeFormatError(`not in order: ${entry.name} after ${last}`);
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
  if (entry.kind === 'folder') return `d ${entry.files} ${entry.bytes} ${entry.digest.slice(7)} ${entry.name}\n`;
  if (entry.kind === 'link') return `l ${entry.size} ${entry.checksum} ${entry.name} ${entry.target}\n`;
  return `${entry.executable ? 'x' : 'f'} ${entry.size} ${entry.checksum} ${entry.name}\n`;
}

/** By the name alone, so that an added or removed neighbour moves no other cut (FNV-1a, then mixed: its low bits alone are poor). */
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
 * The entries of an object, in order. It crosses the network and names files to be made, so everything is checked: the form
 * of each line, that a name is one (no `/`, `.`, `..`, NUL), order, no duplicates. Throws TreeFormatError.
 */
export function decodeTree(text: string): TreeEntry[] {
  if (!text.startsWith(HEADER)) throw new TreeFormatError(`does not begin with ${JSON.stringify(HEADER)}`);
  if (!text.endsWith('\n')) throw new TreeFormatError('the last line has no end');
  const entries: TreeEntry[] = [];
  let last: string | null = null;
  for (let from = HEADER.length, number = 2; from < text.length; number++) {
    const to = text.indexOf('\n', from);
    const entry = decodeLine(text.slice(from, to), number);
    from = to + 1;
    if (entry.kind === 'chunk' ? last !== null : entries[0]?.kind === 'chunk')
      throw new TreeFormatError(`line ${number}: chunks and entries are mixed`);
    if (entry.kind !== 'chunk') {
      if (last !== null && compareNames(last, entry.name) >= 0) throw new TreeFormatError(`line ${number}: names are not in order`);
      last = entry.name;
    }
    entries.push(entry);
  }
  if (last !== null && entries.length > MOST_ENTRIES) throw new TreeFormatError(`more than ${MOST_ENTRIES} entries that are not in chunks`);
  return entries;
}

function decodeLine(line: string, number: number): TreeEntry {
  const refuse = (rule: string): never => {
    throw new TreeFormatError(`line ${number}: ${rule}: ${JSON.stringify(line.slice(0, 200))}`);
  };
  const count = (digits = ''): number => (Number.isSafeInteger(Number(digits)) ? Number(digits) : refuse('the number is too large'));
  const encoded = (name = ''): string => (ENCODED.test(name) && !name.includes('%00') ? name : refuse('not an encoded name'));
  const named = (name = ''): string =>
    name === '.' || name === '..' || name.includes('/') ? refuse('not a name of a file') : encoded(name);

  const leaf = LEAF.exec(line);
  if (leaf !== null)
    return { kind: 'file', name: named(leaf[4]), size: count(leaf[2]), checksum: leaf[3] ?? '', executable: leaf[1] === 'x' };
  const folder = FOLDER.exec(line);
  if (folder !== null)
    return { kind: 'folder', name: named(folder[4]), files: count(folder[1]), bytes: count(folder[2]), digest: `sha256:${folder[3]}` };
  const link = LINK.exec(line);
  if (link !== null) {
    const entry: LinkEntry = {
      kind: 'link',
      name: named(link[3]),
      size: count(link[1]),
      checksum: link[2] ?? '',
      target: encoded(link[4]),
    };
    return decodeName(entry.target).length === entry.size ? entry : refuse('the size is not that of the target');
  }
  const chunk = CHUNK.exec(line);
  if (chunk !== null) return { kind: 'chunk', files: count(chunk[1]), bytes: count(chunk[2]), digest: `sha256:${chunk[3]}` };
  return refuse('not a line of a tree object');
}

// ---- Reading whole trees

/** `path` is encoded, `/` between names, none at the front; no part of it is `.` or `..`. */
export type TreeLeaf = { path: string; entry: NamedEntry };

/**
 * Every file and symlink below `root`, and each folder that holds nothing (all other folders follow from the paths), in
 * order, folder by folder. Holds one object for each level. Rejects with TreeFormatError, or with what `load` rejects with.
 */
export async function* walkTree(root: string, load: LoadTree, under = ''): AsyncGenerator<TreeLeaf> {
  for await (const part of entriesOf(await folderOf(root, load), NONE, load)) yield* leavesOf(part, load, under);
}
const NONE: ReadonlySet<string> = new Set();

async function* leavesOf(entries: readonly NamedEntry[], load: LoadTree, under: string): AsyncGenerator<TreeLeaf> {
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

/** As the history shows it. `size` and `checksum` are null of what was removed, `previous_checksum` of what was added. */
export type TreeChange = {
  path: string;
  change: 'added' | 'modified' | 'removed';
  size: number | null;
  checksum: string | null;
  previous_checksum: string | null;
};

/**
 * The files and symlinks in which two trees differ, each path once but where a file took the place of a folder or the other
 * way round; null is the tree without anything. Folders are not rows. What has equal digests is never loaded.
 */
export async function* diffTrees(oldRoot: string | null, newRoot: string | null, load: LoadTree, under = ''): AsyncGenerator<TreeChange> {
  if (oldRoot === newRoot) return;
  const [oldFolder, newFolder] = [await folderOf(oldRoot, load), await folderOf(newRoot, load)];
  const shared = sharedChunks(oldFolder, newFolder);
  const [olds, news] = [await cursorOf(oldFolder, shared, load), await cursorOf(newFolder, shared, load)];
  for (;;) {
    const [was, is] = [olds.entry(), news.entry()];
    if (was === null && is === null) return;
    const order = was === null ? 1 : is === null ? -1 : compareNames(was.name, is.name);
    const [gone, come] = [order <= 0 ? was : null, order >= 0 ? is : null];
    const path = under + (come ?? gone)?.name;
    const [oldLeaf, newLeaf] = [leafOf(gone), leafOf(come)];
    const previous_checksum = oldLeaf?.checksum ?? null;
    if (oldLeaf !== null && newLeaf === null) yield { path, change: 'removed', size: null, checksum: null, previous_checksum };
    const [from, to] = [digestOf(gone), digestOf(come)];
    if (from !== to) yield* diffTrees(from, to, load, `${path}/`);
    if (newLeaf !== null && (oldLeaf === null || !sameLeaf(oldLeaf, newLeaf))) {
      const { size, checksum } = newLeaf;
      yield { path, change: oldLeaf === null ? 'added' : 'modified', size, checksum, previous_checksum };
    }
    // Awaited only where there is something to wait for: most of a walk is here.
    if (gone !== null && olds.next()) await olds.more();
    if (come !== null && news.next()) await news.more();
  }
}

type Leaf = Exclude<NamedEntry, { kind: 'folder' }>;
const leafOf = (entry: NamedEntry | null): Leaf | null => (entry === null || entry.kind === 'folder' ? null : entry);
const digestOf = (entry: NamedEntry | null): string | null => (entry?.kind === 'folder' ? entry.digest : null);

/** Of two of one name. */
function sameLeaf(a: Leaf, b: Leaf): boolean {
  if (a.size !== b.size || a.checksum !== b.checksum) return false;
  return a.kind === 'link' ? b.kind === 'link' && a.target === b.target : b.kind === 'file' && a.executable === b.executable;
}

type Folder = { root: string; entries: TreeEntry[] };
const folderOf = async (root: string | null, load: LoadTree): Promise<Folder | null> =>
  root === null ? null : { root, entries: decodeTree(await load(root)) };

type Cursor = {
  /** null: there are no more. */
  entry(): NamedEntry | null;
  /** True: what follows is not loaded yet, and `more` loads it. */
  next(): boolean;
  more(): Promise<void>;
};

async function cursorOf(folder: Folder | null, skip: ReadonlySet<string>, load: LoadTree): Promise<Cursor> {
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

/** A folder's entries in order, all at once or a chunk at a time, but for the chunks in `skip`; no part is empty. */
async function* entriesOf(folder: Folder | null, skip: ReadonlySet<string>, load: LoadTree): AsyncGenerator<NamedEntry[]> {
  if (folder === null) return;
  const plain = folder.entries.filter((entry) => entry.kind !== 'chunk');
  if (plain.length > 0) yield plain;
  let last: string | undefined;
  for (const entry of folder.entries) {
    if (entry.kind !== 'chunk' || skip.has(entry.digest)) continue;
    const entries = await entriesOfChunk(entry.digest, load);
    const [first] = entries;
    // Else one name could be a symlink here and a folder there, which would be made where the symlink leads.
    if (last !== undefined && first !== undefined && compareNames(last, first.name) >= 0)
      throw new TreeFormatError(`names are not in order from chunk to chunk of ${folder.root}`);
    last = entries.at(-1)?.name ?? last;
    if (entries.length > 0) yield entries;
  }
}

async function entriesOfChunk(digest: string, load: LoadTree): Promise<NamedEntry[]> {
  return decodeTree(await load(digest)).map((entry) => {
    if (entry.kind === 'chunk') throw new TreeFormatError(`${digest} is a chunk and has chunks`);
    return entry;
  });
}

/** A chunk holds its names, so one that stands in both folders holds nothing that differs. */
function sharedChunks(a: Folder | null, b: Folder | null): Set<string> {
  const there = new Set(chunksOf(b));
  return new Set(chunksOf(a).filter((digest) => there.has(digest)));
}
const chunksOf = (folder: Folder | null): string[] =>
  folder === null ? [] : folder.entries.flatMap((entry) => (entry.kind === 'chunk' ? [entry.digest] : []));
