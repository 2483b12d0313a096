/**
 * Builds tree objects from a listing and the checksums of its files, folder by folder in the order
 * of the listing.
 */
import { hash } from 'node:crypto';
import { realpathSync } from 'node:fs';
import type { Skipped } from '@berth/wire/dataset';
import {
  compareNames,
  encodeName,
  encodeTree,
  type NamedEntry,
  type TreeTotals,
  type TreeWriter,
} from '@berth/wire/tree';
import {
  eachRecord,
  FILE,
  FOLDER,
  LINK,
  type Listing,
  parseFile,
  pathStart,
  SILLY,
  SNAPSHOTS,
} from './listing.ts';
import { breathe } from './scan-pace.ts';

const SLASH = 0x2f;
const MOST_SKIPPED = 100;
const OTHERS: Record<string, string> = {
  p: 'a FIFO',
  s: 'a socket',
  b: 'a block device',
  c: 'a character device',
  D: 'a door',
};

/**
 * A folder whose records are still being read. Each file is kept as name, size and number; the
 * lowest bit of the number says whether the file is executable. An object for each file would need
 * ten times the memory. Symlinks and folders are in `others`; the number of entry i is -1 - i.
 */
type Frame = {
  path: Buffer;
  name: string;
  names: string[];
  sizes: number[];
  numbers: number[];
  others: NamedEntry[];
};

export type BuiltTree = TreeTotals & { skipped: Skipped };

export async function buildTree(
  listing: Listing,
  {
    root,
    sums,
    writer,
    onRecord,
  }: { root: string; sums: Buffer; writer: TreeWriter; onRecord: (records: number) => void },
): Promise<BuiltTree> {
  const skipped: Skipped = { count: 0, first: [] };
  const frames: Frame[] = [frameOf(Buffer.alloc(0), '')];
  const skip = (path: Buffer, reason: string): void => {
    skipped.count++;
    if (skipped.first.length < MOST_SKIPPED) skipped.first.push({ path: encodeName(path), reason });
  };
  const leave = (): TreeTotals => {
    const frame = frames.pop() as Frame;
    const totals = encodeTree(entriesOf(frame, sums), writer);
    frames.at(-1)?.others.push({ kind: 'folder', name: frame.name, ...totals });
    return totals;
  };

  await eachRecord(listing, (buffer, from, to, index) => {
    onRecord(index + 1);
    const type = buffer[from];
    const start = pathStart(buffer, from);
    const end = buffer.indexOf(0, start);
    const nameStart = buffer.lastIndexOf(SLASH, end - 1) + 1;
    const [parentEnd, name] = nameStart > start ? [nameStart - 1, nameStart] : [start, start];
    const parent = buffer.subarray(start, parentEnd);
    while (frames.length > 1 && !(frames.at(-1) as Frame).path.equals(parent)) leave();
    const frame = frames.at(-1) as Frame;
    if (!frame.path.equals(parent))
      throw new Error(
        `the listing has ${encodeName(buffer.subarray(start, end))} outside its folder`,
      );

    const encoded = encodeName(buffer.subarray(name, end));
    if (type === FILE) {
      const file = parseFile(buffer, from);
      add(frame, encoded, file.size, 2 * index + (file.executable ? 1 : 0));
    } else if (type === FOLDER)
      frames.push(frameOf(Buffer.from(buffer.subarray(start, end)), encoded));
    else if (type === LINK) {
      const target = Buffer.from(buffer.subarray(end + 1, to - 1));
      const path = Buffer.from(buffer.subarray(start, end));
      const leaves = linkProblem(root, path, target);
      if (leaves !== null) skip(path, leaves);
      else
        frame.others.push({
          kind: 'link',
          name: encoded,
          size: target.length,
          checksum: hash('sha256', target, 'hex'),
          target: encodeName(target),
        });
    } else skip(buffer.subarray(start, end), reasonOf(type, buffer[from + 1]));
  });
  while (frames.length > 1) leave();
  return { ...leave(), skipped };
}

const frameOf = (path: Buffer, name: string): Frame => ({
  path,
  name,
  names: [],
  sizes: [],
  numbers: [],
  others: [],
});

function add(frame: Frame, name: string, size: number, number: number): void {
  frame.names.push(name);
  frame.sizes.push(size);
  frame.numbers.push(number);
}

/** Yields the entries of a folder in order. */
function* entriesOf(frame: Frame, sums: Buffer): Generator<NamedEntry> {
  const { names, sizes, numbers, others } = frame;
  for (const [i, entry] of others.entries()) add(frame, entry.name, 0, -1 - i);
  const order = Uint32Array.from(names, (_, i) => i).sort((a, b) =>
    compareNames(names[a] ?? '', names[b] ?? ''),
  );
  for (const i of order) {
    breathe();
    const [name = '', size = 0, number = 0] = [names[i], sizes[i], numbers[i]];
    if (number < 0) yield others[-1 - number] as NamedEntry;
    else {
      const at = 32 * Math.floor(number / 2);
      yield {
        kind: 'file',
        name,
        size,
        checksum: sums.toString('hex', at, at + 32),
        executable: number % 2 === 1,
      };
    }
  }
}

function reasonOf(type: number | undefined, other: number | undefined): string {
  if (type === SNAPSHOTS) return 'snapshots of the storage server';
  if (type === SILLY) return 'removed, but kept by NFS because a process has it open';
  return OTHERS[String.fromCharCode(other ?? 0)] ?? 'neither a file nor a folder';
}

/**
 * Returns why a symlink is not part of the dataset; null if its target is inside the dataset or
 * does not exist.
 */
function linkProblem(root: string, path: Buffer, target: Buffer): string | null {
  if (target[0] === SLASH)
    return `a symlink to an absolute path (${encodeName(target)}), which leads elsewhere on a node`;
  const outside = `a symlink that leaves the dataset (${encodeName(target)})`;
  const names = path.toString('latin1').split('/').slice(0, -1);
  for (const part of target.toString('latin1').split('/')) {
    if (part === '..' && names.pop() === undefined) return outside;
    if (part !== '..' && part !== '.' && part !== '') names.push(part);
  }
  const rootBytes = Buffer.from(`${root}/`);
  let real: Buffer;
  try {
    real = realpathSync.native(Buffer.concat([rootBytes, path]), { encoding: 'buffer' });
  } catch {
    // The target does not exist or is circular, and its path does not lead outside.
    return null;
  }
  return Buffer.concat([real, Buffer.from('/')])
    .subarray(0, rootBytes.length)
    .equals(rootBytes)
    ? null
    : outside;
}
