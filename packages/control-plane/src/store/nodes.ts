import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import type { NodePatch } from '@berth/wire/machine';
import type { NodeRegister } from '@berth/wire/node';
import type { NodeRole } from '@berth/wire/vocabulary';
import { DEFAULT_LIMITS } from '../domain/deployments/facts.ts';
import type { RegistrationContext } from '../domain/nodes/agent-identity.ts';
import type { NodeStanding, NodeStore, Registered } from '../domain/nodes/node-store.ts';
import { labelProblems, patchedLabels } from '../domain/nodes/machine.ts';
import { isSilent } from '../domain/nodes/offline.ts';
import { presentNode } from '../domain/nodes/renamed-machine.ts';
import { DomainError, invalidFields } from '../domain/platform/errors.ts';
import type { NameFilter, Page, Paged } from '../domain/platform/page.ts';
import type { DrainRecord, NodeRecord } from '../domain/platform/records.ts';
import type { Uptime } from '../domain/platform/uptime.ts';
import type { Database } from './engine/database.ts';
import type { Db, Row, Tx } from './engine/tables.ts';
import { writeEvents } from './events.ts';
import type { NewId } from './ids.ts';
import { fingerprintOf, type NodeMemory } from './memory/node-memory.ts';
import { drainEvents, nodeEvent, type RegisteredRow, registerEvents } from './node-events.ts';
import {
  deploymentsIn,
  isKnownSender,
  registerNode,
  sameSecret,
  withoutProof,
} from './node-registration.ts';
import {
  addressedColumn,
  diskOf,
  observedColumns,
  reportedColumns,
  sameDisk,
  type Times,
} from './node-report.ts';
import { keyAfter, paged } from './pages.ts';
import { countUnlimited, removeLeases, roomOf } from './room.ts';
import { afterAll } from './routes.ts';
import { nodeOf } from './rows/node.ts';
import { LIVE_STATES } from './states.ts';
import { isSync } from './task-row.ts';
import { forgetPinsOf } from './datasets/data-copies.ts';
import { forgetUnmanagedOf, leftOf } from './unmanaged.ts';
import { hasVolumes } from './volumes.ts';

const MOST_LISTED = 1_000;

/** Returns the nodes that AGENT_SECRET still authorizes. */
export const withoutSecret = (
  db: Pick<Database, 'kysely'>,
): ReturnType<NodeStore['withoutSecret']> =>
  db.kysely
    .selectFrom('nodes')
    .select(['hostname', 'role', 'agent_version', 'shared_secret', 'last_seen_at'])
    .where((eb) => eb.or([eb('secret_hash', 'is', null), eb('secret_used', 'is distinct from', 1)]))
    .orderBy('hostname')
    .orderBy('role')
    .limit(MOST_LISTED)
    .execute();

/** The dependencies of the store, and its state in this process. */
type NodeStoreParts = {
  readonly db: Database;
  readonly memory: NodeMemory;
  readonly now: () => number;
  readonly newId: NewId;
  /**
   * The address that all routes of a node have, by node; only of nodes that a query of this process
   * has read.
   */
  readonly routedAt: Map<string, string>;
  /** The states that this process announced: an unchanged state needs no query. */
  readonly announced: Map<string, 'online' | 'offline'>;
};

export function createNodeStore(
  db: Database,
  memory: NodeMemory,
  now: () => number,
  newId: NewId,
): NodeStore {
  const parts: NodeStoreParts = {
    db,
    memory,
    now,
    newId,
    routedAt: new Map(),
    announced: new Map(),
  };
  return {
    register: (input, now, context, uptime) => register(parts, input, now, context, uptime),
    heard: (id, at) => markHeard(parts, id, at),
    heardOnce: (id, at) => markHeardOnce(parts, id, at),
    heardNodes: () => memory.heardNodes(db.kysely),
    shownSecret: (id, hash) => sameSecret(memory.peek(id), hash),
    standing: (id) => readStanding(parts, id),
    withoutSecret: () => withoutSecret(db),
    secretUsed: (id, hash) => markSecretUsed(parts, id, hash),
    resetSecret: (id, now) => resetSecret(parts, id, now),
    flush: () => memory.flush(),
    get: (id) => getNode(parts, id),
    getMany: (ids) => getNodes(parts, ids),
    named: (idOrName) => nodesNamed(parts, idOrName),
    list: (page, filter) => listNodes(parts, page, filter),
    all: (role) => allNodes(parts, role),
    listDraining: () => listDraining(parts),
    listDoubled: () => listDoubled(parts),
    setDrain: (id, drain, expected) => setDrain(parts, id, drain, expected),
    setSchedulable: (id, schedulable) => setSchedulable(parts, id, schedulable),
    setLabels: (id, labels) => setLabels(parts, id, labels),
    room: () => db.snapshot(async (tx) => roomOf(tx, await memory.all(tx), DEFAULT_LIMITS.leaseMs)),
    countUnlimited: () => countUnlimited(db),
    markDeleting: (id, now) => markNodeDeleting(parts, id, now),
    announce: (states) => announceStates(parts, states),
    listDeleting: () => listDeletingNodes(parts),
    removeIfGone: (id, force) => removeNodeIfGone(parts, id, force),
  };
}

function recordOf(parts: NodeStoreParts, row: Row<'nodes'>): NodeRecord {
  return parts.memory.recordOf(row);
}

/** Returns the record of a row that was just written, and stores it in memory. */
function storeRow(parts: NodeStoreParts, row: Row<'nodes'>): NodeRecord {
  parts.memory.put(row, null);
  return recordOf(parts, row);
}

async function comparableRow(
  parts: NodeStoreParts,
  input: NodeRegister,
  { proof }: RegistrationContext,
): Promise<Row<'nodes'> | undefined> {
  const inMemory = (): Row<'nodes'> | undefined =>
    proof.kind === 'node'
      ? parts.memory.peek(proof.node_id)
      : parts.memory.find(input.hostname, input.role);
  const row = inMemory();
  if (row !== undefined) return row;
  const query = parts.db.kysely.selectFrom('nodes').selectAll().select(fingerprintOf(parts.db));
  const read = await (proof.kind === 'node'
    ? query.where('id', '=', proof.node_id)
    : query.where('hostname', '=', input.hostname).where('role', '=', input.role)
  ).executeTakeFirst();
  if (read === undefined) return undefined;
  const { fingerprint, ...found } = read;
  // A row that was stored during the query is newer than the query's result.
  const newer = inMemory();
  if (newer === undefined) parts.memory.put(found, fingerprint);
  return newer ?? found;
}

/**
 * Stores a registration that repeats the last one as a mark, without a write; returns null if the
 * registration differs.
 */
async function markRepeated(
  parts: NodeStoreParts,
  input: NodeRegister,
  at: Times,
  context: RegistrationContext,
): Promise<{ node: NodeRecord; before: NodeRecord } | null> {
  const row = await comparableRow(parts, input, context);
  if (row === undefined || !isKnownSender(row, input, context)) return null;
  const before = recordOf(parts, row);
  const { last_seen_at, free_storage, disk, ...said } = reportedColumns(input, at);
  const { observed_at, observed_since } = observedColumns(input, at, before);
  for (const [column, value] of Object.entries(said))
    if (row[column as keyof typeof said] !== value) return null;
  // A mark never lowers a time. So the row must be written if the clock was set back, or if an
  // older version wrote a later observation time.
  if (at.now < before.last_seen_at || at.uptime < (before.observed_at ?? 0)) return null;
  parts.memory.setHeardAt(row.id, at.uptime);
  parts.memory.mark(row.id, {
    last_seen_at,
    ...defined({
      observed_at,
      observed_since,
      free_storage,
      disk:
        input.disk === undefined || sameDisk(input.disk, before.disk)
          ? undefined
          : diskOf(input.disk),
    }),
  });
  return { node: recordOf(parts, row), before };
}

/**
 * Moves the routes of a node to its new address. The first registration of an agent process lists
 * no containers, so the routes move with the next registration.
 */
async function followAddress(
  parts: NodeStoreParts,
  { id, host_ip }: NodeRecord,
  input: NodeRegister,
  at: number,
): Promise<{ routesMoved?: true }> {
  if (input.containers === undefined || parts.routedAt.get(id) === host_ip) return {};
  const routes = parts.db.kysely
    .selectFrom('routes')
    .select('deployment_id')
    .where('node_id', '=', id);
  const elsewhere = await routes.where('host_ip', '!=', host_ip).execute();
  if (elsewhere.length === 0) parts.routedAt.set(id, host_ip);
  const named = new Set(deploymentsIn(input));
  const deployments = elsewhere
    .map((route) => route.deployment_id)
    .filter((deployment) => named.has(deployment));
  if (deployments.length === 0) return {};
  await parts.db.write((tx) => moveRoutes(tx, { id, host_ip }, deployments, at));
  return { routesMoved: true };
}

function isSilentNow(
  parts: NodeStoreParts,
  row: Row<'nodes'>,
  at: Parameters<typeof isSilent>[1],
  offlineMs: number,
): boolean {
  return isSilent(
    { ...recordOf(parts, row), heardAt: parts.memory.heardAt(row.id) },
    at,
    offlineMs,
  );
}

async function register(
  parts: NodeStoreParts,
  input: NodeRegister,
  at: number,
  context: RegistrationContext = withoutProof,
  uptime: Uptime = { at, since: 0 },
): Promise<Registered> {
  const times = { now: at, uptime: uptime.at };
  const same = await markRepeated(parts, input, times, context);
  if (same !== null) return { ...same, ...(await followAddress(parts, same.node, input, at)) };
  const reported = (before: NodeRecord | null) => ({
    ...reportedColumns(input, times),
    ...observedColumns(input, times, before),
    ...addressedColumn(input, times, before),
  });
  const registered = await parts.db.write(async (tx) => {
    const result = await registerNode(parts.db, tx, {
      input,
      at,
      context,
      reported,
      newId: parts.newId,
      newest: (row) => recordOf(parts, row),
      isSilent: (row) => isSilentNow(parts, row, { now: at, uptime }, context.offlineMs),
      moveRoutes: (row, deployments) => moveRoutes(tx, row, deployments, at),
    });
    const isAt = (row: Row<'nodes'>): boolean =>
      isSilentNow(parts, row, { now: at, uptime }, context.offlineMs);
    const silentThere = await silentAtNewAddress(tx, result, isAt, {
      at,
      offlineMs: context.offlineMs,
    });
    await writeEvents(parts.db, tx, registerEvents(result, silentThere, at));
    return { ...result, silentThere };
  });
  const before = registered.before === undefined ? null : recordOf(parts, registered.before);
  if (registered.verdict === 'taken') parts.memory.rowWritten(registered.row.id, uptime.at);
  const { displaced } = registered;
  if (displaced !== null) parts.memory.put(displaced.row, displaced.fingerprint);
  parts.memory.put(registered.row, registered.fingerprint);
  if (registered.refusal !== null) throw registered.refusal;
  const node = recordOf(parts, registered.row);
  if (registered.before?.host_ip !== node.host_ip) parts.routedAt.delete(node.id);
  const moved =
    registered.verdict === 'taken' ? await followAddress(parts, node, input, at) : undefined;
  return {
    node,
    before,
    ...moved,
    ...defined({
      secret: registered.secret ?? undefined,
      nameTaken: registered.nameTaken ? (true as const) : undefined,
      displaced: displaced === null ? undefined : recordOf(parts, displaced.row),
      silentThere:
        registered.silentThere === null ? undefined : recordOf(parts, registered.silentThere),
    }),
  };
}

function markHeard(parts: NodeStoreParts, id: string, at: number): boolean {
  const isKnown = parts.memory.peek(id) !== undefined;
  if (isKnown) parts.memory.setHeardAt(id, at);
  return isKnown;
}

/** Handles a node that registered at another control plane, or before this process started. */
async function markHeardOnce(parts: NodeStoreParts, id: string, at: number): Promise<boolean> {
  if ((await readStanding(parts, id)) === null) return false;
  parts.memory.setHeardAt(id, at);
  return true;
}

async function readStanding(parts: NodeStoreParts, id: string): Promise<NodeStanding | null> {
  const row =
    parts.memory.get(id) ??
    (await parts.db.kysely
      .selectFrom('nodes')
      .select(['hostname', 'role', 'secret_hash', 'secret_used', 'capabilities'])
      .where('id', '=', id)
      .executeTakeFirst());
  if (row === undefined) return null;
  const { hostname, role, secret_hash, secret_used, capabilities } = row;
  return {
    hostname,
    role,
    secret: { hash: secret_hash, used: secret_used === 1 },
    capabilities: capabilities === null ? null : (JSON.parse(capabilities) as string[]),
  };
}

async function markSecretUsed(parts: NodeStoreParts, id: string, hash: string): Promise<void> {
  const changed = await parts.db.writeOne((kysely) =>
    kysely
      .updateTable('nodes')
      .set({ secret_used: 1 })
      .where('id', '=', id)
      .where('secret_hash', '=', hash)
      .returningAll()
      .executeTakeFirst(),
  );
  if (changed !== undefined) storeRow(parts, changed);
}

async function resetSecret(parts: NodeStoreParts, id: string, at: number): Promise<NodeRecord> {
  const changed = await parts.db.writeOne((kysely) =>
    kysely
      .updateTable('nodes')
      .set({ secret_hash: null, secret_used: null, secret_reset_at: at, boots: null })
      .where('id', '=', id)
      .returningAll()
      .executeTakeFirst(),
  );
  if (changed === undefined) throw new DomainError('not_found', 'the node does not exist');
  return storeRow(parts, changed);
}

async function getNode(parts: NodeStoreParts, id: string): Promise<NodeRecord> {
  return recordOf(parts, await nodeRow(parts.db.kysely, id));
}

async function getNodes(parts: NodeStoreParts, ids: readonly string[]): Promise<NodeRecord[]> {
  if (ids.length === 0) return [];
  const rows = await parts.db.kysely
    .selectFrom('nodes')
    .selectAll()
    .where('id', 'in', [...ids])
    .execute();
  return rows.map((row) => recordOf(parts, row));
}

async function nodesNamed(
  parts: NodeStoreParts,
  idOrName: string,
): Promise<Pick<NodeRecord, 'id' | 'hostname' | 'role'>[]> {
  const nodes = parts.db.kysely.selectFrom('nodes').select(['id', 'hostname', 'role']);
  const byId = await nodes.where('id', '=', idOrName).execute();
  if (byId.length > 0) return byId;
  const [, role, hostname] = /^(builder|deploy):(.+)$/s.exec(idOrName) ?? [];
  const ofRole =
    role === undefined || hostname === undefined
      ? []
      : await nodes
          .where('hostname', '=', hostname)
          .where('role', '=', role as NodeRole)
          .execute();
  return ofRole.length > 0
    ? ofRole
    : nodes.where('hostname', '=', idOrName).orderBy('role').execute();
}

async function listNodes(
  parts: NodeStoreParts,
  page: Page,
  { name }: NameFilter = {},
): Promise<Paged<NodeRecord>> {
  const after = keyAfter(page.cursor, ['string', 'string']);
  let query = parts.db.kysely.selectFrom('nodes').selectAll();
  if (name !== undefined) query = query.where('hostname', '=', name);
  if (after !== null)
    query = query.where((eb) =>
      eb(eb.refTuple('hostname', 'role'), '>', eb.tuple(after[0], after[1] as NodeRole)),
    );
  const rows = await query
    .orderBy('hostname')
    .orderBy('role')
    .limit(page.limit + 1)
    .execute();
  return paged(
    rows,
    page,
    (row) => [row.hostname, row.role],
    (row) => recordOf(parts, row),
  );
}

async function allNodes(parts: NodeStoreParts, role: NodeRole | undefined): Promise<NodeRecord[]> {
  const nodes = await parts.memory.all(parts.db.kysely);
  return role === undefined ? nodes : nodes.filter((node) => node.role === role);
}

async function listDraining(parts: NodeStoreParts): Promise<NodeRecord[]> {
  const rows = await parts.db.kysely
    .selectFrom('nodes')
    .selectAll()
    .where('drain', 'is not', null)
    .orderBy('id')
    .execute();
  return rows.map((row) => recordOf(parts, row));
}

async function listDoubled(parts: NodeStoreParts): Promise<NodeRecord[]> {
  const rows = await parts.db.kysely
    .selectFrom('nodes')
    .selectAll()
    .where('boots', 'is not', null)
    // Filters for a second process, because a restart of the agent writes this column too.
    .where('boots', 'like', '%"doubled":{%')
    .limit(MOST_DOUBLED)
    .execute();
  return rows.map((row) => recordOf(parts, row));
}

async function setDrain(
  parts: NodeStoreParts,
  id: string,
  drain: DrainRecord | null,
  expected: DrainRecord | null,
): Promise<NodeRecord | null> {
  const text = (d: DrainRecord | null): string | null => (d === null ? null : JSON.stringify(d));
  const changed = await parts.db.write(async (tx) => {
    const row = await tx
      .updateTable('nodes')
      .set({ drain: text(drain), ...defined({ schedulable: drain === null ? undefined : 0 }) })
      .where('id', '=', id)
      .where('drain', 'is not distinct from', text(expected))
      .returningAll()
      .executeTakeFirst();
    if (row !== undefined)
      await writeEvents(parts.db, tx, drainEvents(row, drain, expected, parts.now()));
    return row;
  });
  if (changed !== undefined) return storeRow(parts, changed);
  await nodeRow(parts.db.kysely, id);
  return null;
}

async function setSchedulable(
  parts: NodeStoreParts,
  id: string,
  schedulable: boolean,
): Promise<NodeRecord> {
  const changed = await parts.db.write(async (tx) => {
    const node = await nodeRow(tx, id, parts.db.capabilities.rowLocks);
    if (node.deleting_at !== null) throw new DomainError('being_deleted');
    const row = await tx
      .updateTable('nodes')
      .set({
        schedulable: Number(schedulable),
        ...defined({ drain: schedulable ? null : undefined }),
      })
      .where('id', '=', id)
      .returningAll()
      .executeTakeFirstOrThrow();
    if (row.schedulable !== node.schedulable)
      await writeEvents(parts.db, tx, [
        nodeEvent(
          row,
          schedulable ? 'uncordoned' : 'cordoned',
          schedulable ? 'accepts work' : 'accepts no work',
          parts.now(),
        ),
      ]);
    return row;
  });
  return storeRow(parts, changed);
}

async function setLabels(
  parts: NodeStoreParts,
  id: string,
  patch: NodePatch['labels'],
): Promise<NodeRecord> {
  const changed = await parts.db.write(async (tx) => {
    const before = await nodeRow(tx, id, parts.db.capabilities.rowLocks);
    if (before.deleting_at !== null) throw new DomainError('being_deleted');
    const present = JSON.parse(before.admin_labels ?? '{}') as NodeRecord['admin_labels'];
    const problems = labelProblems(present, patch);
    if (problems.length > 0) throw invalidFields(problems);
    const labels = patchedLabels(present, patch);
    const row = await tx
      .updateTable('nodes')
      .set({ admin_labels: Object.keys(labels).length === 0 ? null : JSON.stringify(labels) })
      .where('id', '=', id)
      .returningAll()
      .executeTakeFirstOrThrow();
    if (row.admin_labels !== before.admin_labels)
      await writeEvents(parts.db, tx, [
        nodeEvent(row, 'labelled', labelledText(labels), parts.now()),
      ]);
    return row;
  });
  return storeRow(parts, changed);
}

function labelledText(labels: NodeRecord['admin_labels']): string {
  const pairs = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
  return pairs.length === 0
    ? 'has no labels of admins any more'
    : `has the labels of admins ${pairs.join(', ')}`;
}

async function markNodeDeleting(
  parts: NodeStoreParts,
  id: string,
  at: number,
): Promise<NodeRecord> {
  const marked = await parts.db.write(async (tx) => {
    const row = await tx
      .updateTable('nodes')
      .set({ deleting_at: at })
      .where('id', '=', id)
      .where('deleting_at', 'is', null)
      .returningAll()
      .executeTakeFirst();
    if (row !== undefined)
      await writeEvents(parts.db, tx, [nodeEvent(row, 'deleting', 'is being deleted', at)]);
    return row;
  });
  return marked === undefined ? getNode(parts, id) : storeRow(parts, marked);
}

async function announceStates(
  parts: NodeStoreParts,
  states: ReadonlyMap<string, 'online' | 'offline'>,
): Promise<number> {
  let announcements = 0;
  for (const state of ['online', 'offline'] as const) {
    const news = [...states]
      .filter(([id, is]) => is === state && parts.announced.get(id) !== state)
      .map(([id]) => id);
    for (let i = 0; i < news.length; i += ANNOUNCED_AT_ONCE) {
      const ids = news.slice(i, i + ANNOUNCED_AT_ONCE);
      announcements += await parts.db.write(async (tx) => {
        const rows = await tx
          .updateTable('nodes')
          .set({ announced: state })
          .where('id', 'in', ids)
          .where('announced', 'is distinct from', state)
          .returning(['id', 'role', 'hostname'])
          .execute();
        await writeEvents(
          parts.db,
          tx,
          rows.map((row) => nodeEvent(row, state, `is ${state}`, parts.now())),
        );
        return rows.length;
      });
      for (const id of ids) parts.announced.set(id, state);
    }
  }
  for (const id of parts.announced.keys()) if (!states.has(id)) parts.announced.delete(id);
  return announcements;
}

async function listDeletingNodes(parts: NodeStoreParts): Promise<NodeRecord[]> {
  const rows = await parts.db.kysely
    .selectFrom('nodes')
    .selectAll()
    .where('deleting_at', 'is not', null)
    .orderBy('deleting_at')
    .orderBy('id')
    .execute();
  return rows.map((row) => recordOf(parts, row));
}

async function removeNodeIfGone(
  parts: NodeStoreParts,
  id: string,
  force: boolean,
): Promise<boolean> {
  const removed = await parts.db.write(async (tx) => {
    const node = await tx
      .selectFrom('nodes')
      .selectAll()
      .where('id', '=', id)
      .$if(parts.db.capabilities.rowLocks, (q) => q.forUpdate())
      .executeTakeFirst();
    if (node === undefined) return true;
    // Removes only a node that is marked for deletion, never one that is merely idle.
    if (node.deleting_at === null) return false;
    if (
      !force &&
      ((await mayHaveContainers(tx, node)) ||
        (await hasOpenTask(tx, id)) ||
        (await hasLiveDeployments(tx, id)) ||
        (await leftOf(tx, { nodes: [id] })).length > 0)
    )
      return false;
    // `sync` tasks belong to the node and to no project.
    await tx.deleteFrom('tasks').where(isSync).where('node_id', '=', id).execute();
    await forgetUnmanagedOf(tx, { node: id });
    await forgetPinsOf(tx, { node: id });
    await removeLeases(tx, { node: id });
    await loseTasks(tx, id, parts.now());
    await tx.deleteFrom('nodes').where('id', '=', id).execute();
    await writeEvents(parts.db, tx, [nodeEvent(node, 'deleted', 'deleted', parts.now())]);
    await failPoint('node.remove.before');
    return true;
  });
  if (removed) parts.memory.forget(id);
  if (removed) parts.routedAt.delete(id);
  return removed;
}

const MOST_DOUBLED = 100;

const ANNOUNCED_AT_ONCE = 500;

/** Returns a silent deploy node at the address that this deploy node has moved to, or null. */
async function silentAtNewAddress(
  tx: Tx,
  { before, row, verdict }: RegisteredRow,
  isSilentRow: (row: Row<'nodes'>) => boolean,
  { at, offlineMs }: { at: number; offlineMs: number },
): Promise<Row<'nodes'> | null> {
  if (verdict !== 'taken' || row.role !== 'deploy' || before?.host_ip === row.host_ip) return null;
  const nodes = tx
    .selectFrom('nodes')
    .selectAll()
    .where('role', '=', 'deploy')
    .where('host_ip', '=', row.host_ip)
    .where('id', '!=', row.id)
    // Preselects with the same condition as isSilent, because thousands of agents can register from
    // one address.
    .where((eb) => eb.or([eb('last_seen_at', '<=', at - offlineMs), eb('last_seen_at', '>', at)]));
  return (await nodes.execute()).find(isSilentRow) ?? null;
}

/**
 * Moves routes to the new address of a node. A machine takes its containers with it, so the routes
 * of the listed containers (`deployments`) move; if `deployments` is null, all routes move. Another
 * machine under this name has other containers, and a route must not lead to a port of another
 * machine.
 */
async function moveRoutes(
  tx: Tx,
  node: Pick<Row<'nodes'>, 'id' | 'host_ip'>,
  deployments: readonly string[] | null,
  at: number,
): Promise<void> {
  // Raises the versions first: this makes plans with the old address stale, and waits for a plan
  // that is being written.
  await tx
    .updateTable('projects')
    .set((eb) => ({ flow_version: eb('flow_version', '+', 1) }))
    .where((eb) =>
      eb.or([
        eb('id', 'in', eb.selectFrom('routes').select('project_id').where('node_id', '=', node.id)),
        eb(
          'id',
          'in',
          eb
            .selectFrom('deployments')
            .select('project_id')
            .where('node_id', '=', node.id)
            .where('status', 'in', [...LIVE_STATES]),
        ),
      ]),
    )
    .execute();
  if (deployments !== null && deployments.length === 0) return;
  const others = tx.selectFrom('routes').where('node_id', '!=', node.id);
  await tx
    .updateTable('routes')
    .set({ host_ip: node.host_ip, published_at: await afterAll(others, at) })
    .where('node_id', '=', node.id)
    .$if(deployments !== null, (query) =>
      query.where('deployment_id', 'in', [...(deployments ?? [])]),
    )
    .execute();
}

/** `lock`: no other transaction can change or delete the node until this one ends. */
async function nodeRow(db: Db, id: string, lock = false): Promise<Row<'nodes'>> {
  const row = await db
    .selectFrom('nodes')
    .selectAll()
    .where('id', '=', id)
    .$if(lock, (q) => q.forUpdate())
    .executeTakeFirst();
  if (row === undefined) throw new DomainError('not_found', 'the node does not exist');
  return row;
}

/** If the machine came back as another node, that node lists the containers. */
async function mayHaveContainers(tx: Tx, node: Row<'nodes'>): Promise<boolean> {
  if (node.containers === '[]') return false;
  const later = await tx
    .selectFrom('nodes')
    .selectAll()
    .where('earlier_nodes', 'is not', null)
    .execute();
  return presentNode(nodeOf(node), later.map(nodeOf), DEFAULT_LIMITS.offlineMs).id === node.id;
}

/**
 * Returns whether the node has an open task of a project. `sync` tasks do not count: a node that is
 * being deleted needs no copies.
 */
async function hasOpenTask(tx: Tx, nodeId: string): Promise<boolean> {
  const open = await tx
    .selectFrom('tasks')
    .select('id')
    .where('node_id', '=', nodeId)
    .where('finished_at', 'is', null)
    .where('project_id', 'is not', null)
    .limit(1)
    .execute();
  return open.length > 0;
}

/**
 * Returns whether the node has live deployments. A contract-only agent reports no containers, so
 * only its deployments show this.
 */
async function hasLiveDeployments(tx: Tx, nodeId: string): Promise<boolean> {
  const live = await tx
    .selectFrom('deployments')
    .select('id')
    .where('node_id', '=', nodeId)
    .where('status', 'in', [...LIVE_STATES])
    .limit(1)
    .execute();
  return live.length > 0 || (await hasInstances(tx, nodeId)) || hasVolumes(tx, nodeId);
}

/** Returns whether a further instance is assigned to the node. */
async function hasInstances(tx: Tx, nodeId: string): Promise<boolean> {
  const query = tx
    .selectFrom('instances')
    .innerJoin('deployments', 'deployments.id', 'instances.deployment_id')
    .select('instances.id')
    .where('instances.node_id', '=', nodeId)
    .where('deployments.status', 'in', [...LIVE_STATES])
    .limit(1);
  return (await query.execute()).length > 0;
}

async function loseTasks(tx: Tx, nodeId: string, at: number): Promise<void> {
  const lost = await tx
    .updateTable('tasks')
    .set({ status: 'lost', finished_at: at, lease_expires_at: null })
    .where('node_id', '=', nodeId)
    .where('finished_at', 'is', null)
    .returning('project_id')
    .execute();
  const projects = new Set(lost.flatMap((task) => task.project_id ?? []));
  if (projects.size === 0) return;
  // Makes plans that were decided with these tasks stale.
  await tx
    .updateTable('projects')
    .set((eb) => ({ flow_version: eb('flow_version', '+', 1) }))
    .where('id', 'in', [...projects])
    .execute();
}
