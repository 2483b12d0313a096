/**
 * All input of a decision about one project. FlowStore.facts reads everything in one call; a
 * decision fetches nothing itself.
 */
import type { CacheIndex } from '../nodes/cache-index.ts';
import type { GitCredentials } from '../nodes/build-needs.ts';
import type { InstanceRecord } from './instance.ts';
import type { Room } from '../nodes/room.ts';
import type { TakenAddresses } from '../nodes/taken-address.ts';
import type { SecretRecord } from '../secrets/secrets.ts';
import type { UnmanagedContainer } from '../nodes/unmanaged-containers.ts';
import type { Uptime } from '../platform/uptime.ts';
import type { VolumeCopy } from '../data/volume-copy.ts';
import type {
  DatasetRecord,
  DatasetVersionRecord,
  DeploymentRecord,
  NodeRecord,
  ProjectRecord,
  RouteRecord,
  TaskRecord,
} from '../platform/records.ts';

export type Limits = {
  /** A task that no node claims within this time is reassigned. */
  claimMs: number;
  leaseMs: number;
  /** Longest wait of a deployment for an eligible node. */
  queueMs: number;
  buildMs: number;
  deployMs: number;
  retireMs: number;
  /** Time limit of a `look` task. */
  lookMs: number;
  /** The reverse proxy must apply a published route within this time. */
  routeMs: number;
  /**
   * A node that has not reported for this long is offline (docs/contract.md "Limits": 2 minutes).
   */
  offlineMs: number;
  /**
   * Instances on a node whose agent is silent for this long start on other nodes; null: never.
   */
  failoverMs: number | null;
  /** How long the node of a lost lease can return and go on with its command. */
  returnMs: number;
  probeSeconds: number;
  /**
   * A deployment fails after nodes have lost its work this many times (NodeLoss: the lease expired
   * or the node failed).
   */
  maxLosses: number;
  /** A task fails after this many claims. */
  maxAttempts: number;
  /**
   * Weights of the placement score: points added for each cached dataset and each free byte, and
   * subtracted for each missing byte.
   */
  weights: { cached: number; missing: number; free: number };
  /** Part of a node's memory that the memory limits of its containers may use together. */
  memoryOvercommit: number;
};

export const DEFAULT_LIMITS: Limits = {
  claimMs: 60_000,
  leaseMs: 30_000,
  queueMs: 30 * 60_000,
  buildMs: 45 * 60_000,
  deployMs: 15 * 60_000,
  retireMs: 30 * 60_000,
  lookMs: 6 * 60_000,
  routeMs: 120_000,
  offlineMs: 120_000,
  failoverMs: 30_000,
  returnMs: 10 * 60_000,
  probeSeconds: 120,
  maxLosses: 3,
  maxAttempts: 5,
  weights: { cached: 10, missing: 0.000001, free: 0.0000001 },
  memoryOvercommit: 1,
};

/** A node with the number of its open build tasks. */
export type NodeFact = NodeRecord & { open_builds: number };

/** The fields of a dataset that a decision needs. */
export type DatasetFact = Pick<
  DatasetRecord,
  | 'id'
  | 'name'
  | 'nfs_path'
  | 'status'
  | 'problem'
  | 'version'
  | 'manifest_digest'
  | 'bytes'
  | 'files'
>;

/**
 * Ended tasks of a project on one deploy node; times are by the uptime clock. `ended_at`: end of
 * the last task. `claimed_at`: end of the last task that an agent had claimed or reported; null:
 * none. `unreported_at`: end of the last task without a report (lost, cancelled) or with a failed
 * container removal; null: none.
 */
export type EndedWork = {
  node_id: string;
  ended_at: number;
  claimed_at: number | null;
  unreported_at: number | null;
};

export type Facts = {
  /** The machine's clock, for times that people read. It can jump, so deadlines use `uptime`. */
  now: number;
  uptime: Uptime;
  limits: Limits;
  project: ProjectRecord;
  /** All deployments of the project that are not in a terminal state, oldest first. */
  live: DeploymentRecord[];
  /** Further instances of live deployments. Absent: none. */
  instances?: readonly InstanceRecord[];
  /** All open tasks of the project. */
  tasks: TaskRecord[];
  route: RouteRecord | null;
  nodes: NodeFact[];
  /** Datasets of the project, of its live deployments, and of the release for a rollback. */
  datasets: DatasetFact[];
  /**
   * The dataset versions of running deployments that are not the newest of their dataset. Absent:
   * none.
   */
  versions?: readonly DatasetVersionRecord[];
  /**
   * Ended tasks by deploy node. Only read for stop-first projects (flow/single-writer.ts), for
   * stopped projects (flow/stop.ts), and while the container of a running deployment does not have
   * its final name yet (flow/observe.ts).
   */
  endedWork: EndedWork[];
  /** The builder of the project's newest finished build, which has a warm build cache. */
  lastBuilderId: string | null;
  /**
   * Git credentials of the project. Only read if a deployment waits for a builder; null otherwise.
   */
  gitCredentials: GitCredentials | null;
  /**
   * True if new builds wait for a clean-up of the registry. Only read if a deployment waits for a
   * builder.
   */
  buildsHeld?: boolean;
  /** Secrets of the project, without values. */
  secrets: readonly SecretRecord[];
  /** Settings of the platform that affect decisions. */
  platform: {
    registryAddr: string;
    authServiceUrl: string | null;
    /** Base of the projects' addresses. Unset in tests that need no address. */
    public?: { url: string; baseDomain: string };
    reservedPrefixes: readonly string[];
    /** Hosts from which submodules can come; empty: any host. */
    allowedGitHosts?: readonly string[];
  };
  /** Nodes whose agents are silent now, before they count as offline. Absent: none. */
  overdue?: ReadonlySet<string>;
  /** Silent nodes whose address another machine has now. Absent: none. */
  takenAddresses?: TakenAddresses;
  /** Index of the datasets that nodes have cached, for placement. */
  cacheIndex: CacheIndex;
  /** Copies of the project's volumes. Only read if the project or a live deployment has volumes. */
  volumes: readonly VolumeCopy[];
  /**
   * Runs that a node has, so that they can write to the volumes. Read with the volumes. Absent: none.
   */
  runs?: readonly { id: string; node_id: string }[];
  /**
   * Memory and devices that Berth's containers hold on the nodes. Only read if a deployment waits for a node and needs
   * memory or devices.
   */
  room?: Room;
  /** The project's containers on nodes with a contract-only agent. Absent: none. */
  unmanaged?: readonly UnmanagedContainer[];
  /** Unused ids, enough for one plan. */
  freshIds: readonly string[];
};
