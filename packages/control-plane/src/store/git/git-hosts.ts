import {
  BY_LOOK,
  type HostKey,
  type HostKeyChange,
  importable,
  MAX_HOSTS,
  MAX_KEYS,
  type StoredKey,
  trustedKeys,
} from '../../domain/git/git-hosts.ts';
import type { GitHostStore } from '../../domain/git/git-stores.ts';
import { DomainError } from '../../domain/platform/errors.ts';
import type { Database } from '../engine/database.ts';
import type { Tx } from '../engine/tables.ts';
import { writeEvents } from '../events.ts';

/**
 * Maximum number of untrusted keys for projects. When a builder contacts many hosts, the oldest
 * keys are removed.
 */
const MAX_PRESENTED = 500;
/**
 * Maximum number of hosts from `look` tasks without a project. They have a separate limit, because
 * any user can have a builder inspect a repository on any host.
 */
const MAX_LOOKED_HOSTS = 50;

export function createGitHostStore(db: Database): GitHostStore {
  return {
    all: () => allHosts(db),
    of: (host) => hostNamed(db, host),
    change: (host, decide, now) => changeHost(db, host, decide, now),
    remove: (host, now) => removeHost(db, host, now),
    import: (nodeId, keys, now) => importKeys(db, nodeId, keys, now),
    sweep: (before) => sweepPresented(db, before),
  };
}

/** Changes of host keys are rare, so one lock serializes all of them. */
function lockHosts<T>(db: Database, run: (tx: Tx) => Promise<T>): Promise<T> {
  return db.write(async (tx) => {
    await db.capabilities.lockName(tx, 'git-hosts');
    return run(tx);
  });
}

function keysOf(tx: Tx, host: string): Promise<StoredKey[]> {
  return tx
    .selectFrom('git_host_keys')
    .selectAll()
    .where('host', '=', host)
    .orderBy('at')
    .orderBy('fingerprint')
    .execute();
}

async function putKeys(tx: Tx, keys: readonly StoredKey[]): Promise<void> {
  for (const key of keys) {
    await tx
      .deleteFrom('git_host_keys')
      .where('host', '=', key.host)
      .where('fingerprint', '=', key.fingerprint)
      .execute();
    await tx.insertInto('git_host_keys').values(key).execute();
  }
}

async function checkRoom(tx: Tx): Promise<void> {
  const rows = await tx
    .selectFrom('git_host_keys')
    .select('host')
    .distinct()
    .where('state', '!=', 'presented')
    .execute();
  if (rows.length > MAX_HOSTS)
    throw new DomainError(
      'wrong_state',
      `the limit of ${MAX_HOSTS} git hosts is reached; delete a host that no project uses`,
    );
}

async function limitPresented(tx: Tx): Promise<void> {
  const oldest = await tx
    .selectFrom('git_host_keys')
    .select(['host', 'fingerprint'])
    .where('state', '=', 'presented')
    .where('added_by', 'is', null)
    .orderBy('at', 'desc')
    .offset(MAX_PRESENTED)
    .limit(MAX_KEYS)
    .execute();
  for (const { host, fingerprint } of oldest)
    await tx
      .deleteFrom('git_host_keys')
      .where('host', '=', host)
      .where('fingerprint', '=', fingerprint)
      .execute();
  const oldHosts = await tx
    .selectFrom('git_host_keys')
    .select('host')
    .where('state', '=', 'presented')
    .where('added_by', '=', BY_LOOK)
    .groupBy('host')
    .orderBy((eb) => eb.fn.max('at'), 'desc')
    .orderBy('host')
    .offset(MAX_LOOKED_HOSTS)
    .limit(MAX_KEYS)
    .execute();
  for (const { host } of oldHosts)
    await tx
      .deleteFrom('git_host_keys')
      .where('host', '=', host)
      .where('state', '=', 'presented')
      .where('added_by', '=', BY_LOOK)
      .execute();
}

function allHosts(db: Database): Promise<StoredKey[]> {
  return db.kysely
    .selectFrom('git_host_keys')
    .selectAll()
    .orderBy('host')
    .orderBy('at')
    .orderBy('fingerprint')
    .execute();
}

function hostNamed(db: Database, host: string): Promise<StoredKey[]> {
  return db.kysely
    .selectFrom('git_host_keys')
    .selectAll()
    .where('host', '=', host)
    .orderBy('at')
    .orderBy('fingerprint')
    .execute();
}

function changeHost(
  db: Database,
  host: string,
  decide: (stored: readonly StoredKey[]) => HostKeyChange & { event: string | null },
  now: number,
): Promise<StoredKey[]> {
  return lockHosts(db, async (tx) => {
    const before = await keysOf(tx, host);
    const { remove, put: changed, event } = decide(before);
    if (remove.length > 0)
      await tx
        .deleteFrom('git_host_keys')
        .where('host', '=', host)
        .where('fingerprint', 'in', remove)
        .execute();
    await putKeys(tx, changed);
    if (changed.some((key) => key.state === 'presented')) await limitPresented(tx);
    else await checkRoom(tx);
    if (event !== null)
      await writeEvents(db, tx, [{ at: now, kind: 'git_host.trusted', message: event }]);
    return keysOf(tx, host);
  });
}

function removeHost(db: Database, host: string, now: number): Promise<void> {
  return lockHosts(db, async (tx) => {
    const gone = await tx
      .deleteFrom('git_host_keys')
      .where('host', '=', host)
      .returning('fingerprint')
      .execute();
    if (gone.length === 0)
      throw new DomainError(
        'not_found',
        trustedKeys(host, []).length > 0
          ? `${host} has only keys that are built into Berth, which cannot be deleted`
          : `no keys of ${host} are known`,
      );
    await writeEvents(db, tx, [
      { at: now, kind: 'git_host.deleted', message: `the host keys of ${host} were deleted` },
    ]);
  });
}

function importKeys(
  db: Database,
  nodeId: string,
  keys: readonly (HostKey & { host: string })[],
  now: number,
): Promise<number> {
  return lockHosts(db, async (tx) => {
    const open = await tx
      .deleteFrom('git_host_imports')
      .where('node_id', '=', nodeId)
      .returning('node_id')
      .executeTakeFirst();
    if (open === undefined) return 0;
    const stored = await tx.selectFrom('git_host_keys').selectAll().execute();
    const importableKeys = importable(keys, stored, now);
    const room =
      MAX_HOSTS -
      new Set(stored.filter((key) => key.state !== 'presented').map((key) => key.host)).size;
    const hosts = [...new Set(importableKeys.map((key) => key.host))].slice(0, Math.max(0, room));
    await putKeys(
      tx,
      importableKeys.filter((key) => hosts.includes(key.host)),
    );
    if (hosts.length === 0) return 0;
    const node = await tx
      .selectFrom('nodes')
      .select('hostname')
      .where('id', '=', nodeId)
      .executeTakeFirst();
    const message =
      `host keys imported that builder ${node?.hostname ?? nodeId} already trusted: ` +
      hosts.join(', ');
    await writeEvents(db, tx, [{ at: now, kind: 'git_host.imported', node_id: nodeId, message }]);
    return hosts.length;
  });
}

async function sweepPresented(db: Database, before: number): Promise<number> {
  const { numDeletedRows } = await db.writeOne((kysely) =>
    kysely
      .deleteFrom('git_host_keys')
      .where('state', '=', 'presented')
      .where('at', '<', before)
      .executeTakeFirstOrThrow(),
  );
  return Number(numDeletedRows);
}
