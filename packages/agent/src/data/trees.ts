/** Tree objects of datasets (wire/tree.ts): fetched once, kept by digest beside the versions, checked whenever they are read. */
import { createHash } from 'node:crypto';
import { readdir, readFile, rmdir, stat, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { decodeTree, TreeFormatError } from '@berth/wire/tree';
import { TaskFailure } from '../tools/failures.ts';
import { inParallel, orNull, UNNAMED, writeWhole } from './disk.ts';
import type { Layout } from './layout.ts';

export type Trees = {
  /** The text of an object; fetched again when it is gone from the disk or damaged there. */
  load(datasetId: string, digest: string): Promise<string>;
  /** Fetches what is not here of all that is below `root`, level by level. TaskFailure dataset_copy_failed when the control plane has it not. */
  complete(datasetId: string, root: string, signal: AbortSignal): Promise<void>;
  /** Removes all objects but those below `roots`. */
  prune(datasetId: string, roots: readonly string[]): Promise<void>;
};
/** POST /api/agent/datasets/:id/trees. */
export type FetchTrees = (datasetId: string, digests: readonly string[], signal: AbortSignal) => Promise<Record<string, string>>;

/** Fewer than may be asked for at once (256): an object has up to 1,024 lines. */
const AT_ONCE = 64;
const FETCH_MS = 60_000;

export function createTrees(layout: Layout, fetch: FetchTrees): Trees {
  const pathOf = (datasetId: string, digest: string): string => {
    if (!/^sha256:[0-9a-f]{64}$/.test(digest)) throw new TreeFormatError(`not a digest: ${JSON.stringify(digest.slice(0, 100))}`);
    return join(layout.trees(datasetId), digest.slice(7, 9), digest.slice(7));
  };
  /** Null: not here, or damaged, which is the same. */
  async function read(datasetId: string, digest: string): Promise<string | null> {
    const text = await orNull(readFile(pathOf(datasetId, digest), 'latin1'));
    return text !== null && digestOf(text) === digest ? text : null;
  }
  async function bring(datasetId: string, digests: readonly string[], signal: AbortSignal): Promise<string[]> {
    const objects = await fetch(datasetId, digests, signal);
    const texts: string[] = [];
    for (const digest of digests) {
      const text = objects[digest];
      if (text === undefined || digestOf(text) !== digest)
        throw new TaskFailure('dataset_copy_failed', `the control plane has no good tree object ${digest} of dataset ${datasetId}`);
      await writeWhole(pathOf(datasetId, digest), text);
      texts.push(text);
    }
    return texts;
  }
  /** Calls `onObject` for each digest below `root` once, and goes on below what it gives. */
  async function descend(root: string, textsOf: (digests: readonly string[]) => Promise<string[]>): Promise<Set<string>> {
    const seen = new Set([root]);
    for (let level = [root]; level.length > 0; ) {
      const below: string[] = [];
      for (let i = 0; i < level.length; i += AT_ONCE) {
        for (const text of await textsOf(level.slice(i, i + AT_ONCE))) {
          for (const entry of decodeTree(text)) {
            if ((entry.kind !== 'folder' && entry.kind !== 'chunk') || seen.has(entry.digest)) continue;
            seen.add(entry.digest);
            below.push(entry.digest);
          }
        }
      }
      level = below;
    }
    return seen;
  }

  return {
    async load(datasetId, digest) {
      const text = await read(datasetId, digest);
      return text ?? (await bring(datasetId, [digest], AbortSignal.timeout(FETCH_MS)))[0] ?? '';
    },
    async complete(datasetId, root, signal) {
      await descend(root, async (digests) => {
        signal.throwIfAborted();
        const here = await Promise.all(digests.map((digest) => read(datasetId, digest)));
        const unknown = digests.filter((_, i) => here[i] === null);
        const texts = here.filter((text) => text !== null);
        return unknown.length === 0 ? texts : [...texts, ...(await bring(datasetId, unknown, signal))];
      });
    },
    async prune(datasetId, roots) {
      const keep = new Set<string>();
      for (const root of roots) {
        const below = await descend(root, async (digests) =>
          (await Promise.all(digests.map((digest) => read(datasetId, digest)))).filter((text) => text !== null),
        );
        for (const digest of below) keep.add(digest.slice(7));
      }
      const folder = layout.trees(datasetId);
      for (const part of (await orNull(readdir(folder))) ?? []) {
        const names = (await orNull(readdir(join(folder, part)))) ?? [];
        await inParallel(names, 16, async (name) => {
          const path = join(folder, part, name);
          if (!keep.has(name) && !(await isBeingWritten(path))) await orNull(unlink(path));
        });
        if (!names.some((name) => keep.has(name))) await rmdir(join(folder, part)).catch(() => undefined);
      }
    },
  };
}

const WRITE_MS = 60_000;
/** It has not got its name yet: of a copy that fetches it in this moment. */
async function isBeingWritten(path: string): Promise<boolean> {
  return path.endsWith(UNNAMED) && Date.now() - ((await orNull(stat(path)))?.mtimeMs ?? 0) < WRITE_MS;
}

const digestOf = (text: string): string => `sha256:${createHash('sha256').update(text, 'latin1').digest('hex')}`;
