/**
 * Interface to the nodes in the database. Each method runs its own transaction,
 * and documents its rule and the codes of DomainError that it throws. Implemented in store/.
 */
import type { NodeRegister } from '@berth/wire/node';
import type { NodeRole } from '@berth/wire/vocabulary';
import type { NameFilter, Page, Paged } from '../platform/page.ts';
import type { DrainRecord, NodeRecord } from '../platform/records.ts';
import type { Uptime } from '../platform/uptime.ts';
import type { RegistrationContext, SecretState } from './agent-identity.ts';

export type Registered = {
  node: NodeRecord;
  before: NodeRecord | null;
  secret?: string;
  nameTaken?: true;
  routesMoved?: true;
  displaced?: NodeRecord;
  /** A silent deploy node with the new address of this one. */
  silentThere?: NodeRecord;
};

export type NodeStanding = {
  hostname: string;
  role: NodeRole;
  secret: SecretState;
  capabilities: string[] | null;
};

export type NodeStore = {
  /**
   * Registers a node. The same (hostname, role) keeps its id, and its routes follow a changed
   * host_ip. Returns the record and the previous one (null: new). An unchanged registration only
   * marks the node as seen; `flush` writes the marks, and reads include them. The node's own secret
   * identifies it under any hostname: it keeps its id and takes the new name, unless another node
   * has it (`nameTaken`). `secret`: the node's new secret, returned only once. Without `entry` no
   * proof is required. `uptime`: clock of `observed_at`, default `now`. If another machine can take
   * the name of a silent node, it gets a new node; the first one keeps its id and data under the
   * name `name~address` (`displaced`). Throws AgentRefused, node_doubled.
   */
  register(
    input: NodeRegister,
    now: number,
    context?: RegistrationContext,
    uptime?: Uptime,
  ): Promise<Registered>;
  /**
   * Returns whether memory knows this hash as the node's own secret. False can also mean that
   * memory does not know it.
   */
  shownSecret(id: string, hash: string): boolean;
  /**
   * Reads from the database what the authentication of a node needs. Returns null for an unknown
   * node.
   */
  standing(id: string): Promise<NodeStanding | null>;
  /**
   * Returns the nodes that use AGENT_SECRET, at most 1,000. `shared_secret`: fingerprint of the
   * value; null: not known yet.
   */
  withoutSecret(): Promise<SharedSecretNode[]>;
  /** Records that the agent used its secret, so it is not issued again. */
  secretUsed(id: string, hash: string): Promise<void>;
  /** Revokes the node's own secret. Its next registration gets a new one. Throws not_found. */
  resetSecret(id: string, now: number): Promise<NodeRecord>;
  /** Throws not_found. */
  get(id: string): Promise<NodeRecord>;
  /** Returns the existing records; missing ids are skipped. */
  getMany(ids: readonly string[]): Promise<NodeRecord[]>;
  list(page: Page, filter?: NameFilter): Promise<Paged<NodeRecord>>;
  /**
   * Returns the node with this id, else the nodes with this hostname (`role:hostname` selects the
   * role).
   */
  named(idOrName: string): Promise<Pick<NodeRecord, 'id' | 'hostname' | 'role'>[]>;
  all(role?: NodeRole): Promise<NodeRecord[]>;
  /** Writes in one statement when the nodes were last seen and polled. */
  flush(): Promise<void>;
  /** Returns the nodes whose name another machine used, perhaps long ago. */
  listDoubled(): Promise<NodeRecord[]>;
  /** Returns the nodes with a drain, finished or not. */
  listDraining(): Promise<NodeRecord[]>;
  /**
   * Compare-and-set of `drain`; returns null if it differs from `expected`. A drained node is not
   * schedulable. Throws not_found.
   */
  setDrain(
    id: string,
    drain: DrainRecord | null,
    expected: DrainRecord | null,
  ): Promise<NodeRecord | null>;
  /** A schedulable node has no drain. Throws not_found, being_deleted. */
  setSchedulable(id: string, schedulable: boolean): Promise<NodeRecord>;
  /** Marks it for deletion. Idempotent. Throws not_found. */
  markDeleting(id: string, now: number): Promise<NodeRecord>;
  /**
   * Adds an event for each node that went online or offline, once over all control planes. Returns
   * the number of changes.
   */
  announce(states: ReadonlyMap<string, 'online' | 'offline'>): Promise<number>;
  listDeleting(): Promise<NodeRecord[]>;
  /**
   * Removes a marked node if none of its tasks is open (its `sync` tasks end as lost) and it
   * reports no container of Berth. `force`: removes it anyway; its tasks end as lost. Returns
   * whether it was removed.
   */
  removeIfGone(id: string, force: boolean): Promise<boolean>;
};

export type SharedSecretNode = Pick<
  NodeRecord,
  'hostname' | 'role' | 'agent_version' | 'last_seen_at'
> & { shared_secret: string | null };
