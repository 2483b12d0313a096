/**
 * Tree objects of one scan, in two files. `objects` contains the texts one after the other. `index`
 * is sorted by digest and contains 44 bytes for each object: digest, offset, length. The child
 * process writes the files, and the control plane reads them.
 */
import { hash } from 'node:crypto';
import { closeSync, openSync, writeFileSync, writeSync } from 'node:fs';
import { open, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { TreeWriter } from '@berth/wire/tree';
import type { ScannedTrees } from '../domain/data/scan.ts';

const ROW = 44;
const FLUSH_AT = 1024 * 1024;

export function createTreeFiles(dir: string): TreeWriter & { finish(): void } {
  const fd = openSync(join(dir, 'objects'), 'w');
  let rows = Buffer.allocUnsafe(1024 * ROW);
  let count = 0;
  let texts: string[] = [];
  let length = 0;
  let flushed = 0;
  const flush = (): void => {
    const data = Buffer.from(texts.join(''), 'latin1');
    for (let done = 0; done < data.length; )
      done += writeSync(fd, data, done, data.length - done, flushed + done);
    flushed += data.length;
    texts = [];
  };
  return {
    sha256: (text) => hash('sha256', text, 'hex'),
    write(digest, text) {
      if ((count + 1) * ROW > rows.length)
        rows = Buffer.concat([rows, Buffer.allocUnsafe(rows.length)]);
      rows.write(digest.slice(7), count * ROW, 'hex');
      rows.writeDoubleLE(length, count * ROW + 32);
      rows.writeUInt32LE(text.length, count * ROW + 40);
      count++;
      texts.push(text);
      length += text.length;
      if (length - flushed >= FLUSH_AT) flush();
    },
    finish() {
      flush();
      closeSync(fd);
      writeFileSync(join(dir, 'index'), sortRows(rows.subarray(0, count * ROW)));
    },
  };
}

function sortRows(rows: Buffer): Buffer {
  const order = Uint32Array.from({ length: rows.length / ROW }, (_, i) => i * ROW);
  order.sort((a, b) => rows.compare(rows, b, b + 32, a, a + 32));
  const sorted = Buffer.allocUnsafe(rows.length);
  for (const [i, at] of order.entries()) rows.copy(sorted, i * ROW, at, at + ROW);
  return sorted;
}

/** Opens the files that a scan wrote to `dir`. `dispose` removes the folder. */
export async function openTreeFiles(dir: string): Promise<ScannedTrees> {
  const rows = await readFile(join(dir, 'index'));
  const file = await open(join(dir, 'objects'), 'r');
  return {
    async objects(digest) {
      const wanted = Buffer.from(digest.slice(7), 'hex');
      let [low, high] = [0, rows.length / ROW];
      while (low < high) {
        const middle = (low + high) >>> 1;
        if (rows.compare(wanted, 0, 32, middle * ROW, middle * ROW + 32) < 0) low = middle + 1;
        else high = middle;
      }
      const at = low * ROW;
      if (at >= rows.length || !rows.subarray(at, at + 32).equals(wanted))
        throw new Error(`the scan wrote no tree object ${digest}`);
      const text = Buffer.alloc(rows.readUInt32LE(at + 40));
      const { bytesRead } = await file.read(text, 0, text.length, rows.readDoubleLE(at + 32));
      if (bytesRead !== text.length)
        throw new Error(`the tree object ${digest} in ${dir} is truncated`);
      return text.toString('latin1');
    },
    async dispose() {
      await file.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
