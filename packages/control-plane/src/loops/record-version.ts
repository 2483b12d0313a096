/**
 * Writes what makes a new version, before it shows: the tree objects that are new, and a line of history for each file that
 * differs. Both come from one walk along what differs from the version before; nothing equal is looked at. In small batches with
 * a turn for others between, since the embedded database has one writer and no turn to spare.
 */
import { createHash } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { diffTrees } from '@berth/wire/tree';
import type { DatasetStore, HistoryEntry, ScanClaim, TreeObject } from '../domain/dataset-stores.ts';

/** A millisecond or so each: whoever asks the API meanwhile waits for one of them at most. */
const ROWS = 60;
const OBJECTS = 32;
const OBJECT_BYTES = 32 * 1024;
/** Longest work between two turns of others. */
const TURN_MS = 2;
/** Others get as long to themselves as the work before took, and so many times as long where they had something to do. */
const GIVEN_WAY = 4;
const MOST_PAUSE_MS = 60;
/** Of the time that others had: they were there. */
const OTHERS = 0.05;

/** `began`: the work since then is over, and others' turn comes. */
async function giveWay(began: number): Promise<void> {
  const worked = Math.min(performance.now() - began, MOST_PAUSE_MS / GIVEN_WAY);
  const before = performance.eventLoopUtilization();
  await pause(worked);
  if (performance.eventLoopUtilization(before).utilization > OTHERS) await pause((GIVEN_WAY - 1) * worked);
}

/** `objects` reads what the scan made. False: the claim is lost. Rejects when aborted. */
export async function recordVersion(
  store: DatasetStore,
  claim: ScanClaim,
  { version, manifest_digest }: { version: number; manifest_digest: string },
  objects: (digest: string) => Promise<string>,
  signal: AbortSignal,
): Promise<boolean> {
  const { dataset } = claim;
  await store.clearUnfinished(claim);
  let rows: HistoryEntry[] = [];
  let trees: TreeObject[] = [];
  let bytes = 0;

  async function load(digest: string): Promise<string> {
    const known = (await store.trees(dataset.id, [digest])).get(digest);
    if (known !== undefined) return known;
    const text = await objects(digest);
    // It is what versions are proven by: nothing gets in under another name.
    const found = `sha256:${createHash('sha256').update(text, 'latin1').digest('hex')}`;
    if (found !== digest) throw new Error(`the tree object ${digest} reads as ${found}`);
    trees.push({ digest, text });
    bytes += text.length;
    return text;
  }
  async function flush(all: boolean): Promise<boolean> {
    signal.throwIfAborted();
    if (trees.length > 0 && (all || trees.length >= OBJECTS || bytes >= OBJECT_BYTES)) {
      if (!(await store.putTrees(claim, trees))) return false;
      [trees, bytes] = [[], 0];
    }
    if (rows.length > 0 && (all || rows.length >= ROWS)) {
      if (!(await store.putHistory(claim, version, rows))) return false;
      rows = [];
    }
    return true;
  }

  // An empty dataset has nothing to walk, but its own object.
  await load(manifest_digest);
  let turn = performance.now();
  for await (const change of diffTrees(dataset.manifest_digest, manifest_digest, load)) {
    rows.push(change);
    if (!(await flush(false))) return false;
    if (performance.now() - turn < TURN_MS) continue;
    await giveWay(turn);
    turn = performance.now();
  }
  return flush(true);
}
