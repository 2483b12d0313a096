/**
 * Records of the control plane. Times are milliseconds since the epoch by the control plane's
 * clock; the API shows them as RFC 3339. Ids are opaque URL-safe strings.
 */
import type { WaitReason } from '../deployments/wait-reason.ts';
import type { Doubled } from '../nodes/duplicate-agents.ts';
import type { DatasetState, MountMode, Skipped, TaskProgress } from '@berth/wire/dataset';
import type {
  CreatedBy,
  DeploymentEvent,
  Health,
  PhaseName,
  Trigger,
} from '@berth/wire/deployment';
import type { FailureCode } from '@berth/wire/errors';
import type {
  CachedDataset,
  NodeDisk,
  NodeEngine,
  ObservedContainer,
  Placement,
} from '@berth/wire/node';
import type { BuildArgs, Env, ProjectPatch } from '@berth/wire/project';
import type { Payload, TaskReport } from '@berth/wire/task';
import type { DeploymentState, NodeRole, Role, TaskKind, TaskState } from '@berth/wire/vocabulary';

/** The settings of a project. Each deployment has a copy of the settings at its request. */
export type ProjectSettings = Required<{
  [K in keyof Omit<ProjectPatch, 'env' | 'build_args'>]: Exclude<ProjectPatch[K], undefined>;
}> & {
  env: Env;
  build_args: BuildArgs;
};

export type ProjectRecord = ProjectSettings & {
  id: string;
  name: string;
  /**
   * Rises with each committed plan of the project. A plan is stale if it was made for another
   * value.
   */
  flow_version: number;
  /** Rises with each change of a secret. */
  secrets_version: number;
  last_generation: number;
  /** Set when DELETE is accepted. The row is removed after the agents have reported. */
  deleting_at: number | null;
  /** Whether the deletion also deletes its volumes. */
  deletes_volumes: boolean;
  /**
   * Set by a stop, null again when a deployment is live. Pushes, new data and drains do not start a
   * stopped project.
   */
  stopped_at: number | null;
  created_at: number;
  updated_at: number;
};

export type Failure = { code: FailureCode; message: string };
/**
 * A node that lost this deployment. A node that stopped reporting is eligible again after its next
 * report. With `error` the node itself reported that it cannot work (engine down, disk full); the
 * deployment then goes to another node.
 */
export type NodeLoss = { node_id: string; at: number; error?: Failure };

/**
 * Time that a deployment has waited in its current state, by the uptime clock
 * (domain/platform/uptime.ts). `state_since` identifies the state; a timer of an earlier state is
 * ignored. `running_since` is null while the deployment waits for a task of Berth.
 */
export type Timer = { state_since: number; ran_ms: number; running_since: number | null };

/**
 * Number of failed removals or starts of its container in a row, and the earliest next attempt by
 * the uptime clock.
 */
export type Retry = { tries: number; not_before: number };

/**
 * A dataset of a release. `version` is null for `readwrite`. `told`: the newest version that its
 * story mentions.
 */
export type PinnedDataset = {
  dataset_id: string;
  name: string;
  mode: MountMode;
  version: number | null;
  told?: number;
};

export type SecretPrint = { name: string; fingerprint: string };

export type StoppedFirst = 'asked' | 'stopped';

export type PhaseRecord = { name: PhaseName; started_at: number; ended_at: number | null };

/**
 * A rollback. `from`: number of the deployment that it replaced. `set_aside`: project settings that
 * differ from the release that came back, each with a digest of its value at that moment. They are
 * no drift, until somebody changes them again.
 */
export type RolledBack = { from: number; set_aside: Readonly<Record<string, string>> };

export type DeploymentRecord = {
  id: string;
  project_id: string;
  generation: number;
  status: DeploymentState;
  settings: ProjectSettings;
  requested_commit: string | null;
  note: string | null;
  /** Null if an earlier version of Berth created the row; also `trigger` and `phases`. */
  created_by: CreatedBy | null;
  trigger: Trigger | null;
  branch: string | null;
  commit_message: string | null;
  commit_author: string | null;
  phases: PhaseRecord[] | null;
  /** The deployment whose release is deployed again, without a build. */
  rollback_of: string | null;
  /** Null: not a rollback, nor a restart or move of one. */
  rolled_back: RolledBack | null;
  error: Failure | null;
  cancel_requested_at: number | null;
  commit: string | null;
  image_tag: string | null;
  image_digest: string | null;
  /**
   * Time at which a clean-up removed its image from the registry, or missed it there; null or
   * absent: the registry has it.
   */
  image_removed_at?: number | null;
  /** No clean-up removed it: the registry lacked it, and each clean-up looks again. */
  image_missing?: boolean;
  /** Architecture of the image in Go’s names, or null if its builder did not report it. */
  image_arch: string | null;
  builder_id: string | null;
  node_id: string | null;
  container_id: string | null;
  host_port: number | null;
  /**
   * Time at which its route was published. The deployment is `running` only after the proxy serves
   * the route.
   */
  route_published_at: number | null;
  placement: Placement | null;
  health: (Omit<Health, 'since'> & { since: number }) | null;
  /** Nodes that lost the current task. */
  losses: NodeLoss[];
  /**
   * Versions of its deploy task, then the versions that the node reports as mounted. Null before.
   */
  datasets: PinnedDataset[] | null;
  /** Secrets that its container got, without values. Null: none, or not started yet. */
  secrets: SecretPrint[] | null;
  /**
   * Text of `waiting_reason`, for people. The story gets a line when it changes. No decision depends
   * on this text.
   */
  waiting: string | null;
  /** Null also in rows of an earlier version; read it by `waitReasonOf`. */
  waiting_reason: WaitReason | null;
  /**
   * Set while it runs and must stop for a newer version (flow/single-writer.ts); `stopped` after
   * its node confirmed it.
   */
  stopped_first: StoppedFirst | null;
  created_at: number;
  state_since: number;
  finished_at: number | null;
  /** Timer of its current state: first the queue, then the proxy. Null before its start. */
  timer: Timer | null;
  retry: Retry | null;
  /**
   * Builds of the project in a row that newer requests superseded, without a version that went live
   * in between.
   */
  builds_given_up: number;
  /**
   * Order of requests across all projects. It never decreases, even if the machine's clock is set
   * back.
   */
  ordinal: number;
  /** Time at which retention removed its log (store/retention.ts), or null. */
  log_removed_at: number | null;
  /** Time at which retention removed its story, tasks and placement, or null. */
  story_removed_at: number | null;
};

/**
 * Fields for lists: without large columns (env, placement, losses) and without fields that only
 * decisions read.
 */
export type DeploymentSummary = Pick<
  DeploymentRecord,
  | 'id'
  | 'project_id'
  | 'generation'
  | 'status'
  | 'requested_commit'
  | 'note'
  | 'created_by'
  | 'trigger'
  | 'branch'
  | 'commit_message'
  | 'commit_author'
  | 'phases'
  | 'rollback_of'
  | 'rolled_back'
  | 'error'
  | 'waiting'
  | 'image_removed_at'
  | 'cancel_requested_at'
  | 'commit'
  | 'image_tag'
  | 'image_digest'
  | 'node_id'
  | 'host_port'
  | 'health'
  | 'datasets'
  | 'created_at'
  | 'finished_at'
  | 'log_removed_at'
  | 'story_removed_at'
> & { domain_prefix: string };

export type TaskRecord<K extends TaskKind = TaskKind> = {
  id: string;
  kind: K;
  status: TaskState;
  /**
   * Null for `sync` and `clean`, which belong to a node and to no project, and for looks before a
   * project exists.
   */
  project_id: string | null;
  /** Null for `sync`, `clean` and `look`. */
  deployment_id: string | null;
  node_id: string;
  attempt: number;
  payload: Payload[K];
  /**
   * The lease of the current attempt. Null until an agent claims the task; contract-only agents
   * never claim.
   */
  lease_token: string | null;
  /**
   * Uptime clock (domain/platform/uptime.ts), like the two deadlines. For an ended task: the time
   * of its end.
   */
  lease_expires_at: number | null;
  /** A task that is not claimed by then is reassigned. */
  queue_deadline_at: number;
  /** A task that has not ended by then fails, whatever its agent reports. */
  wall_deadline_at: number;
  cancel_requested_at: number | null;
  /** The accepted report. An identical repeated report gets the same answer. */
  report: TaskReport | null;
  /** Progress of its copies from the last report. */
  progress: (TaskProgress & { copied_at?: number }) | null;
  created_at: number;
  started_at: number | null;
  finished_at: number | null;
};

/**
 * A node whose last list contained `container`, which a later node reported too. `boot_id`: the old
 * node's process at that time.
 */
export type EarlierNode = { id: string; boot_id: string | null; container: string };

export type NodeRecord = {
  id: string;
  hostname: string;
  role: NodeRole;
  host_ip: string;
  max_storage: number;
  free_storage: number | null;
  max_builds: number;
  /** Null for a contract-only agent. */
  agent_version: string | null;
  boot_id: string | null;
  /** These four are null if the agent does not send them. */
  arch: string | null;
  engine: NodeEngine | null;
  capabilities: string[] | null;
  disk: NodeDisk | null;
  /** Whether it has its own secret. Only that secret is then valid for the node. */
  has_secret: boolean;
  /** Another process that used its name, perhaps long ago. */
  doubled: Doubled | null;
  schedulable: boolean;
  deleting_at: number | null;
  cached: CachedDataset[];
  /** Recent copy rate in bytes per second, or null if it never copied. */
  copy_rate: number | null;
  /** Set by a drain; `finished_at` is set when no deployment is left. */
  drain: DrainRecord | null;
  containers: ObservedContainer[];
  /** Nodes that its machine was before (domain/nodes/renamed-machine.ts). */
  earlier_nodes: readonly EarlierNode[];
  /**
   * Time of the last report of `containers` by the uptime clock (domain/platform/uptime.ts), or
   * null.
   */
  observed_at: number | null;
  /** The agent made that report after this time by the uptime clock; null: unknown. */
  observed_since: number | null;
  last_seen_at: number;
  last_polled_at: number | null;
  created_at: number;
};

/** A join token without its hash. */
export type JoinTokenRecord = {
  id: string;
  role: NodeRole;
  /** The only hostname that can use it, or null for any. */
  name: string | null;
  created_by: string | null;
  created_at: number;
  expires_at: number;
  used_at: number | null;
  /** The node that joined with it. */
  node_id: string | null;
};

/** `address`: the address of the node's last registration. */
export type AdmissionRecord = {
  id: string;
  hostname: string;
  role: NodeRole;
  address: string | null;
  created_at: number;
};

export type DrainRecord = {
  started_at: number;
  finished_at: number | null;
  moved: number;
  /** Moves by project id: the number of tries and the problem of the last one. */
  tries: Record<
    string,
    { count: number; deployment_id: string | null; problem: string | null; at: number }
  >;
};

export type RouteRecord = {
  project_id: string;
  deployment_id: string;
  node_id: string;
  domain_prefix: string;
  host_ip: string;
  host_port: number;
  /**
   * Time at which its container was observed at this address: of two routes with one address, the
   * later one counts.
   */
  published_at: number;
  /** Set while the project is stopped: its host gets a page, and the address is not used. */
  stopped?: true;
};

/**
 * Identity of the share at the first good scan. Later scans must find the same share. `accepted`: a
 * person said that whatever share the next scan finds is the right one.
 */
export type ShareIdentity = {
  marker: string | null;
  mount: { type: string; source: string; root: string } | null;
  accepted?: true;
};

export type DatasetRecord = {
  id: string;
  name: string;
  nfs_path: string;
  status: DatasetState;
  problem: string | null;
  /** The newest version, or null until the first scan has ended. */
  version: number | null;
  manifest_digest: string | null;
  files: number;
  bytes: number;
  skipped: Skipped;
  share: ShareIdentity | null;
  /** Time at which a person or an agent requested a scan that has not started yet. */
  scan_requested_at: number | null;
  scan_full: boolean;
  accept_loss: boolean;
  /**
   * The control plane that scans it. The claim excludes others until `scanning_until` (uptime
   * clock).
   */
  scanning_by: string | null;
  scanning_until: number | null;
  last_scanned_at: number | null;
  next_scan_at: number;
  deleting_at: number | null;
  created_at: number;
  updated_at: number;
};

export type DatasetVersionRecord = {
  dataset_id: string;
  version: number;
  created_at: number;
  files: number;
  bytes: number;
  manifest_digest: string;
};

export type UserRecord = {
  id: string;
  email: string;
  role: Role;
  password_hash: string | null;
  disabled: boolean;
  last_login_at: number | null;
  created_at: number;
};

/** `at`: the last time; `since`: the first time of a line that occurred `count` times. */
export type EventRecord = Omit<DeploymentEvent, 'at' | 'since'> & { at: number; since?: number };

export type LogLineRecord = {
  seq: number;
  at: number;
  stream: 'stdout' | 'stderr' | 'system';
  step: string | null;
  text: string;
};
