/** Everything a decision about one project may look at. Read in one go by FlowStore.facts; never fetched while deciding. */
import type { Uptime } from './uptime.ts';
import type { DatasetRecord, DeploymentRecord, NodeRecord, ProjectRecord, RouteRecord, TaskRecord } from './records.ts';

export type Limits = {
  /** A task must be claimed within this time, else another node gets it. */
  claimMs: number;
  leaseMs: number;
  /** How long a deployment waits for a node that could take it. */
  queueMs: number;
  buildMs: number;
  deployMs: number;
  retireMs: number;
  /** How long the reverse proxy has to take over a published route. */
  routeMs: number;
  /** A node not seen for so long is offline (contract: 2 minutes). */
  offlineMs: number;
  probeSeconds: number;
  /** Lost with their node: after so many a deployment fails. */
  maxLosses: number;
  /** Claims of one task: after so many it fails. */
  maxAttempts: number;
  /** What a cached dataset and a free byte raise a node's score by, and a missing byte lowers it by. */
  weights: { cached: number; missing: number; free: number };
};

export const DEFAULT_LIMITS: Limits = {
  claimMs: 60_000,
  leaseMs: 30_000,
  queueMs: 30 * 60_000,
  buildMs: 45 * 60_000,
  deployMs: 15 * 60_000,
  retireMs: 30 * 60_000,
  routeMs: 120_000,
  offlineMs: 120_000,
  probeSeconds: 60,
  maxLosses: 3,
  maxAttempts: 5,
  weights: { cached: 10, missing: 0.000001, free: 0.0000001 },
};

/** A node and how many unfinished build tasks it has. */
export type NodeFact = NodeRecord & { open_builds: number };

/** A dataset as a decision about a project needs it. */
export type DatasetFact = Pick<
  DatasetRecord,
  'id' | 'name' | 'nfs_path' | 'status' | 'problem' | 'version' | 'manifest_digest' | 'bytes' | 'files'
>;

/**
 * The tasks of a project on one deploy node that have ended: when the last one did, and when the last one did of which nobody
 * said how (lost, or taken away) or that failed to remove something; null: all were reported. Both by the uptime clock.
 */
export type EndedWork = { node_id: string; ended_at: number; unreported_at: number | null };

export type Facts = {
  /** The machine's clock, for what people read. It may jump: deadlines go by `uptime`. */
  now: number;
  uptime: Uptime;
  limits: Limits;
  project: ProjectRecord;
  /** All deployments of the project that are not in a terminal state, oldest first; the one decided about may be terminal and is then not among them. */
  live: DeploymentRecord[];
  /** All open tasks of the project. */
  tasks: TaskRecord[];
  route: RouteRecord | null;
  nodes: NodeFact[];
  /** Those that the project, a live deployment of it, or the release that is to be brought back names. */
  datasets: DatasetFact[];
  /** Where work of the project on deploy nodes ended; only read for one that is replaced stop-first (flow/single-writer.ts). */
  endedWork: EndedWork[];
  /** Node of the newest finished build of the project: its build cache is warm. */
  lastBuilderId: string | null;
  /** Settings of the platform that decide something. */
  platform: {
    registryAddr: string;
    authServiceUrl: string | null;
    /** Addresses of projects follow from these. Left out where no address matters. */
    public?: { url: string; baseDomain: string };
    reservedPrefixes: readonly string[];
    /** Where submodules may come from; empty: anywhere. */
    allowedGitHosts?: readonly string[];
  };
  /** Unused ids, enough for what one plan creates. */
  freshIds: readonly string[];
};
