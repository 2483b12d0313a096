/**
 * Handles a registration that differs from the last one, in one transaction: checks that the sender
 * can register, finds its node, and writes the changes.
 */
import { timingSafeEqual } from 'node:crypto';
import { defined } from '@berth/kit/defined';
import type { NodeRegister } from '@berth/wire/node';
import { LABELS } from '@berth/wire/vocabulary';
import {
  AgentRefused,
  type RegistrationContext,
  registrationRefusal,
  NODE_SECRET,
  type SecretState,
  wantsSecret,
} from '../domain/nodes/agent-identity.ts';
import {
  bootStep,
  type BootStep,
  type Boots,
  type Doubled,
} from '../domain/nodes/duplicate-agents.ts';
import { DomainError } from '../domain/platform/errors.ts';
import { labelledNodes, withEarlier } from '../domain/nodes/renamed-machine.ts';
import type { EarlierNode, NodeRecord } from '../domain/platform/records.ts';
import type { Database } from './engine/database.ts';
import type { Tx } from './engine/tables.ts';
import type { NewId } from './ids.ts';
import { useJoinToken } from './identity/join-tokens.ts';
import { fingerprintOf } from './memory/node-memory.ts';
import { forgetLabelled, noteContainers } from './unmanaged.ts';
import { jsonColumn } from './rows/json.ts';
import { bootsOf } from './rows/node.ts';
import type { NewRow, Row } from './engine/tables.ts';

type NodeRow = Row<'nodes'>;

/** For unit tests of the stores, and for development without AGENT_SECRET. */
export const withoutProof: RegistrationContext = {
  proof: { kind: 'open' },
  requireSecrets: false,
  address: '',
  offlineMs: 120_000,
  newSecret: null,
};

const stateOf = (row: Pick<NodeRow, 'secret_hash' | 'secret_used'>): SecretState => ({
  hash: row.secret_hash,
  used: row.secret_used === 1,
});

/** Compares digests in constant time. Returns false for a node without a secret. */
export function sameSecret(row: Pick<NodeRow, 'secret_hash'> | undefined, hash: string): boolean {
  const stored = row?.secret_hash;
  if (stored === undefined || stored === null || stored.length !== hash.length) return false;
  return timingSafeEqual(Buffer.from(stored), Buffer.from(hash));
}

/**
 * Returns whether a registration that repeats the last one is authorized without further checks.
 */
export function isKnownSender(
  row: NodeRow,
  input: NodeRegister,
  { proof, requireSecrets, newSecret }: RegistrationContext,
): boolean {
  if (proof.kind === 'open') return true;
  if (proof.kind === 'shared')
    return (
      row.secret_hash === null &&
      row.shared_secret === proof.fingerprint &&
      !requireSecrets &&
      !(newSecret !== null && wantsSecret(input))
    );
  if (proof.kind === 'join') return false;
  return (
    row.secret_used === 1 &&
    row.shared_secret === null &&
    row.hostname === input.hostname &&
    row.role === input.role &&
    sameSecret(row, proof.hash)
  );
}

/** The columns that a registration sets. A new node gets defaults for optional columns. */
type NodeValues = Omit<
  NewRow<'nodes'>,
  'id' | 'role' | 'schedulable' | 'cached' | 'containers' | 'created_at'
> & { cached?: string; containers?: string };

type Registration = {
  input: NodeRegister;
  at: number;
  context: RegistrationContext;
  /** Returns the columns that the report sets. `before`: the node's current record. */
  reported: (before: NodeRecord | null) => Omit<NodeValues, 'hostname'>;
  newId: NewId;
  newest: (row: NodeRow) => NodeRecord;
  isSilent: (row: NodeRow) => boolean;
  /**
   * `deployments`: the deployments whose containers the machine has; null if the report does not
   * list them.
   */
  moveRoutes: (row: NodeRow, deployments: readonly string[] | null) => Promise<void>;
};
type Registered = {
  /** The node that lost its name to this one. `before`: its row before the change. */
  displaced: { row: NodeRow; fingerprint: string; before: NodeRow } | null;
  row: NodeRow;
  fingerprint: string;
  before: NodeRow | undefined;
  verdict: 'taken' | 'ignored' | 'refused';
  /** The caller must throw it after the transaction, so that the writes of the transaction stay. */
  refusal: DomainError | null;
  secret: string | null;
  nameTaken: boolean;
};

/**
 * Writes a registration. Throws AgentRefused if it writes no change. The sender decides the
 * outcome:
 *
 *   sender                                               outcome
 *   not authorized (`refusal`)                           AgentRefused; with a shared secret, its
 *                                                        node also records it as a second process
 *   no node has its secret or its name                   taken: a new node
 *   the node's process, its successor or the machine     taken: the node gets the new values
 *   an earlier process of the node, once                 ignored: it can be a late request
 *   a second process beside one that still registers     refused: node_doubled
 *   another machine, and the node is silent              other_node: a new node gets the name, and
 *                                                        the old node an away name (`displaced`)
 */
export async function registerNode(
  db: Database,
  tx: Tx,
  registration: Registration,
): Promise<Registered> {
  const storedNode = await lockedRow(db, tx, registration.input, registration.context);
  const why = await refusal(tx, storedNode, registration);
  if (why !== null) return refuseSender(db, tx, registration, storedNode, why);
  if (storedNode === undefined) return takeReport(db, tx, registration, undefined, null);
  const { verdict, boots } = await stepOf(tx, registration, storedNode);
  switch (verdict) {
    case 'taken':
      return takeReport(db, tx, registration, storedNode, boots);
    case 'ignored':
      return writeBoots(db, tx, storedNode, boots, verdict, null);
    case 'refused':
      return writeBoots(db, tx, storedNode, boots, verdict, doubledError(storedNode));
    case 'other_node': {
      const displaced = await displace(db, tx, storedNode);
      return { ...(await takeReport(db, tx, registration, undefined, null)), displaced };
    }
  }
}

/**
 * Returns which process of the node the sender is, and the resulting verdict (duplicate-agents.ts).
 */
async function stepOf(
  tx: Tx,
  { input, at, context, newest, isSilent }: Registration,
  node: NodeRow,
): Promise<BootStep> {
  return bootStep(
    {
      boot_id: node.boot_id,
      host_ip: node.host_ip,
      last_seen_at: newest(node).last_seen_at,
      isSilent: isSilent(node),
      boots: bootsOf(node),
    },
    {
      boot_id: input.boot_id ?? null,
      host_ip: input.host_ip,
      isProven: await isSameMachine(tx, node, context),
    },
    at,
    context.offlineMs,
  );
}

/**
 * Refuses the sender with AgentRefused. If it used the shared secret, its node first records it as
 * a second process.
 */
async function refuseSender(
  db: Database,
  tx: Tx,
  { input, at, context }: Registration,
  node: NodeRow | undefined,
  why: string,
): Promise<Registered> {
  const problem = new AgentRefused(why);
  if (node === undefined || context.proof.kind !== 'shared') throw problem;
  const stranger = { boot_id: input.boot_id ?? '', host_ip: input.host_ip };
  return writeBoots(db, tx, node, withStranger(bootsOf(node), stranger, at), 'refused', problem);
}

/** Writes the report into the row of `before`, or into a new node if `before` is undefined. */
async function takeReport(
  db: Database,
  tx: Tx,
  registration: Registration,
  before: NodeRow | undefined,
  boots: Boots | null,
): Promise<Registered> {
  const { input, at, context, newId } = registration;
  const id = before?.id ?? newId();
  const newSecret = givesSecret(context, input) ? (context.newSecret?.(id) ?? null) : null;
  const hostname = before === undefined ? input.hostname : await nameFor(tx, before, input);
  const values: NodeValues = {
    ...registration.reported(before === undefined ? null : registration.newest(before)),
    hostname,
    boots: before === undefined ? null : jsonColumn(boots),
    ...(await earlierColumn(tx, before, input)),
    ...(await unlistedColumn(tx, before, input, at)),
    ...secretColumns(registration, before, newSecret?.hash),
  };
  await useProof(tx, registration, { id, hostname });
  const { fingerprint, ...row } =
    before === undefined
      ? await insertNode(db, tx, registration, id, values)
      : await updateNode(db, tx, id, values);
  if (input.containers !== undefined && input.agent_version !== undefined)
    await forgetLabelled(tx, id);
  // A Berth agent lists its containers only after it knows its node. Until then it is unknown which
  // machine has the new address.
  const hasLooked = input.containers !== undefined || input.agent_version === undefined;
  if (before !== undefined && before.host_ip !== row.host_ip)
    await registration.moveRoutes(row, hasLooked ? deploymentsIn(input) : []);
  return {
    displaced: null,
    row,
    fingerprint,
    before,
    verdict: 'taken',
    refusal: null,
    secret: newSecret?.text ?? null,
    nameTaken: hostname !== input.hostname,
  };
}

/** Returns the columns for the proof of identity of the node. A missing column stays unchanged. */
function secretColumns(
  { input, context: { proof } }: Registration,
  before: NodeRow | undefined,
  newHash: string | undefined,
): Partial<NodeValues> {
  const isElsewhere = before !== undefined && before.host_ip !== input.host_ip;
  const unusedYet = newHash === undefined ? undefined : 0;
  return {
    ...defined({
      secret_hash: newHash,
      secret_used: proof.kind === 'node' ? 1 : unusedYet,
      // Clear the admin's reset once it was used, because it admits one machine only.
      secret_reset_at: newHash !== undefined || isElsewhere ? null : undefined,
    }),
    shared_secret: proof.kind === 'shared' ? proof.fingerprint : null,
  };
}

/** Marks a join token as used, and records the address of an admitted contract-only node. */
async function useProof(
  tx: Tx,
  { input, at, context: { proof, requireSecrets, address } }: Registration,
  { id, hostname }: Pick<NodeRow, 'id' | 'hostname'>,
): Promise<void> {
  if (proof.kind === 'join')
    await useJoinToken(tx, proof.token_id, { boot_id: input.boot_id ?? null, node_id: id }, at);
  if (requireSecrets && proof.kind === 'shared')
    await seenFrom(tx, { hostname, role: input.role }, address);
}

const insertNode = (
  db: Database,
  tx: Tx,
  { input, at }: Registration,
  id: string,
  values: NodeValues,
) =>
  tx
    .insertInto('nodes')
    .values({
      id,
      role: input.role,
      schedulable: 1,
      cached: '[]',
      containers: '[]',
      created_at: at,
      ...values,
    })
    .onConflict((oc) => oc.columns(['hostname', 'role']).doUpdateSet(values))
    .returningAll()
    .returning(fingerprintOf(db))
    .executeTakeFirstOrThrow();

const updateNode = (db: Database, tx: Tx, id: string, values: NodeValues) =>
  tx
    .updateTable('nodes')
    .set(values)
    .where('id', '=', id)
    .returningAll()
    .returning(fingerprintOf(db))
    .executeTakeFirstOrThrow();

/** Returns the column `earlier_nodes` if it changes; otherwise the result is empty. */
async function earlierColumn(
  tx: Tx,
  before: NodeRow | undefined,
  { containers = [] }: NodeRegister,
): Promise<{ earlier_nodes?: string }> {
  const labelled = labelledNodes(before?.id ?? null, containers);
  if (labelled.length === 0) return {};
  // The label of a container names only its first node. If the hostname of a machine changed twice,
  // find the node in between through the deployments that moved to it.
  const foreign = containers.filter((c) => c.labels[LABELS.node] !== before?.id);
  const deployments = [...new Set(foreign.flatMap((c) => c.labels[LABELS.deployment] ?? []))];
  const moved =
    deployments.length === 0
      ? []
      : await tx
          .selectFrom('deployments')
          .select('node_id')
          .distinct()
          .where('id', 'in', deployments)
          .execute();
  const ids = new Set([...labelled, ...moved.flatMap(({ node_id }) => node_id ?? [])]);
  if (before !== undefined) ids.delete(before.id);
  const rows = await tx
    .selectFrom('nodes')
    .select(['id', 'boot_id', 'containers'])
    .where('id', 'in', [...ids])
    .execute();
  const others = rows.map((row) => ({
    ...row,
    containers: JSON.parse(row.containers) as NodeRecord['containers'],
  }));
  const earlierNodes = JSON.parse(before?.earlier_nodes ?? '[]') as EarlierNode[];
  const next = withEarlier(earlierNodes, containers, others);
  return next === earlierNodes ? {} : { earlier_nodes: JSON.stringify(next) };
}

/**
 * Handles a Berth agent that was replaced by a contract-only agent, which lists no containers:
 * records the containers and empties the list.
 */
async function unlistedColumn(
  tx: Tx,
  before: NodeRow | undefined,
  input: NodeRegister,
  at: number,
): Promise<{ containers?: string }> {
  if (
    before === undefined ||
    before.agent_version === null ||
    input.agent_version !== undefined ||
    before.containers === '[]'
  )
    return {};
  await noteContainers(
    tx,
    before.id,
    JSON.parse(before.containers) as NodeRecord['containers'],
    at,
  );
  return { containers: '[]' };
}

export const deploymentsIn = ({ containers }: NodeRegister): string[] | null =>
  containers === undefined ? null : containers.flatMap((c) => c.labels[LABELS.deployment] ?? []);

/**
 * Returns whether the sender is the same machine as the node: its secret proves it, or an admin
 * decided it (a join token with a name, or a reset of the secret).
 */
async function isSameMachine(
  tx: Tx,
  before: NodeRow,
  { proof }: RegistrationContext,
): Promise<boolean> {
  if (proof.kind === 'node' || before.secret_reset_at !== null) return true;
  if (proof.kind !== 'join') return false;
  const token = await tx
    .selectFrom('join_tokens')
    .select('name')
    .where('id', '=', proof.token_id)
    .executeTakeFirst();
  return token !== undefined && token.name !== null;
}

/**
 * Returns the new name of a node whose old name now belongs to a different machine. The new name
 * contains the address, which identifies the machine.
 */
const awayName = (hostname: string, host_ip: string): string => `${hostname}~${host_ip}`;

async function displace(
  db: Database,
  tx: Tx,
  before: NodeRow,
): Promise<{ row: NodeRow; fingerprint: string; before: NodeRow }> {
  const name = awayName(before.hostname, before.host_ip);
  const other = await tx
    .selectFrom('nodes')
    .select('id')
    .where('hostname', '=', name)
    .where('role', '=', before.role)
    .executeTakeFirst();
  const { fingerprint, ...row } = await tx
    .updateTable('nodes')
    .set({ hostname: other === undefined ? name : `${name}~${before.id}` })
    .where('id', '=', before.id)
    .returningAll()
    .returning(fingerprintOf(db))
    .executeTakeFirstOrThrow();
  return { row, fingerprint, before };
}

const givesSecret = ({ proof }: RegistrationContext, input: NodeRegister): boolean =>
  (proof.kind === 'shared' || proof.kind === 'join') && wantsSecret(input);

/**
 * Finds and locks the node by its secret, or else by its name. A lock on the name ensures that only
 * one transaction at a time creates a new node.
 */
async function lockedRow(
  db: Database,
  tx: Tx,
  input: NodeRegister,
  { proof }: RegistrationContext,
): Promise<NodeRow | undefined> {
  const query = tx
    .selectFrom('nodes')
    .selectAll()
    .$if(db.capabilities.rowLocks, (q) => q.forUpdate());
  if (proof.kind === 'node') return query.where('id', '=', proof.node_id).executeTakeFirst();
  const byName = query.where('hostname', '=', input.hostname).where('role', '=', input.role);
  let row = await byName.executeTakeFirst();
  if (row === undefined) {
    await db.capabilities.lockName(tx, `node:${input.role} ${input.hostname}`);
    row = await byName.executeTakeFirst();
  }
  if (
    row?.host_ip === input.host_ip ||
    (row !== undefined && row.boot_id !== null && row.boot_id === input.boot_id)
  )
    return row;
  // Search for the away name too: a different machine might have taken the node's name.
  const away = query
    .where('hostname', '=', awayName(input.hostname, input.host_ip))
    .where('role', '=', input.role);
  const own = await away.where('host_ip', '=', input.host_ip).executeTakeFirst();
  return own ?? row;
}

const NEEDS_JOIN_TOKEN =
  'REQUIRE_NODE_SECRETS is on, and this agent supports node secrets: it needs a join token';

/** Returns why this registration is refused, for the log; null if it is accepted. */
async function refusal(
  tx: Tx,
  before: NodeRow | undefined,
  { input, at, context, isSilent }: Registration,
): Promise<string | null> {
  const { proof } = context;
  if (proof.kind === 'open') return null;
  if (proof.kind === 'node') {
    if (before === undefined) return 'the node of this secret does not exist';
    if (!sameSecret(before, proof.hash)) return 'the node has another secret';
    return before.role === input.role ? null : `the secret belongs to a ${before.role} node`;
  }
  const why =
    before === undefined
      ? null
      : registrationRefusal({ secret: stateOf(before), boot_id: before.boot_id }, input);
  if (proof.kind === 'join') {
    const offline = before === undefined || isSilent(before) || before.secret_reset_at !== null;
    return (await joinRefusal(tx, before, offline, { input, at, proof })) ?? why;
  }
  if (!context.requireSecrets) return why;
  if (wantsSecret(input)) return NEEDS_JOIN_TOKEN;
  // Later requests of the agent are checked by the name of its node, which can differ from the
  // machine's name.
  const hostname = before === undefined ? input.hostname : await nameFor(tx, before, input);
  if (!(await isAdmitted(tx, { hostname, role: input.role })))
    return 'REQUIRE_NODE_SECRETS is on and no admin has admitted this contract-only node';
  return why;
}

type Joining = { input: NodeRegister; at: number; proof: { token_id: string; hash: string } };
async function joinRefusal(
  tx: Tx,
  before: NodeRow | undefined,
  offline: boolean,
  { input, at, proof }: Joining,
): Promise<string | null> {
  const token = await tx
    .selectFrom('join_tokens')
    .selectAll()
    .where('id', '=', proof.token_id)
    .executeTakeFirst();
  if (token === undefined || !sameSecret({ secret_hash: token.hash }, proof.hash))
    return 'there is no such join token';
  if (token.expires_at <= at) return 'the join token has expired';
  if (token.role !== input.role) return `the join token is for a ${token.role} node`;
  if (token.name !== null && token.name !== input.hostname)
    return `the join token is for the node ${token.name}`;
  if (!wantsSecret(input) || input.boot_id === undefined)
    return `the agent does not support node secrets (capability ${NODE_SECRET})`;
  if (token.used_at !== null)
    return token.boot_id === input.boot_id && token.node_id === before?.id
      ? null
      : 'the join token was already used';
  // A token without a name admits a new machine. It cannot take over the node of a machine that is
  // online.
  if (before !== undefined && token.name === null && !offline)
    return 'another machine is registered under this name; name it in the join token';
  return null;
}

/**
 * Returns the name for the node: the machine's new hostname, unless a different node has that name.
 */
async function nameFor(tx: Tx, before: NodeRow, input: NodeRegister): Promise<string> {
  if (before.hostname === input.hostname) return input.hostname;
  const other = await tx
    .selectFrom('nodes')
    .select('id')
    .where('hostname', '=', input.hostname)
    .where('role', '=', before.role)
    .executeTakeFirst();
  return other === undefined ? input.hostname : before.hostname;
}

/** Ignores the report: writes only the known processes of this node. */
async function writeBoots(
  db: Database,
  tx: Tx,
  before: NodeRow,
  boots: Boots | null,
  verdict: 'ignored' | 'refused',
  problem: DomainError | null,
): Promise<Registered> {
  const { fingerprint, ...row } = await tx
    .updateTable('nodes')
    .set({ boots: boots === null ? null : JSON.stringify(boots) })
    .where('id', '=', before.id)
    .returningAll()
    .returning(fingerprintOf(db))
    .executeTakeFirstOrThrow();
  return {
    displaced: null,
    row,
    fingerprint,
    before: row,
    verdict,
    refusal: problem,
    secret: null,
    nameTaken: false,
  };
}

/** Longer than the interval between two registrations. */
const PRESENT_MS = 45_000;

function withStranger(
  boots: Boots | null,
  stranger: { boot_id: string; host_ip: string },
  at: number,
): Boots {
  const previous = boots?.doubled ?? null;
  const since = previous?.boot_id === stranger.boot_id ? previous.since : at;
  const doubled: Doubled = { ...stranger, why: 'secret', since, last_seen_at: at };
  // Keep the record of a process that uses this node's identity while it still registers: two
  // processes with one identity are worse than one machine with a wrong secret.
  const keepsPrevious =
    previous?.why === 'boot' && Math.abs(at - previous.last_seen_at) < PRESENT_MS;
  return { previous: boots?.previous ?? null, doubled: keepsPrevious ? previous : doubled };
}

const doubledError = (node: NodeRow): DomainError =>
  new DomainError(
    'node_doubled',
    `another machine, at ${node.host_ip}, is registered as ${node.role} ${node.hostname} and is ` +
      'online; give this machine another name (NODE_NAME)',
  );

async function isAdmitted(
  tx: Tx,
  { hostname, role }: Pick<NodeRow, 'hostname' | 'role'>,
): Promise<boolean> {
  const row = await tx
    .selectFrom('node_admissions')
    .select('id')
    .where('hostname', '=', hostname)
    .where('role', '=', role)
    .executeTakeFirst();
  return row !== undefined;
}

async function seenFrom(
  tx: Tx,
  { hostname, role }: Pick<NodeRow, 'hostname' | 'role'>,
  address: string,
): Promise<void> {
  await tx
    .updateTable('node_admissions')
    .set({ address })
    .where('hostname', '=', hostname)
    .where('role', '=', role)
    .where('address', 'is distinct from', address)
    .execute();
}
