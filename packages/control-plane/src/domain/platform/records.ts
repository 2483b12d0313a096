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
import type { Devices, Labels } from '@berth/wire/machine';
import type { FileJob } from '@berth/wire/berth-toml';
import type { BuildArgs, ConfigOrigin, Env, ProjectPatch } from '@berth/wire/project';
import type { Payload, TaskReport } from '@berth/wire/task';
import type { DeploymentState, NodeRole, Role, TaskKind, TaskState } from '@berth/wire/vocabulary';

/** Settings of a project. Each deployment stores a copy from the time of its request. */
export type ProjectSettings = Required<{
  [K in keyof Omit<ProjectPatch, 'env' | 'build_args'>]: Exclude<ProjectPatch[K], undefined>;
}> & {
  env: Env;
  build_args: BuildArgs;
};

export type ProjectRecord = ProjectSettings & {
  id: string;
  name: string;
  /** Increases with each committed plan of the project. A plan for another value is stale. */
  flow_version: number;
  /** Increases with each change of a secret. */
  secrets_version: number;
  /** True if a person set `replace`; false: it has its default, or an older version stored it. */
  replace_set: boolean;
  /** True if a person set `on_node_lost`; false: it has its default. */
  on_node_lost_set: boolean;
  /**
   * Counts that people set, by name of the process. They win over the first value in a file of the
   * repository.
   */
  scaled: Record<string, number>;
  last_generation: number;
  /** Set when DELETE is accepted. The row is removed after the agents have reported. */
  deleting_at: number | null;
  /** True if the deletion also deletes the volumes of the project. */
  deletes_volumes: boolean;
  /**
   * Set when the project is stopped; null again when a deployment is live. Pushes, new data and
   * drains do not start a stopped project.
   */
  stopped_at: number | null;
  /**
   * True if a person stopped the project, whatever its count. A scale then stores the count, and
   * only a deployment that a person requests ends the stop. False while the project is not stopped.
   */
  stopped_by_person: boolean;
  created_at: number;
  updated_at: number;
};

export type Failure = { code: FailureCode; message: string };
/**
 * A node lost the work of this deployment. A node that stopped reporting is eligible again after
 * its next report. `error`: the node itself reported that it cannot work (engine down, disk full);
 * the deployment then goes to another node.
 */
export type NodeLoss = { node_id: string; at: number; error?: Failure };

/**
 * Time that a deployment has waited in its current state, by the uptime clock
 * (domain/platform/uptime.ts). `state_since` identifies the state; a timer of a previous state is
 * ignored. `running_since` is null while the deployment waits for a task of Berth.
 */
export type Timer = { state_since: number; ran_ms: number; running_since: number | null };

/**
 * Number of consecutive failed removals or starts of the container, and the earliest time of the
 * next attempt (uptime clock).
 */
export type Retry = { tries: number; not_before: number };

/**
 * A dataset of a release. `version` is null for `readwrite`. `told`: newest version that the story
 * of the deployment mentions.
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
 * differ from the restored release, each with a digest of its value at the rollback. They do not
 * count as drift until somebody changes them again.
 */
export type RolledBack = { from: number; set_aside: Readonly<Record<string, string>> };

/** The settings and jobs that a release has from berth.toml. `jobs`: absent in a release without jobs there. */
export type ReleaseConfig = ConfigOrigin & { jobs?: readonly FileJob[] };

export type DeploymentRecord = {
  id: string;
  project_id: string;
  generation: number;
  status: DeploymentState;
  settings: ProjectSettings;
  requested_commit: string | null;
  note: string | null;
  /** Null if an older version of Berth created the row, like `trigger` and `phases`. */
  created_by: CreatedBy | null;
  trigger: Trigger | null;
  branch: string | null;
  commit_message: string | null;
  commit_author: string | null;
  phases: PhaseRecord[] | null;
  /** Id of the deployment whose release is deployed again, without a build. */
  rollback_of: string | null;
  /**
   * Null if the deployment is neither a rollback nor a restart or move of a rollback, or if an older
   * version of Berth created it.
   */
  rolled_back: RolledBack | null;
  /** The settings that come from berth.toml; null: none, or not built yet. */
  config: ReleaseConfig | null;
  error: Failure | null;
  cancel_requested_at: number | null;
  commit: string | null;
  image_tag: string | null;
  image_digest: string | null;
  /**
   * Time at which a clean-up removed the image from the registry or found it missing; null or
   * absent: the registry has it.
   */
  image_removed_at?: number | null;
  /**
   * True if the registry lacked the image although no clean-up removed it. Each clean-up checks
   * again.
   */
  image_missing?: boolean;
  /** Architecture of the image in Go’s names, or null if its builder did not report it. */
  image_arch: string | null;
  builder_id: string | null;
  node_id: string | null;
  container_id: string | null;
  host_port: number | null;
  /**
   * Label of the container of the first instance; null: its container has no such label
   * (domain/deployments/instance.ts).
   */
  instance_id: string | null;
  /** Number of the first instance. */
  instance_number: number;
  /** Since when the node of the first instance counts as lost (flow/instances.ts), or null. */
  lost_since: number | null;
  /**
   * Time at which the route was published. The deployment is `running` only once the proxy serves
   * the route.
   */
  route_published_at: number | null;
  placement: Placement | null;
  health: (Omit<Health, 'since'> & { since: number }) | null;
  /** Nodes that lost the current task. */
  losses: NodeLoss[];
  /**
   * Dataset versions of the deploy task, later the versions that the node reports as mounted. Null
   * before the deploy task.
   */
  datasets: PinnedDataset[] | null;
  /** Secrets that the container received, without values. Null: none, or not started yet. */
  secrets: SecretPrint[] | null;
  /**
   * Human-readable text of `waiting_reason`. When it changes, the story gets a line. No decision
   * depends on this text.
   */
  waiting: string | null;
  /** Also null in rows that an older version wrote; read it with `waitReasonOf`. */
  waiting_reason: WaitReason | null;
  /**
   * Set if this running deployment must stop for a newer version (flow/single-writer.ts); `stopped`
   * once its node has confirmed the stop.
   */
  stopped_first: StoppedFirst | null;
  created_at: number;
  state_since: number;
  finished_at: number | null;
  /** When its release command succeeded; null: not yet, or it needs none. */
  release_done_at: number | null;
  /** Timer of the current state: first for the queue, then for the proxy. Null before it starts. */
  timer: Timer | null;
  retry: Retry | null;
  /**
   * Number of consecutive builds of the project that newer requests superseded, since a version
   * last went live.
   */
  builds_given_up: number;
  /**
   * Order of requests across all projects. It never decreases, even if the machine's clock is set
   * back.
   */
  ordinal: number;
  /** Time at which retention began to remove its log (store/retention.ts), or null. */
  log_removed_at: number | null;
  /** Time at which retention began to remove its story, tasks and placement, or null. */
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
  | 'waiting_reason'
  | 'stopped_first'
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
  /** Null for `sync` and `clean`, which belong to a node only, and for looks without a project. */
  project_id: string | null;
  /** Null for `sync`, `clean` and `look`. */
  deployment_id: string | null;
  node_id: string;
  attempt: number;
  payload: Payload[K];
  /**
   * Lease of the current attempt. Null until an agent claims the task; contract-only agents never
   * claim tasks.
   */
  lease_token: string | null;
  /**
   * Time of the uptime clock (domain/platform/uptime.ts), like the two deadlines. For an ended
   * task: the time of its end.
   */
  lease_expires_at: number | null;
  /** The task is reassigned if no agent has claimed it by this time. */
  queue_deadline_at: number;
  /** The task fails if it has not ended by this time, whatever its agent reports. */
  wall_deadline_at: number;
  cancel_requested_at: number | null;
  /** The accepted report. An identical repeated report gets the same answer. */
  report: TaskReport | null;
  /** Progress of dataset copies in the last report. */
  progress: (TaskProgress & { copied_at?: number }) | null;
  created_at: number;
  started_at: number | null;
  finished_at: number | null;
};

/**
 * An old node whose last report contained `container`, which a newer node also reported. `boot_id`:
 * id of the old node's agent process at that time.
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
  /** Null if the agent does not send it, like `engine`, `capabilities` and `disk`. */
  arch: string | null;
  engine: NodeEngine | null;
  capabilities: string[] | null;
  disk: NodeDisk | null;
  /** CPUs of the machine. Null if the agent does not send it, like `memory_bytes`. */
  cpus: number | null;
  memory_bytes: number | null;
  /** The labels of the agent (NODE_LABELS). */
  labels: Labels;
  /** The labels that an admin set; they win. */
  admin_labels: Labels;
  devices: Devices;
  /** True if the node has its own secret. Only that secret is then valid for the node. */
  has_secret: boolean;
  /** Another process that has used the name of this node, even if long ago. */
  doubled: Doubled | null;
  schedulable: boolean;
  deleting_at: number | null;
  cached: CachedDataset[];
  /** Recent copy rate in bytes per second; null if the node never copied. */
  copy_rate: number | null;
  /** Set by a drain; `finished_at` is set once no deployment is left on the node. */
  drain: DrainRecord | null;
  containers: ObservedContainer[];
  /** Nodes as which the same machine registered before (domain/nodes/renamed-machine.ts). */
  earlier_nodes: readonly EarlierNode[];
  /**
   * Time of the last report of `containers` by the uptime clock (domain/platform/uptime.ts), or
   * null.
   */
  observed_at: number | null;
  /** Uptime after which the agent made that report (lower bound); null: unknown. */
  observed_since: number | null;
  last_seen_at: number;
  last_polled_at: number | null;
  created_at: number;
};

/** A join token without its hash. */
export type JoinTokenRecord = {
  id: string;
  role: NodeRole;
  /** The only hostname that can use the token; null: any. */
  name: string | null;
  created_by: string | null;
  created_at: number;
  expires_at: number;
  used_at: number | null;
  /** The node that joined with the token. */
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
  /** Moves by project id: number of attempts, and the problem of the last attempt. */
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
   * Time at which the container was observed at this address. If two routes have the same address,
   * the later one counts.
   */
  published_at: number;
  /**
   * Set while the project is stopped: the proxy serves a page for its host and does not use the
   * address.
   */
  stopped?: true;
  /** The servers beside this address, in the order of their numbers. Absent: none. */
  servers?: readonly RouteServer[];
};

/** The address of a further instance. */
export type RouteServer = {
  instance_id: string;
  node_id: string;
  host_ip: string;
  host_port: number;
};

/**
 * Identity of the share at the first good scan. Later scans must find the same share. `accepted`: a
 * person accepted in advance the share that the next scan finds.
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
  /** Newest version; null until the first scan has ended. */
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
   * Claim token of the control plane that scans the dataset. No other control plane can scan it
   * until `scanning_until` (uptime clock).
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

/** `at`: last occurrence of the line; `since`: first occurrence, if it occurred `count` times. */
export type EventRecord = Omit<DeploymentEvent, 'at' | 'since'> & { at: number; since?: number };

export type LogLineRecord = {
  seq: number;
  at: number;
  stream: 'stdout' | 'stderr' | 'system';
  step: string | null;
  text: string;
};
