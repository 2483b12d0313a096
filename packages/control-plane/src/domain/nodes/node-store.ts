/**
 * Interface to the nodes in the database. Each method runs its own transaction,
 * and documents its rule and the codes of DomainError that it throws. Implemented in store/.
 */
import type { NodePatch } from '@berth/wire/machine';
import type { NodeRegister } from '@berth/wire/node';
import type { NodeRole } from '@berth/wire/vocabulary';
import type { NameFilter, Page, Paged } from '../platform/page.ts';
import type { DrainRecord, NodeRecord } from '../platform/records.ts';
import type { Uptime } from '../platform/uptime.ts';
import type { Room } from './room.ts';
import type { RegistrationContext, SecretState } from './agent-identity.ts';
import type { HeardNode } from './failover.ts';

export type Registered = {
  node: NodeRecord;
  before: NodeRecord | null;
  secret?: string;
  nameTaken?: true;
  routesMoved?: true;
  displaced?: NodeRecord;
  /** A silent deploy node that has the same address as the new address of this node. */
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
   * Records that the agent sent a request now. `at`: by the uptime clock. Writes nothing with one
   * control plane. Returns false if the cache in memory has no such node.
   */
  heard(id: string, at: number): boolean;
  /** The same for a node that is not in the cache. Returns false for an unknown node. */
  heardOnce(id: string, at: number): Promise<boolean>;
  /** Returns when the agents of all deploy nodes were last heard. */
  heardNodes(): Promise<HeardNode[]>;
  /**
   * Registers a node. A node with the same (hostname, role) keeps its id, and its routes follow a
   * changed host_ip. Returns the record and the previous record (null: new node). An unchanged
   * registration only marks the node as seen; `flush` writes these marks, and reads include them.
   * The node's own secret identifies it under any hostname: it keeps its id and takes the new name,
   * unless another node has that name (`nameTaken`). `secret`: the node's new secret, returned only
   * once. Without `context` no proof is required. `uptime`: clock of `observed_at`, default `now`.
   * A machine that takes over the name of a silent node gets a new node; the silent node keeps its
   * id and data under the name `name~address` (`displaced`). Throws AgentRefused, node_doubled.
   */
  register(
    input: NodeRegister,
    now: number,
    context?: RegistrationContext,
    uptime?: Uptime,
  ): Promise<Registered>;
  /**
   * Returns whether the cache in memory has this hash as the node's own secret. False can also mean
   * that the cache has no entry.
   */
  shownSecret(id: string, hash: string): boolean;
  /**
   * Reads the data for the authentication of a node from the database. Returns null for an unknown
   * node.
   */
  standing(id: string): Promise<NodeStanding | null>;
  /**
   * Returns the nodes that use AGENT_SECRET, at most 1,000. `shared_secret`: fingerprint of the
   * AGENT_SECRET that the node sent; null: not known yet.
   */
  withoutSecret(): Promise<SharedSecretNode[]>;
  /** Records that the agent has used its secret, so that the secret is not issued again. */
  secretUsed(id: string, hash: string): Promise<void>;
  /**
   * Revokes the node's own secret. The node gets a new one at its next registration. Throws
   * not_found.
   */
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
  /** Writes the times at which nodes were last seen and polled, in one statement. */
  flush(): Promise<void>;
  /** Returns the nodes whose name another machine has used, even if long ago. */
  listDoubled(): Promise<NodeRecord[]>;
  /** Returns the nodes with a drain, finished or not. */
  listDraining(): Promise<NodeRecord[]>;
  /**
   * Sets `drain` by compare-and-set; returns null if the stored value differs from `expected`. A
   * drained node is not schedulable. Throws not_found.
   */
  setDrain(
    id: string,
    drain: DrainRecord | null,
    expected: DrainRecord | null,
  ): Promise<NodeRecord | null>;
  /**
   * Makes the node schedulable or not. Making it schedulable clears its drain. Throws not_found,
   * being_deleted.
   */
  setSchedulable(id: string, schedulable: boolean): Promise<NodeRecord>;
  /**
   * Sets and removes labels of admins. Throws not_found, being_deleted, validation (each bad label,
   * or too many).
   */
  setLabels(id: string, patch: NodePatch['labels']): Promise<NodeRecord>;
  /** Returns the memory and the devices that deployments have on the nodes. */
  room(): Promise<Room>;
  /**
   * Returns the number of deployments on nodes with a known memory that have no memory limit:
   * placement counts 0 bytes for each. 0 if none has a limit.
   */
  countUnlimited(): Promise<number>;
  /** Marks the node for deletion. Idempotent. Throws not_found. */
  markDeleting(id: string, now: number): Promise<NodeRecord>;
  /**
   * Adds an event for each node that went online or offline. Each change yields one event, even
   * with several control planes. Returns the number of changes.
   */
  announce(states: ReadonlyMap<string, 'online' | 'offline'>): Promise<number>;
  listDeleting(): Promise<NodeRecord[]>;
  /**
   * Removes a marked node if it has no open task except `sync` tasks (which end as lost) and
   * reports no container of Berth. `force`: removes it anyway; all its tasks end as lost. Returns
   * whether the node was removed.
   */
  removeIfGone(id: string, force: boolean): Promise<boolean>;
};

export type SharedSecretNode = Pick<
  NodeRecord,
  'hostname' | 'role' | 'agent_version' | 'last_seen_at'
> & { shared_secret: string | null };
