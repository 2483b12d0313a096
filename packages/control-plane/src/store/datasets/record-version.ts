/**
 * Writes a new version before it becomes visible: new tree objects, and one row of history for each
 * changed file. One walk compares the version with the previous one. It finds both, and skips the
 * folders that did not change. The embedded engine has one writer, so batches are small: a second
 * writer waits for at most one batch. With SQLite this runs in a separate thread (recording.ts).
 */
import { createHash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { promisify } from 'node:util';
import { deflate } from 'node:zlib';
import { diffTrees } from '@berth/wire/tree';
import { sql } from 'kysely';
import type {
  HistoryEntry,
  ScanClaim,
  TreeObject,
  VersionContent,
} from '../../domain/data/dataset-stores.ts';
import type { Tx } from '../engine/tables.ts';
import { isClaimed } from './dataset-claims.ts';
import { deleteHistory, historyVersions } from './dataset-cleaning.ts';
import { readTrees, treeRow } from './dataset-trees.ts';
import type { Connection } from '../engine/connection.ts';
import { pathColumns } from './history-path.ts';
import type { NewRow } from '../engine/tables.ts';

/** Batch limits. Writing a batch takes about 0.5 ms. */
const ROWS = 30;
const OBJECTS = 32;
const OBJECT_BYTES = 32 * 1024;
/** Work in ms between two yields; a single step can take longer. */
const TURN_MS = 0.25;

export type Recording = { claim: ScanClaim; content: VersionContent };

/** Functions that differ between the threads in which a recording can run. */
export type ThreadOptions = {
  deflated: (text: string) => Promise<Buffer>;
  /** Yields after `workedMs` of work. Called while no lock is held. */
  rest: (workedMs: number) => Promise<void>;
};

/** Options for recordings in the main thread of the control plane. */
export const MAIN_THREAD: ThreadOptions = {
  deflated: promisify<string, Buffer>(deflate),
  rest: () => nextTurn(),
};

/**
 * Resolves with false if the claim is lost; rejects if it is aborted. `objects`: reads the tree
 * objects of the scan.
 */
export async function recordVersion(
  db: Connection,
  { claim, content }: Recording,
  objects: (digest: string) => Promise<string>,
  signal: AbortSignal,
  { deflated, rest }: ThreadOptions,
): Promise<boolean> {
  const { dataset } = claim;
  let rows: HistoryEntry[] = [];
  let trees: TreeObject[] = [];
  let bytes = 0;
  let turn = performance.now();

  async function breathe(): Promise<void> {
    const worked = performance.now() - turn;
    if (worked < TURN_MS) return;
    await rest(worked);
    turn = performance.now();
  }
  async function load(digest: string): Promise<string> {
    const stored = (await readTrees(db.kysely, dataset.id, [digest])).get(digest);
    await breathe();
    if (stored !== undefined) return stored;
    const text = await objects(digest);
    // Digests prove the content of versions, so the text must match its digest.
    const actual = `sha256:${createHash('sha256').update(text, 'latin1').digest('hex')}`;
    if (actual !== digest) throw new Error(`the tree object ${digest} reads as ${actual}`);
    trees.push({ digest, text });
    bytes += text.length;
    await breathe();
    return text;
  }
  async function flush(all: boolean): Promise<boolean> {
    signal.throwIfAborted();
    if (trees.length > 0 && (all || trees.length >= OBJECTS || bytes >= OBJECT_BYTES)) {
      if (!(await putTrees(db, claim, trees, deflated, breathe))) return false;
      [trees, bytes] = [[], 0];
      await breathe();
    }
    if (rows.length > 0 && (all || rows.length >= ROWS)) {
      if (!(await putHistory(db, claim, content.version, rows))) return false;
      rows = [];
    }
    await breathe();
    return true;
  }

  await clearUnfinished(db, claim, signal, rest);
  // Loads the root object, because the walk does not load it for an empty dataset.
  await load(content.manifest_digest);
  for await (const change of diffTrees(dataset.manifest_digest, content.manifest_digest, load)) {
    rows.push(change);
    if (!(await flush(false))) return false;
  }
  return flush(true);
}

/** Removes the rows that unfinished recordings have left. */
async function clearUnfinished(
  db: Connection,
  claim: ScanClaim,
  signal: AbortSignal,
  rest: ThreadOptions['rest'],
): Promise<void> {
  const { id } = claim.dataset;
  const shown = await db.kysely
    .selectFrom('dataset_versions')
    .select('version')
    .where('dataset_id', '=', id)
    .execute();
  const isShown = new Set(shown.map((row) => row.version));
  const guard = async (tx: Tx): Promise<boolean> => {
    signal.throwIfAborted();
    return isClaimed(db, tx, claim);
  };
  for (const version of await historyVersions(db, id))
    if (!isShown.has(version)) await deleteHistory(db, id, version, guard, rest);
}

/**
 * Runs a transaction under the claim; resolves with false if the claim is lost. The commit is not
 * synced: a crash of the machine can undo it until the synced commit of `finishScan`.
 */
const underClaim = (
  db: Connection,
  claim: ScanClaim,
  run: (tx: Tx) => Promise<unknown>,
): Promise<boolean> =>
  db.writeUnsynced(async (tx) => {
    if (!(await isClaimed(db, tx, claim))) return false;
    await run(tx);
    return true;
  });

async function putTrees(
  db: Connection,
  claim: ScanClaim,
  objects: readonly TreeObject[],
  deflated: ThreadOptions['deflated'],
  breathe: () => Promise<void>,
): Promise<boolean> {
  const rows: NewRow<'dataset_trees'>[] = [];
  for (const object of objects) {
    rows.push(await treeRow(claim.dataset.id, object, deflated));
    await breathe();
  }
  return underClaim(db, claim, (tx) =>
    tx
      .insertInto('dataset_trees')
      .values(rows)
      .onConflict((oc) => oc.columns(['dataset_id', 'digest']).doNothing())
      .execute(),
  );
}

function putHistory(
  db: Connection,
  claim: ScanClaim,
  version: number,
  entries: readonly HistoryEntry[],
): Promise<boolean> {
  const rows = entries.map(({ path, change, size, checksum, previous_checksum }) => {
    const columns = pathColumns(path);
    return [columns.path, columns.long_path, change, size, checksum, previous_checksum];
  });
  return underClaim(db, claim, (tx) =>
    // Passes all rows in one parameter: building a statement with many parameters takes longer than
    // running it.
    sql`
      insert into dataset_history
        (dataset_id, version, path, long_path, change, size, checksum, previous_checksum)
      select ${claim.dataset.id}, ${version}, value ->> 0, value ->> 1, value ->> 2,
        cast(value ->> 3 as bigint), value ->> 4, value ->> 5
      from ${db.capabilities.jsonElements(JSON.stringify(rows))}`.execute(tx),
  );
}
