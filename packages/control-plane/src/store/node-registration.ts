/**
 * Handles a registration with news, in one transaction: may this sender register, as which node,
 * and what is written.
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

/** Compares digests in constant time. A node without a secret matches nothing. */
export function sameSecret(row: Pick<NodeRow, 'secret_hash'> | undefined, hash: string): boolean {
  const stored = row?.secret_hash;
  if (stored === undefined || stored === null || stored.length !== hash.length) return false;
  return timingSafeEqual(Buffer.from(stored), Buffer.from(hash));
}

/** Returns whether a registration without news is authorized without a closer check. */
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

type Registration = {
  input: NodeRegister;
  at: number;
  context: RegistrationContext;
  reported: (
    before: NodeRecord | null,
  ) => Omit<
    NewRow<'nodes'>,
    'id' | 'hostname' | 'role' | 'schedulable' | 'cached' | 'containers' | 'created_at'
  >;
  newId: NewId;
  newest: (row: NodeRow) => NodeRecord;
  isSilent: (row: NodeRow) => boolean;
  /** `deployments`: those whose containers the machine has; null: it does not say. */
  moveRoutes: (row: NodeRow, deployments: readonly string[] | null) => Promise<void>;
};
type Registered = {
  /** Gave its name up for this one. `before`: as it was. */
  displaced: { row: NodeRow; fingerprint: string; before: NodeRow } | null;
  row: NodeRow;
  fingerprint: string;
  before: NodeRow | undefined;
  verdict: 'taken' | 'ignored' | 'refused';
  /** Throw it after the transaction, so that its writes stay. */
  refusal: DomainError | null;
  secret: string | null;
  nameTaken: boolean;
};

/** Writes a registration. Throws AgentRefused if nothing of it is written. */
export async function registerNode(
  db: Database,
  tx: Tx,
  registration: Registration,
): Promise<Registered> {
  const { input, at, context, reported, newId } = registration;
  const known = await lockedRow(db, tx, input, context);
  const why = await refusal(tx, known, registration);
  if (why !== null) {
    if (known === undefined || context.proof.kind !== 'shared') throw new AgentRefused(why);
    const stranger = { boot_id: input.boot_id ?? '', host_ip: input.host_ip };
    return writeBoots(
      db,
      tx,
      known,
      withStranger(bootsOf(known), stranger, at),
      'refused',
      new AgentRefused(why),
    );
  }
  const { last_seen_at } = known === undefined ? { last_seen_at: 0 } : registration.newest(known);
  const step: BootStep =
    known === undefined
      ? { verdict: 'taken', boots: null }
      : bootStep(
          {
            boot_id: known.boot_id,
            host_ip: known.host_ip,
            last_seen_at,
            isSilent: registration.isSilent(known),
            boots: bootsOf(known),
          },
          {
            boot_id: input.boot_id ?? null,
            host_ip: input.host_ip,
            isProven: await isSameMachine(tx, known, context),
          },
          at,
          context.offlineMs,
        );
  if (known !== undefined && (step.verdict === 'ignored' || step.verdict === 'refused')) {
    const problem = step.verdict === 'refused' ? doubledError(known) : null;
    return writeBoots(db, tx, known, step.boots, step.verdict, problem);
  }
  const displaced =
    known !== undefined && step.verdict === 'other_node' ? await displace(db, tx, known) : null;
  const before = displaced === null ? known : undefined;

  const id = before?.id ?? newId();
  const given = givesSecret(context, input) ? (context.newSecret?.(id) ?? null) : null;
  const hostname = before === undefined ? input.hostname : await nameFor(tx, before, input);
  const values = {
    ...reported(before === undefined ? null : registration.newest(before)),
    hostname,
    boots: before === undefined || step.boots === null ? null : JSON.stringify(step.boots),
    ...(await earlierColumn(tx, before, input)),
    ...(await unlistedColumn(tx, before, input, at)),
    ...(given === null ? {} : { secret_hash: given.hash, secret_used: 0, secret_reset_at: null }),
    // An admin's word lets one machine in.
    ...defined({
      secret_reset_at: before === undefined || before.host_ip === input.host_ip ? undefined : null,
      secret_used: context.proof.kind === 'node' ? 1 : undefined,
    }),
    shared_secret: context.proof.kind === 'shared' ? context.proof.fingerprint : null,
  };
  if (context.proof.kind === 'join')
    await useJoinToken(
      tx,
      context.proof.token_id,
      { boot_id: input.boot_id ?? null, node_id: id },
      at,
    );
  if (context.requireSecrets && context.proof.kind === 'shared')
    await seenFrom(tx, { hostname, role: input.role }, context.address);
  const { fingerprint, ...row } =
    before === undefined
      ? await tx
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
          .executeTakeFirstOrThrow()
      : await tx
          .updateTable('nodes')
          .set(values)
          .where('id', '=', id)
          .returningAll()
          .returning(fingerprintOf(db))
          .executeTakeFirstOrThrow();
  if (input.containers !== undefined && input.agent_version !== undefined)
    await forgetLabelled(tx, id);
  // A Berth agent lists its containers only after it knows its node. Until then nobody knows which
  // machine has the new address.
  const hasLooked = input.containers !== undefined || input.agent_version === undefined;
  if (before !== undefined && before.host_ip !== row.host_ip)
    await registration.moveRoutes(row, hasLooked ? deploymentsIn(input) : []);
  const secret = given?.text ?? null;
  return {
    displaced,
    row,
    fingerprint,
    before,
    verdict: 'taken',
    refusal: null,
    secret,
    nameTaken: hostname !== input.hostname,
  };
}

/** Without news the column stays as it is. */
async function earlierColumn(
  tx: Tx,
  before: NodeRow | undefined,
  { containers = [] }: NodeRegister,
): Promise<{ earlier_nodes?: string }> {
  const labelled = labelledNodes(before?.id ?? null, containers);
  if (labelled.length === 0) return {};
  // A label keeps the first node. A machine whose hostname changed twice was also the node that its
  // deployments moved to in between.
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
  const known = JSON.parse(before?.earlier_nodes ?? '[]') as EarlierNode[];
  const next = withEarlier(known, containers, others);
  return next === known ? {} : { earlier_nodes: JSON.stringify(next) };
}

/** The Berth agent of the node was replaced by a contract-only one, which lists no containers. */
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
 * Returns whether the sender is the node: its secret proves it, or an admin decided it (join token
 * with a name, reset secret).
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
 * The name of a node whose own name another machine has now: the address tells which machine it is.
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
 * Finds and locks the node: by its secret, else by its name. A lock on the name lets one
 * transaction at a time create a new node.
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
  // It lost the name to another machine, and kept its node.
  const away = query
    .where('hostname', '=', awayName(input.hostname, input.host_ip))
    .where('role', '=', input.role);
  const own = await away.where('host_ip', '=', input.host_ip).executeTakeFirst();
  return own ?? row;
}

/** Returns why this registration is refused, for the log; null: it is accepted. */
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
  if (wantsSecret(input))
    return 'REQUIRE_NODE_SECRETS is on, and this agent supports node secrets: it needs a join token';
  // The later requests of the agent are checked by the name of its node, which may differ from the
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
  // A token without a name admits a new machine. It does not take a node from a machine that is
  // online.
  if (before !== undefined && token.name === null && !offline)
    return 'another machine is registered under this name; name it in the join token';
  return null;
}

/** Returns the node's name: the machine's new name, unless another node has it. */
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

/** Ignores the report and writes only the known processes of this name. */
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

/** Longer than the time between two registrations. */
const PRESENT_MS = 45_000;

function withStranger(
  boots: Boots | null,
  stranger: { boot_id: string; host_ip: string },
  at: number,
): Boots {
  const previous = boots?.doubled ?? null;
  const since = previous?.boot_id === stranger.boot_id ? previous.since : at;
  const doubled: Doubled = { ...stranger, why: 'secret', since, last_seen_at: at };
  // A present process that alternates with the node's own process is the more important problem.
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
