/** The copies of volumes (domain/data/volumes.ts). */
import type { ReportedCopy } from '@berth/wire/volume';
import type { VolumeCopy } from '../domain/data/volume-copy.ts';
import type { VolumeStore, VolumeWork } from '../domain/data/volume-store.ts';
import { DEFAULT_LIMITS } from '../domain/deployments/facts.ts';
import { presentNode } from '../domain/nodes/renamed-machine.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { Database } from './engine/database.ts';
import type { Row, Tx } from './engine/tables.ts';
import { nodeOf } from './rows/node.ts';

export const volumeCopyOf = ({
  reported_at: _,
  delete_asked_at: __,
  ...row
}: Row<'volume_copies'>): VolumeCopy => ({
  ...row,
  names: JSON.parse(row.names) as string[],
  sizes: JSON.parse(row.sizes) as VolumeCopy['sizes'],
  seen: row.seen === null ? null : (JSON.parse(row.seen) as VolumeCopy['seen']),
});

export const createVolumeStore = (db: Database): VolumeStore => ({
  ofProject: (projectId) => db.snapshot((tx) => volumesOf(tx, projectId)),
  onNode: (nodeId) => copiesOnNode(db, nodeId),
  missing: () => missingCopies(db),
  received: () => markReceived(db),
  unused: () => unusedCopies(db),
  report: (node, reported, now, removed) => reportCopies(db, node, reported, now, removed),
  requestDelete: (nodeId, copyId, now) => requestCopyDelete(db, nodeId, copyId, now),
  forget: (nodeId, copyId) => forgetCopy(db, nodeId, copyId),
});

async function copiesOnNode(db: Database, nodeId: string): Promise<VolumeCopy[]> {
  const rows = await db.kysely
    .selectFrom('volume_copies')
    .selectAll()
    .where('node_id', '=', nodeId)
    .orderBy('project')
    .orderBy('id')
    .execute();
  return rows.map(volumeCopyOf);
}

async function missingCopies(db: Database): Promise<ReadonlyMap<string, VolumeCopy[]>> {
  const rows = await db.kysely
    .selectFrom('volume_copies')
    .selectAll()
    .where('missing_since', 'is not', null)
    .where('state', 'in', ['current', 'kept'])
    .orderBy('project')
    .orderBy('id')
    .execute();
  return Map.groupBy(rows.map(volumeCopyOf), (copy) => copy.node_id);
}

async function markReceived(db: Database): Promise<string[]> {
  const rows = await db.kysely
    .selectFrom('volume_copies')
    .select('project_id')
    .distinct()
    .where('state', '=', 'incoming')
    .execute();
  return rows.map((row) => row.project_id);
}

async function unusedCopies(db: Database): Promise<ReadonlyMap<string, string>> {
  const rows = await db.kysely
    .selectFrom('volume_copies')
    .select(['node_id', 'id', 'state'])
    .where('state', 'in', ['deleting', 'left'])
    .orderBy('id')
    .execute();
  const texts = new Map<string, string>();
  for (const { node_id, id, state } of rows)
    texts.set(node_id, `${texts.get(node_id) ?? ''} ${id} ${state}`);
  return texts;
}

function reportCopies(
  db: Database,
  node: { id: string; hostname: string },
  reported: readonly ReportedCopy[],
  now: number,
  removed: readonly string[] | undefined,
): Promise<VolumeWork> {
  return db.write((tx) => compare(tx, node, { reported, removed }, now));
}

function requestCopyDelete(
  db: Database,
  nodeId: string,
  copyId: string,
  now: number,
): Promise<VolumeCopy> {
  return db.write(async (tx) => {
    const copy = await unusedCopy(db, tx, nodeId, copyId);
    const changed: VolumeCopy = { ...copy, state: 'deleting', changed_at: now };
    await putVolumes(tx, changed);
    return changed;
  });
}

function forgetCopy(db: Database, nodeId: string, copyId: string): Promise<VolumeCopy> {
  return db.write(async (tx) => {
    const copy = await unusedCopy(db, tx, nodeId, copyId);
    if ((copy.missing_since ?? null) === null)
      throw new DomainError(
        'wrong_state',
        `${copy.hostname} has these volumes; delete them without \`forget\``,
      );
    await tx.deleteFrom('volume_copies').where('id', '=', copyId).execute();
    return copy;
  });
}

/**
 * Returns a copy that is not in use. Throws not_found, and wrong_state for a copy that a project
 * uses or receives.
 */
async function unusedCopy(
  db: Database,
  tx: Tx,
  nodeId: string,
  copyId: string,
): Promise<VolumeCopy> {
  const row = await tx
    .selectFrom('volume_copies')
    .selectAll()
    .where('id', '=', copyId)
    .where('node_id', '=', nodeId)
    .$if(db.capabilities.rowLocks, (q) => q.forUpdate())
    .executeTakeFirst();
  if (row === undefined) throw new DomainError('not_found', 'the node has no such volumes');
  const copy = volumeCopyOf(row);
  if (copy.state === 'incoming')
    throw new DomainError(
      'wrong_state',
      `the volumes of ${copy.project} are being copied to here; \`berth node uncordon\` for ` +
        'the node that they leave ends the copy and deletes it',
    );
  if (copy.state === 'current')
    throw new DomainError(
      'wrong_state',
      `these are the volumes of ${copy.project}; only the deletion of the project with its ` +
        'volumes deletes them',
    );
  return copy;
}

/**
 * Compares the copies on a node with the rows, and returns the copies that the node must delete or
 * set aside.
 *
 * - The node confirms a requested deletion: the row is removed.
 * - The node reports without listing a copy: it is marked missing, and its row stays. The disk
 *   might not be mounted, and the copy reappears with it. A missing current copy also keeps a
 *   deployment from starting with an empty volume.
 * - The copy's node was deleted, or is silent while its machine is now another node that reports
 *   the copy: the copy is assigned to that node.
 */
async function compare(
  tx: Tx,
  node: { id: string; hostname: string },
  {
    reported,
    removed,
  }: { reported: readonly ReportedCopy[]; removed: readonly string[] | undefined },
  now: number,
): Promise<VolumeWork> {
  const here = await tx
    .selectFrom('volume_copies')
    .selectAll()
    .where('node_id', '=', node.id)
    .execute();
  const rows = new Map(here.map((row) => [row.id, row]));
  const copiesHere = new Map(here.map((row) => [row.id, volumeCopyOf(row)]));
  let foreign: Pick<VolumeWork, 'foreign'> = {};
  for (const { copy: id, folders } of reported) {
    const copy = copiesHere.get(id) ?? (await adopted(tx, id, node.id));
    if (copy === 'foreign') foreign = { foreign: true };
    if (copy === null || copy === 'foreign') continue;
    copiesHere.set(id, copy);
    const sizes = Object.fromEntries(
      folders.flatMap(({ name, bytes }) => (bytes === null ? [] : [[name, bytes]])),
    );
    const bytes = folders.some((f) => f.bytes === null)
      ? copy.bytes
      : folders.reduce((sum, f) => sum + (f.bytes ?? 0), 0);
    const row = rows.get(id);
    const isListed = row !== undefined && row.reported_at !== null && row.missing_since === null;
    const isSame = isListed && copy.hostname === node.hostname && copy.bytes === bytes;
    // Writes only values that the node knows: a plan might have changed the state meanwhile.
    if (!isSame || JSON.stringify(copy.sizes) !== JSON.stringify(sizes))
      await tx
        .updateTable('volume_copies')
        .set({
          node_id: node.id,
          hostname: node.hostname,
          bytes,
          sizes: JSON.stringify(sizes),
          reported_at: row?.reported_at ?? now,
          missing_since: null,
          changed_at: now,
        })
        .where('id', '=', id)
        .execute();
  }
  const present = new Set(reported.map((r) => r.copy));
  const absent = here.filter(({ id }) => !present.has(id));
  const gone = goneOf(absent, removed).map(({ id }) => id);
  if (gone.length > 0) await tx.deleteFrom('volume_copies').where('id', 'in', gone).execute();
  const missing = absent.flatMap((row) =>
    row.missing_since === null && row.reported_at !== null && !gone.includes(row.id)
      ? [row.id]
      : [],
  );
  if (missing.length > 0)
    await tx
      .updateTable('volume_copies')
      .set({ missing_since: now })
      .where('id', 'in', missing)
      .execute();
  const inPlace = new Set(reported.flatMap((r) => (r.in_place ? [r.copy] : [])));
  const all = [...copiesHere.values()];
  const remove = all.flatMap(({ id, state }) =>
    state === 'deleting' && present.has(id) ? [id] : [],
  );
  const asked = remove.filter((id) => (rows.get(id)?.delete_asked_at ?? null) === null);
  if (asked.length > 0)
    await tx
      .updateTable('volume_copies')
      .set({ delete_asked_at: now })
      .where('id', 'in', asked)
      .execute();
  return {
    ...foreign,
    remove,
    // Sets old copies aside: an older backup of this database can name such a copy as current, and
    // the project must not start with old data.
    setAside: all.flatMap(({ id, state }) => (state === 'left' && inPlace.has(id) ? [id] : [])),
  };
}

/** Returns the rows of absent copies that were deleted, or that never existed on the node. */
function goneOf(
  absent: readonly Row<'volume_copies'>[],
  removed: readonly string[] | undefined,
): Row<'volume_copies'>[] {
  const wasAsked = ({ state, delete_asked_at }: Row<'volume_copies'>): boolean =>
    state === 'deleting' && delete_asked_at !== null;
  const neverWas = ({ state, names, reported_at }: Row<'volume_copies'>): boolean =>
    reported_at === null &&
    (state === 'deleting' || ((state === 'kept' || state === 'left') && names === '[]'));
  // An agent of an older version does not confirm deletions. If other copies are absent too, its
  // disk is probably not mounted.
  const isBelieved = absent.every((row) => wasAsked(row) || row.reported_at === null);
  return absent.filter(
    (row) =>
      neverWas(row) ||
      (wasAsked(row) && (removed === undefined ? isBelieved : removed.includes(row.id))),
  );
}

/**
 * Returns the copy if it belongs to this node from now on; null if no row has this copy. `foreign`:
 * the copy belongs to another node. The machine of a silent node might have come back as this node
 * (domain/nodes/renamed-machine.ts).
 */
async function adopted(
  tx: Tx,
  copyId: string,
  nodeId: string,
): Promise<VolumeCopy | 'foreign' | null> {
  const row = await tx
    .selectFrom('volume_copies')
    .selectAll()
    .where('id', '=', copyId)
    .executeTakeFirst();
  if (row === undefined) return null;
  const own = await tx
    .selectFrom('nodes')
    .selectAll()
    .where('id', '=', row.node_id)
    .executeTakeFirst();
  return own === undefined || (await isNow(tx, own, nodeId)) ? volumeCopyOf(row) : 'foreign';
}

async function isNow(tx: Tx, node: Row<'nodes'>, nodeId: string): Promise<boolean> {
  const later = await tx
    .selectFrom('nodes')
    .selectAll()
    .where('earlier_nodes', 'is not', null)
    .execute();
  return presentNode(nodeOf(node), later.map(nodeOf), DEFAULT_LIMITS.offlineMs).id === nodeId;
}

export async function volumesOf(tx: Tx, projectId: string): Promise<VolumeCopy[]> {
  const rows = await tx
    .selectFrom('volume_copies')
    .selectAll()
    .where('project_id', '=', projectId)
    .orderBy('created_at')
    .orderBy('id')
    .execute();
  return rows.map(volumeCopyOf);
}

/** Returns whether a project might still need the volume folders on this node. */
export async function hasVolumes(tx: Tx, nodeId: string): Promise<boolean> {
  const query = tx
    .selectFrom('volume_copies')
    .select('id')
    .where('node_id', '=', nodeId)
    .where('state', '=', 'current')
    .where('names', '!=', '[]');
  return (await query.limit(1).execute()).length > 0;
}

export async function putVolumes(
  tx: Tx,
  { id, missing_since: _, ...copy }: VolumeCopy,
): Promise<void> {
  const columns = {
    ...copy,
    names: JSON.stringify(copy.names),
    sizes: JSON.stringify(copy.sizes),
    seen: copy.seen === null ? null : JSON.stringify(copy.seen),
  };
  await tx
    .insertInto('volume_copies')
    .values({ id, ...columns })
    .onConflict((oc) => oc.column('id').doUpdateSet(columns))
    .execute();
}

/**
 * Ends the volumes of a project that is being removed: they stay on their nodes until an admin
 * deletes them, unless the deletion of the project includes them.
 */
export async function endVolumes(
  tx: Tx,
  projectId: string,
  deletes: boolean,
  at: number,
): Promise<void> {
  await tx
    .updateTable('volume_copies')
    .set((eb) => ({
      state: deletes
        ? 'deleting'
        : eb
            .case()
            .when('state', '=', 'current')
            .then('kept' as const)
            .when('state', '=', 'left')
            .then('left' as const)
            .else('deleting' as const)
            .end(),
      changed_at: at,
    }))
    .where('project_id', '=', projectId)
    .execute();
}

/**
 * Removes the rows of copies that can no longer be used: their node was deleted, and no project
 * needs them. `before`: only copies last changed before this time.
 */
export async function removeUnreachableCopies(db: Database, before: number): Promise<number> {
  const { numDeletedRows } = await db.write((tx) =>
    tx
      .deleteFrom('volume_copies')
      .where('changed_at', '<', before)
      .where('state', '!=', 'current')
      .where('node_id', 'not in', tx.selectFrom('nodes').select('id'))
      .executeTakeFirst(),
  );
  return Number(numDeletedRows);
}
