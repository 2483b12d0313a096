import { failPoint } from '@berth/kit/fail-point';
import type { NodeDisk, NodeEngine, NodeRegister } from '@berth/wire/node';
import type { NodeRole } from '@berth/wire/vocabulary';
import type { Entry } from '../domain/agent-identity.ts';
import { DomainError } from '../domain/errors.ts';
import type { DrainRecord, NodeRecord } from '../domain/records.ts';
import { isSilent } from '../domain/silence.ts';
import type { NodeStore } from '../domain/stores.ts';
import type { Database } from './engine/database.ts';
import type { Db, Tx } from './engine/tables.ts';
import { type NewEvent, writeEvents } from './events.ts';
import type { NewId } from './ids.ts';
import { deploymentsIn, registerNode, sameSecret, speaksFor, withoutProof } from './node-registration.ts';
import { type NodeMemory, fingerprintOf } from './memory/node-memory.ts';
import { keyAfter, paged } from './pages.ts';
import { LIVE_STATES } from './states.ts';
import { isSync } from './task-row.ts';
import type { NewRow, Row } from './engine/tables.ts';

export function createNodeStore(db: Database, memory: NodeMemory, now: () => number, newId: NewId): NodeStore {
  const present = (row: Row<'nodes'>): NodeRecord => memory.recordOf(row);
  /** Of a row that was just written by hand. */
  const kept = (row: Row<'nodes'>): NodeRecord => {
    memory.put(row, null);
    return present(row);
  };

  async function rowOf(input: NodeRegister, { proof }: Entry): Promise<Row<'nodes'> | undefined> {
    const inMemory = (): Row<'nodes'> | undefined =>
      proof.kind === 'node' ? memory.peek(proof.node_id) : memory.find(input.hostname, input.role);
    const known = inMemory();
    if (known !== undefined) return known;
    const query = db.kysely.selectFrom('nodes').selectAll().select(fingerprintOf(db));
    const read = await (proof.kind === 'node'
      ? query.where('id', '=', proof.node_id)
      : query.where('hostname', '=', input.hostname).where('role', '=', input.role)
    ).executeTakeFirst();
    if (read === undefined) return undefined;
    const { fingerprint, ...row } = read;
    // What was written meanwhile is newer.
    const newer = inMemory();
    if (newer === undefined) memory.put(row, fingerprint);
    return newer ?? row;
  }

  /** Says nothing new but that it is there: marked, not written. */
  async function repeated(input: NodeRegister, at: Times, entry: Entry): Promise<{ node: NodeRecord; before: NodeRecord } | null> {
    const row = await rowOf(input, entry);
    if (row === undefined || !speaksFor(row, input, entry)) return null;
    const before = present(row);
    const { last_seen_at, free_storage, disk, ...said } = reportedColumns(input, at);
    const { observed_at, observed_since } = observedColumns(input, at, before);
    for (const [column, value] of Object.entries(said)) if (row[column as keyof typeof said] !== value) return null;
    // A clock that was set back is news: a mark never takes a time back. So is a time of observation that an earlier version wrote.
    if (at.now < before.last_seen_at || at.uptime < (before.observed_at ?? 0)) return null;
    memory.setHeardAt(row.id, at.uptime);
    memory.mark(row.id, {
      last_seen_at,
      ...(observed_at === undefined ? {} : { observed_at }),
      ...(observed_since === undefined ? {} : { observed_since }),
      ...(free_storage === undefined ? {} : { free_storage }),
      ...(input.disk === undefined || sameDisk(input.disk, before.disk) ? {} : { disk: diskOf(input.disk) }),
    });
    return { node: present(row), before };
  }

  /** The address at which a node has all its routes, as far as it was looked at here. */
  const routedAt = new Map<string, string>();
  /** The first register of a process says nothing of its containers: routes follow it to a new address with the next one. */
  async function followed({ id, host_ip }: NodeRecord, input: NodeRegister): Promise<{ routesMoved?: true }> {
    if (input.containers === undefined || routedAt.get(id) === host_ip) return {};
    const routes = db.kysely.selectFrom('routes').select('deployment_id').where('node_id', '=', id);
    const elsewhere = await routes.where('host_ip', '!=', host_ip).execute();
    if (elsewhere.length === 0) routedAt.set(id, host_ip);
    const named = new Set(deploymentsIn(input));
    const here = elsewhere.map((route) => route.deployment_id).filter((deployment) => named.has(deployment));
    if (here.length === 0) return {};
    await db.write((tx) => moveRoutes(tx, { id, host_ip }, here));
    return { routesMoved: true };
  }

  /** What was announced from here: states that stay cost no query. */
  const announced = new Map<string, 'online' | 'offline'>();

  return {
    async register(input, at, entry = withoutProof, uptime = { at, since: 0 }) {
      const times = { now: at, uptime: uptime.at };
      const same = await repeated(input, times, entry);
      if (same !== null) return { ...same, ...(await followed(same.node, input)) };
      const reported = (before: NodeRecord | null) => ({ ...reportedColumns(input, times), ...observedColumns(input, times, before) });
      const entered = await db.write(async (tx) => {
        const made = await registerNode(db, tx, {
          input,
          at,
          entry,
          reported,
          newId,
          newest: present,
          isSilent: (row) => isSilent({ ...present(row), heardAt: memory.heardAt(row.id) }, { now: at, uptime }, entry.offlineMs),
          moveRoutes: (row, deployments) => moveRoutes(tx, row, deployments),
        });
        await writeEvents(db, tx, registerEvents(made.before, made.row, at));
        return made;
      });
      const before = entered.before === undefined ? null : present(entered.before);
      if (entered.verdict === 'taken') memory.rowWritten(entered.row.id, uptime.at);
      memory.put(entered.row, entered.fingerprint);
      if (entered.refusal !== null) throw entered.refusal;
      const node = present(entered.row);
      if (entered.before?.host_ip !== node.host_ip) routedAt.delete(node.id);
      return {
        node,
        before,
        ...(entered.verdict === 'taken' ? await followed(node, input) : {}),
        ...(entered.secret === null ? {} : { secret: entered.secret }),
        ...(entered.nameTaken ? { nameTaken: true } : {}),
      };
    },

    shownSecret: (id, hash) => sameSecret(memory.peek(id), hash),

    async standing(id) {
      const row =
        memory.get(id) ??
        (await db.kysely
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
    },

    async secretUsed(id, hash) {
      const changed = await db.writeOne((kysely) =>
        kysely
          .updateTable('nodes')
          .set({ secret_used: 1 })
          .where('id', '=', id)
          .where('secret_hash', '=', hash)
          .returningAll()
          .executeTakeFirst(),
      );
      if (changed !== undefined) kept(changed);
    },

    async resetSecret(id, at) {
      const changed = await db.writeOne((kysely) =>
        kysely
          .updateTable('nodes')
          .set({ secret_hash: null, secret_used: null, secret_reset_at: at, boots: null })
          .where('id', '=', id)
          .returningAll()
          .executeTakeFirst(),
      );
      if (changed === undefined) throw new DomainError('not_found', 'the node does not exist');
      return kept(changed);
    },

    flush: () => memory.flush(),

    async get(id) {
      return present(await nodeRow(db.kysely, id));
    },

    async getMany(ids) {
      if (ids.length === 0) return [];
      const rows = await db.kysely
        .selectFrom('nodes')
        .selectAll()
        .where('id', 'in', [...ids])
        .execute();
      return rows.map(present);
    },

    async named(idOrName) {
      const nodes = db.kysely.selectFrom('nodes').select(['id', 'hostname', 'role']);
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
      return ofRole.length > 0 ? ofRole : nodes.where('hostname', '=', idOrName).orderBy('role').execute();
    },

    async list(page, { name } = {}) {
      const after = keyAfter(page.cursor, ['string', 'string']);
      let query = db.kysely.selectFrom('nodes').selectAll();
      if (name !== undefined) query = query.where('hostname', '=', name);
      if (after !== null) query = query.where((eb) => eb(eb.refTuple('hostname', 'role'), '>', eb.tuple(after[0], after[1] as NodeRole)));
      const rows = await query
        .orderBy('hostname')
        .orderBy('role')
        .limit(page.limit + 1)
        .execute();
      return paged(rows, page, (row) => [row.hostname, row.role], present);
    },

    async all(role) {
      const nodes = await memory.all(db.kysely);
      return role === undefined ? nodes : nodes.filter((node) => node.role === role);
    },

    async listDraining() {
      const rows = await db.kysely.selectFrom('nodes').selectAll().where('drain', 'is not', null).orderBy('id').execute();
      return rows.map(present);
    },

    async listDoubled() {
      const rows = await db.kysely
        .selectFrom('nodes')
        .selectAll()
        .where('boots', 'is not', null)
        // A restart leaves its trace in that column too.
        .where('boots', 'like', '%"doubled":{%')
        .limit(MOST_DOUBLED)
        .execute();
      return rows.map(present);
    },

    async setDrain(id, drain, expected) {
      const text = (d: DrainRecord | null): string | null => (d === null ? null : JSON.stringify(d));
      const changed = await db.write(async (tx) => {
        const row = await tx
          .updateTable('nodes')
          .set({ drain: text(drain), ...(drain === null ? {} : { schedulable: 0 }) })
          .where('id', '=', id)
          .where('drain', 'is not distinct from', text(expected))
          .returningAll()
          .executeTakeFirst();
        if (row !== undefined) await writeEvents(db, tx, drainEvents(row, drain, expected, now()));
        return row;
      });
      if (changed !== undefined) return kept(changed);
      await nodeRow(db.kysely, id);
      return null;
    },

    async setSchedulable(id, schedulable) {
      const changed = await db.write(async (tx) => {
        const node = await nodeRow(tx, id);
        if (node.deleting_at !== null) throw new DomainError('being_deleted');
        const row = await tx
          .updateTable('nodes')
          .set({ schedulable: Number(schedulable), ...(schedulable ? { drain: null } : {}) })
          .where('id', '=', id)
          .returningAll()
          .executeTakeFirstOrThrow();
        if (row.schedulable !== node.schedulable)
          await writeEvents(db, tx, [
            nodeEvent(row, schedulable ? 'uncordoned' : 'cordoned', schedulable ? 'takes work' : 'takes no work', now()),
          ]);
        return row;
      });
      return kept(changed);
    },

    async markDeleting(id, at) {
      const marked = await db.write(async (tx) => {
        const row = await tx
          .updateTable('nodes')
          .set({ deleting_at: at })
          .where('id', '=', id)
          .where('deleting_at', 'is', null)
          .returningAll()
          .executeTakeFirst();
        if (row !== undefined) await writeEvents(db, tx, [nodeEvent(row, 'deleting', 'is being deleted', at)]);
        return row;
      });
      return marked === undefined ? this.get(id) : kept(marked);
    },

    async announce(states) {
      let told = 0;
      for (const state of ['online', 'offline'] as const) {
        const news = [...states].filter(([id, is]) => is === state && announced.get(id) !== state).map(([id]) => id);
        for (let i = 0; i < news.length; i += ANNOUNCED_AT_ONCE) {
          const ids = news.slice(i, i + ANNOUNCED_AT_ONCE);
          told += await db.write(async (tx) => {
            const rows = await tx
              .updateTable('nodes')
              .set({ announced: state })
              .where('id', 'in', ids)
              .where('announced', 'is distinct from', state)
              .returning(['id', 'role', 'hostname'])
              .execute();
            await writeEvents(
              db,
              tx,
              rows.map((row) => nodeEvent(row, state, `is ${state}`, now())),
            );
            return rows.length;
          });
          for (const id of ids) announced.set(id, state);
        }
      }
      for (const id of announced.keys()) if (!states.has(id)) announced.delete(id);
      return told;
    },

    async listDeleting() {
      const rows = await db.kysely
        .selectFrom('nodes')
        .selectAll()
        .where('deleting_at', 'is not', null)
        .orderBy('deleting_at')
        .orderBy('id')
        .execute();
      return rows.map(present);
    },

    async removeIfGone(id, force) {
      const gone = await db.write(async (tx) => {
        const node = await tx
          .selectFrom('nodes')
          .select(['id', 'role', 'hostname', 'deleting_at', 'containers'])
          .where('id', '=', id)
          .$if(db.capabilities.rowLocks, (q) => q.forUpdate())
          .executeTakeFirst();
        if (node === undefined) return true;
        // Only one that was marked: a node is never forgotten because it happened to be idle.
        if (node.deleting_at === null) return false;
        if (!force && (node.containers !== '[]' || (await hasOpenTask(tx, id)) || (await isNeeded(tx, id)))) return false;
        // What belongs to the node alone goes with it.
        await tx.deleteFrom('tasks').where(isSync).where('node_id', '=', id).execute();
        await loseTasks(tx, id, now());
        await tx.deleteFrom('nodes').where('id', '=', id).execute();
        await writeEvents(db, tx, [nodeEvent(node, 'deleted', 'deleted', now())]);
        await failPoint('node.remove.before');
        return true;
      });
      if (gone) memory.forget(id);
      if (gone) routedAt.delete(id);
      return gone;
    },
  };
}

/** By the machine's clock and by the uptime clock. */
type Times = { now: number; uptime: number };

const MOST_DOUBLED = 100;
const ANNOUNCED_AT_ONCE = 500;

type Named = Pick<Row<'nodes'>, 'id' | 'role' | 'hostname'>;
const nodeEvent = ({ id, role, hostname }: Named, what: string, says: string, at: number): NewEvent => ({
  at,
  kind: `node.${what}`,
  node_id: id,
  message: `${role} ${hostname} ${says}`,
});

function registerEvents(before: Row<'nodes'> | undefined, row: Row<'nodes'>, at: number): NewEvent[] {
  if (before === undefined) return [nodeEvent(row, 'registered', `registered from ${row.host_ip}`, at)];
  return [
    ...(before.hostname === row.hostname ? [] : [nodeEvent(row, 'renamed', `was named ${before.hostname} before`, at)]),
    ...(before.host_ip === row.host_ip ? [] : [nodeEvent(row, 'host_ip', `has the address ${row.host_ip}; before: ${before.host_ip}`, at)]),
  ];
}

function drainEvents(row: Named, drain: DrainRecord | null, before: DrainRecord | null, at: number): NewEvent[] {
  if (drain === null) return [];
  if (before?.started_at !== drain.started_at) return [nodeEvent(row, 'draining', 'is being drained', at)];
  return before.finished_at === null && drain.finished_at !== null ? [nodeEvent(row, 'drained', 'is drained', at)] : [];
}

/** What a registration sets each time. Left out: "not looked at", so what is known stays; `schedulable` and `deleting_at` are people's. */
const reportedColumns = (input: NodeRegister, at: Times) =>
  ({
    host_ip: input.host_ip,
    max_storage: input.max_storage,
    max_builds: input.max_builds ?? 1,
    agent_version: input.agent_version ?? null,
    boot_id: input.boot_id ?? null,
    arch: input.arch ?? null,
    engine: input.engine === undefined ? null : JSON.stringify(engineOf(input.engine)),
    capabilities: input.capabilities === undefined ? null : JSON.stringify(input.capabilities),
    last_seen_at: at.now,
    ...diskColumn(input),
    ...(input.free_storage === undefined ? {} : { free_storage: input.free_storage }),
    ...(input.copy_rate === undefined ? {} : { copy_rate: input.copy_rate }),
    ...(input.cached === undefined ? {} : { cached: JSON.stringify(input.cached) }),
    ...(input.containers === undefined ? {} : { containers: JSON.stringify(input.containers) }),
  }) satisfies Partial<NewRow<'nodes'>>;

/** A Berth agent that leaves it out has not looked yet; a contract-only agent never will. */
function diskColumn({ disk, agent_version }: NodeRegister): { disk?: string | null } {
  if (disk !== undefined) return { disk: JSON.stringify(diskOf(disk)) };
  return agent_version === undefined ? { disk: null } : {};
}
const DISK_PARTS = ['datasets', 'images', 'build_cache', 'other', 'free', 'total'] as const;
// Without fields that a newer agent may add.
const diskOf = ({ datasets, images, build_cache, other, free, total }: NodeDisk): NodeDisk => ({
  datasets,
  images,
  build_cache,
  other,
  free,
  total,
});
const engineOf = ({ ok, version, error }: NodeEngine): NodeEngine => ({ ok, version, error });
const sameDisk = (a: NodeDisk, b: NodeDisk | null): boolean => b !== null && DISK_PARTS.every((part) => a[part] === b[part]);

/**
 * By the uptime clock. It looked after it was answered: an agent that does not say is taken to have looked as it sent. One that names our
 * last answer to it has looked after what it reported then. Of any other answer it is not known when that was: what is known stays.
 */
function observedColumns(
  { containers, last_answer_at }: NodeRegister,
  at: Times,
  before: Pick<NodeRecord, 'last_seen_at' | 'observed_at'> | null,
): { observed_at?: number; observed_since?: number | null } {
  if (containers === undefined) return {};
  const observed_at = at.uptime;
  if (last_answer_at === undefined || last_answer_at === null) return { observed_at, observed_since: at.uptime };
  if (before === null || before.observed_at === null) return { observed_at };
  // As an earlier version wrote it, by the machine's clock.
  if (before.observed_at > at.uptime) return { observed_at, observed_since: null };
  return Date.parse(last_answer_at) === before.last_seen_at ? { observed_at, observed_since: before.observed_at } : { observed_at };
}

/**
 * A machine that got another address took its containers with it: routes follow those that it names (`deployments`), or all where it
 * does not say. Another machine under this name has other containers, and a route must not lead to a port of a stranger.
 */
async function moveRoutes(tx: Tx, node: Pick<Row<'nodes'>, 'id' | 'host_ip'>, deployments: readonly string[] | null): Promise<void> {
  // First the versions: plans made with the old address would write it back, and one that is being written is waited for.
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
  await tx
    .updateTable('routes')
    .set({ host_ip: node.host_ip })
    .where('node_id', '=', node.id)
    .$if(deployments !== null, (query) => query.where('deployment_id', 'in', [...(deployments ?? [])]))
    .execute();
}

async function nodeRow(db: Db, id: string): Promise<Row<'nodes'>> {
  const row = await db.selectFrom('nodes').selectAll().where('id', '=', id).executeTakeFirst();
  if (row === undefined) throw new DomainError('not_found', 'the node does not exist');
  return row;
}

/** One that belongs to the node alone keeps it no longer: nobody waits for a copy on a node that is to go. */
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

/** A contract-only agent reports no containers: what stands there is known by its deployments alone. */
async function isNeeded(tx: Tx, nodeId: string): Promise<boolean> {
  const live = await tx
    .selectFrom('deployments')
    .select('id')
    .where('node_id', '=', nodeId)
    .where('status', 'in', [...LIVE_STATES])
    .limit(1)
    .execute();
  return live.length > 0;
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
  // Decisions under way still count on them.
  await tx
    .updateTable('projects')
    .set((eb) => ({ flow_version: eb('flow_version', '+', 1) }))
    .where('id', 'in', [...projects])
    .execute();
}
