/**
 * Tree objects of datasets (wire/tree.ts). They are fetched once, stored by digest beside the
 * versions, and checked at each read.
 */
import { createHash } from 'node:crypto';
import { readdir, readFile, rmdir, stat, unlink } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { isTemporary } from '@berth/kit/write-file';
import { decodeTree, TreeFormatError } from '@berth/wire/tree';
import { TaskFailure } from '../failures.ts';
import { inParallel, nullIfMissing, writeWhole } from '../file-system.ts';
import type { Layout } from './layout.ts';

export type Trees = {
  /**
   * Returns the text of an object. Fetches the object again if it is missing or damaged on disk.
   */
  load(datasetId: string, digest: string): Promise<string>;
  /**
   * Fetches all missing objects below `root`, level by level. Throws TaskFailure
   * dataset_copy_failed if the control plane does not have an object.
   */
  complete(datasetId: string, root: string, signal: AbortSignal): Promise<void>;
  /** Removes all objects except those below `roots`. */
  prune(datasetId: string, roots: readonly string[]): Promise<void>;
};
/** Calls POST /api/agent/datasets/:id/trees. */
export type FetchTrees = (
  datasetId: string,
  digests: readonly string[],
  signal: AbortSignal,
) => Promise<Record<string, string>>;

/** Objects per request; the API allows 256. An object has up to 1,024 lines. */
const BATCH = 64;
const FETCH_MS = 60_000;

export function createTrees(layout: Layout, fetch: FetchTrees): Trees {
  const pathOf = (datasetId: string, digest: string): string => {
    if (!/^sha256:[0-9a-f]{64}$/.test(digest))
      throw new TreeFormatError(`not a digest: ${JSON.stringify(digest.slice(0, 100))}`);
    return join(layout.trees(datasetId), digest.slice(7, 9), digest.slice(7));
  };
  /** Returns the text of an object; null if it is missing or damaged. */
  async function read(datasetId: string, digest: string): Promise<string | null> {
    const text = await nullIfMissing(readFile(pathOf(datasetId, digest), 'latin1'));
    return text !== null && digestOf(text) === digest ? text : null;
  }
  async function fetchMissing(
    datasetId: string,
    digests: readonly string[],
    signal: AbortSignal,
  ): Promise<string[]> {
    const objects = await fetch(datasetId, digests, signal);
    const texts: string[] = [];
    for (const digest of digests) {
      const text = objects[digest];
      if (text === undefined || digestOf(text) !== digest)
        throw new TaskFailure(
          'dataset_copy_failed',
          `the control plane sent no valid tree object ${digest} of dataset ${datasetId}`,
        );
      await writeWhole(pathOf(datasetId, digest), text);
      texts.push(text);
    }
    return texts;
  }
  /**
   * Returns all digests below `root` without duplicates. `textsOf` returns the objects of one
   * batch.
   */
  async function descend(
    root: string,
    textsOf: (digests: readonly string[]) => Promise<string[]>,
  ): Promise<Set<string>> {
    const seen = new Set([root]);
    for (let level = [root]; level.length > 0; ) {
      const below: string[] = [];
      for (let i = 0; i < level.length; i += BATCH) {
        for (const text of await textsOf(level.slice(i, i + BATCH))) {
          for (const entry of decodeTree(text)) {
            if ((entry.kind !== 'folder' && entry.kind !== 'chunk') || seen.has(entry.digest))
              continue;
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
      return (
        text ?? (await fetchMissing(datasetId, [digest], AbortSignal.timeout(FETCH_MS)))[0] ?? ''
      );
    },
    async complete(datasetId, root, signal) {
      await descend(root, async (digests) => {
        signal.throwIfAborted();
        const here = await Promise.all(digests.map((digest) => read(datasetId, digest)));
        const missing = digests.filter((_, i) => here[i] === null);
        const texts = here.filter((text) => text !== null);
        return missing.length === 0
          ? texts
          : [...texts, ...(await fetchMissing(datasetId, missing, signal))];
      });
    },
    async prune(datasetId, roots) {
      const needed = new Set<string>();
      for (const root of roots) {
        const below = await descend(root, async (digests) =>
          (await Promise.all(digests.map((digest) => read(datasetId, digest)))).filter(
            (text) => text !== null,
          ),
        );
        for (const digest of below) needed.add(digest.slice(7));
      }
      const folder = layout.trees(datasetId);
      for (const part of (await nullIfMissing(readdir(folder))) ?? []) {
        const names = (await nullIfMissing(readdir(join(folder, part)))) ?? [];
        await inParallel(names, 16, async (name) => {
          const path = join(folder, part, name);
          if (!needed.has(name) && !(await isBeingWritten(path))) await nullIfMissing(unlink(path));
        });
        if (!names.some((name) => needed.has(name)))
          await rmdir(join(folder, part)).catch(() => undefined);
      }
    },
  };
}

const WRITE_MS = 60_000;
/** Tells whether a running copy is writing this object. */
async function isBeingWritten(path: string): Promise<boolean> {
  return (
    isTemporary(basename(path)) &&
    Date.now() - ((await nullIfMissing(stat(path)))?.mtimeMs ?? 0) < WRITE_MS
  );
}

const digestOf = (text: string): string =>
  `sha256:${createHash('sha256').update(text, 'latin1').digest('hex')}`;
