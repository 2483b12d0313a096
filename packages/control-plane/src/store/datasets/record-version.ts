/**
 * Writes what makes a new version, before it shows: the tree objects that are new, and a line of history for each file that
 * differs. Both come from one walk along what differs from the version before; nothing equal is looked at. In small batches, since
 * the embedded engine has one writer: whoever else writes waits for one of them at most. Where it runs with SQLite: recording.ts.
 */
import { createHash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { promisify } from 'node:util';
import { deflate } from 'node:zlib';
import { diffTrees } from '@berth/wire/tree';
import { sql } from 'kysely';
import type { HistoryEntry, ScanClaim, TreeObject, VersionContent } from '../../domain/dataset-stores.ts';
import type { Tx } from '../engine/tables.ts';
import { isClaimed } from './dataset-claims.ts';
import { deleteHistory, historyVersions } from './dataset-cleaning.ts';
import { readTrees, treeRow } from './dataset-trees.ts';
import type { Doors } from '../engine/doors.ts';
import { pathColumns } from './history-path.ts';
import type { NewRow } from '../engine/tables.ts';

/** Half a millisecond or so each. */
const ROWS = 30;
const OBJECTS = 32;
const OBJECT_BYTES = 32 * 1024;
/** Work between two turns of others, but for a step that takes longer. */
const TURN_MS = 0.25;

export type Recording = { claim: ScanClaim; content: VersionContent };

/** What depends on where it runs. */
export type Manner = {
  deflated: (text: string) => Promise<Buffer>;
  /** Gives others their turn, after so much work; called where no lock is held. */
  rest: (workedMs: number) => Promise<void>;
};

/** Among everything else that the process does. */
export const AMONG_OTHERS: Manner = { deflated: promisify<string, Buffer>(deflate), rest: () => nextTurn() };

/** `objects` reads what the scan made. False: the claim is lost. Rejects when aborted. */
export async function recordVersion(
  db: Doors,
  { claim, content }: Recording,
  objects: (digest: string) => Promise<string>,
  signal: AbortSignal,
  { deflated, rest }: Manner,
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
    const known = (await readTrees(db.kysely, dataset.id, [digest])).get(digest);
    await breathe();
    if (known !== undefined) return known;
    const text = await objects(digest);
    // It is what versions are proven by: nothing gets in under another name.
    const found = `sha256:${createHash('sha256').update(text, 'latin1').digest('hex')}`;
    if (found !== digest) throw new Error(`the tree object ${digest} reads as ${found}`);
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
  // An empty dataset has nothing to walk, but its own object.
  await load(content.manifest_digest);
  for await (const change of diffTrees(dataset.manifest_digest, content.manifest_digest, load)) {
    rows.push(change);
    if (!(await flush(false))) return false;
  }
  return flush(true);
}

/** Removes what an attempt that did not end has left. */
async function clearUnfinished(db: Doors, claim: ScanClaim, signal: AbortSignal, rest: Manner['rest']): Promise<void> {
  const { id } = claim.dataset;
  const shown = await db.kysely.selectFrom('dataset_versions').select('version').where('dataset_id', '=', id).execute();
  const isShown = new Set(shown.map((row) => row.version));
  const guard = async (tx: Tx): Promise<boolean> => {
    signal.throwIfAborted();
    return isClaimed(db, tx, claim);
  };
  for (const version of await historyVersions(db, id)) if (!isShown.has(version)) await deleteHistory(db, id, version, guard, rest);
}

/** May be lost with the machine until `finishScan`, which is waited for, brings it to the disk too. False: the claim is lost. */
const underClaim = (db: Doors, claim: ScanClaim, run: (tx: Tx) => Promise<unknown>): Promise<boolean> =>
  db.writeUnsynced(async (tx) => {
    if (!(await isClaimed(db, tx, claim))) return false;
    await run(tx);
    return true;
  });

async function putTrees(
  db: Doors,
  claim: ScanClaim,
  objects: readonly TreeObject[],
  deflated: Manner['deflated'],
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

function putHistory(db: Doors, claim: ScanClaim, version: number, entries: readonly HistoryEntry[]): Promise<boolean> {
  const rows = entries.map(({ path, change, size, checksum, previous_checksum }) => {
    const columns = pathColumns(path);
    return [columns.path, columns.long_path, change, size, checksum, previous_checksum];
  });
  return underClaim(db, claim, (tx) =>
    // One parameter and one text: to put together a statement for so many rows takes longer than to run it.
    sql`
      insert into dataset_history (dataset_id, version, path, long_path, change, size, checksum, previous_checksum)
      select ${claim.dataset.id}, ${version}, value ->> 0, value ->> 1, value ->> 2, cast(value ->> 3 as bigint), value ->> 4, value ->> 5
      from ${db.capabilities.elements(JSON.stringify(rows))}`.execute(tx),
  );
}
