/** Interface to the instances in the database. Implemented in store/. */
import type { ProjectAccess } from '../identity/access.ts';
import type { Page, Paged } from '../platform/page.ts';
import type { DeploymentRecord } from '../platform/records.ts';
import type { InstanceRecord } from './instance.ts';

/** An instance, the first one or another one, on a node. */
export type UnmovedInstance = {
  node_id: string;
  deployment_id: string;
  project_id: string;
  project: string;
  process: string;
  number: number;
  /** True: it is lost and waits for its node, because `on_node_lost` is `wait`. */
  is_lost: boolean;
};

/**
 * A running deployment. `count`: how many `web` instances it should have, null while it rests at
 * count 0; `workers`: the counts of its other processes; `is_held`: its lost instances wait for
 * their nodes.
 */
export type ScaledDeployment = Pick<DeploymentRecord, 'id' | 'instance_number' | 'lost_since'> & {
  count: number | null;
  workers: Record<string, number>;
  is_held: boolean;
};

/** `node_id`: only deployments with an instance on this node. */
export type InstanceFilter = { project_id?: string; node_id?: string };

export type InstanceStore = {
  /** Returns the further instances, by number. */
  ofDeployments(ids: readonly string[]): Promise<InstanceRecord[]>;
  /** Returns the instances that are assigned to the node. */
  onNode(nodeId: string): Promise<InstanceRecord[]>;
  all(): Promise<InstanceRecord[]>;
  /**
   * Removes the leftovers of an older version of Berth, which does not know instances: instances of
   * ended deployments, and servers of a route that are not instances of its deployment.
   */
  repair(): Promise<void>;
  /** Returns the draining instances. */
  draining(): Promise<InstanceRecord[]>;
  /**
   * Returns the instances of running deployments that would have to start elsewhere if these nodes
   * were lost, except those that have a replacement already. Skips stopped and deleted projects.
   */
  unmoved(nodeIds: readonly string[]): Promise<UnmovedInstance[]>;
  /**
   * Returns the running deployments whose routes lead to these nodes, each with the node. Skips
   * stopped projects.
   */
  routedTo(nodeIds: readonly string[]): Promise<{ deployment_id: string; node_id: string }[]>;
  /**
   * Lists the deployments that have instances, sorted by the name of their project. `access`: only
   * projects that this caller can see.
   */
  list(
    filter: InstanceFilter,
    page: Page,
    access: ProjectAccess | undefined,
  ): Promise<Paged<{ deployment_id: string; project: string }>>;
  /**
   * Returns the running deployments of projects that want more than one instance, or that have
   * further instances. Skips projects that a person stopped.
   */
  scaled(): Promise<ScaledDeployment[]>;
};
