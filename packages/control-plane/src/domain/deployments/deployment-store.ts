/**
 * Interface to the deployments in the database. Each method runs its own transaction,
 * and documents its rule and the codes of DomainError that it throws. Implemented in store/.
 */
import type { DeploymentState } from '@berth/wire/vocabulary';
import type { InstanceRecord } from './instance.ts';
import type { Guarded, ProjectAccess } from '../identity/access.ts';
import type { Page, Paged } from '../platform/page.ts';
import type {
  DeploymentRecord,
  DeploymentSummary,
  EventRecord,
  NodeRecord,
  PinnedDataset,
  RouteRecord,
} from '../platform/records.ts';

/**
 * `attention`: selects the newest deployment of each project if it failed, and running deployments
 * that are not healthy.
 */
export type DeploymentFilter = {
  project_id?: string;
  status?: DeploymentState;
  dataset_id?: string;
  ids?: readonly string[];
  attention?: boolean;
};

export type DeploymentStore = {
  /** Throws not_found. */
  get(id: string): Promise<DeploymentRecord>;
  /** Returns the number of deployments in each state. */
  countByStatus(): Promise<Map<DeploymentState, number>>;
  /**
   * Lists deployments, newest first. `access`: only deployments of projects that this caller can
   * see.
   */
  list(
    filter: DeploymentFilter,
    page: Page,
    access?: ProjectAccess,
  ): Promise<Paged<DeploymentSummary>>;
  /**
   * Returns the project of a deployment with the fields for access checks; null if the deployment
   * does not exist.
   */
  projectOf(id: string): Promise<Guarded | null>;
  events(ids: readonly string[]): Promise<Map<string, EventRecord[]>>;
  /** Returns the deployments that are not settled, oldest first. */
  inProgress(): Promise<{ id: string; project_id: string; status: DeploymentState }[]>;
  /** Returns the deployments whose published route is not confirmed yet. */
  awaitingRoute(): Promise<
    { id: string; route_published_at: number; health_path: string | null }[]
  >;
  /** Returns the deployments on the node that are running or have a published route. */
  servingOn(nodeId: string): Promise<DeploymentRecord[]>;
  /**
   * Returns the deployments that a registration can change: `known` are the named deployments,
   * `serving` the deployments that should serve on the node. `routes` has the routes of their
   * projects by project; `elsewhere` has routes of other nodes with the address of this node.
   * Returns null if the registration and these deployments are unchanged since the caller called
   * `markReconciled`. Changes by other control planes are noticed only by `flow.watch`.
   */
  concerning(
    node: NodeRecord,
    named: readonly string[],
  ): Promise<{
    known: DeploymentRecord[];
    serving: DeploymentRecord[];
    routes: ReadonlyMap<string, RouteRecord>;
    elsewhere: RouteRecord[];
    /** Further instances: of these deployments, and those assigned to the node. */
    instances: InstanceRecord[];
    markReconciled: () => void;
  } | null>;
  /**
   * Returns running deployments whose health is not `unknown` yet, on nodes that sent no report of
   * containers within `uptime` (uptime clock). Excludes deployments that went live within `seen`
   * (machine's clock, which might have been set back).
   */
  onSilentNodes(seen: Span, uptime?: Span): Promise<string[]>;
  getMany(ids: readonly string[]): Promise<DeploymentRecord[]>;
  /** Returns at most MAX_RAN deployments of the project that run or ran, newest first. */
  ran(
    projectId: string,
  ): Promise<Pick<DeploymentRecord, 'id' | 'generation' | 'rollback_of' | 'trigger'>[]>;
  /** Returns the running deployments that use this dataset in any mode, oldest first. */
  runningWith(datasetId: string): Promise<DeploymentRecord[]>;
  /** Returns the mounted datasets of all running deployments. */
  mountedNow(): Promise<PinnedDataset[][]>;
};

export type Span = { before: number; after: number };
