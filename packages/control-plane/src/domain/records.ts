/**
 * The nouns as the control plane keeps them. Times are milliseconds since the epoch by the control plane's clock; the API
 * writes them as RFC 3339. Ids are opaque URL-safe strings.
 */
import type { Doubled } from './boots.ts';
import type { DatasetState, MountMode, Skipped, TaskProgress } from '@berth/wire/dataset';
import type { CreatedBy, DeploymentEvent, Health, PhaseName, Trigger } from '@berth/wire/deployment';
import type { FailureCode } from '@berth/wire/errors';
import type { CachedDataset, NodeDisk, NodeEngine, ObservedContainer, Placement } from '@berth/wire/node';
import type { Env, ProjectPatch } from '@berth/wire/project';
import type { Payload, TaskReport } from '@berth/wire/task';
import type { DeploymentState, NodeRole, Role, TaskKind, TaskState } from '@berth/wire/vocabulary';

/** What a person set about a project; a deployment carries the copy that it was requested with. */
export type ProjectSettings = Required<{ [K in keyof Omit<ProjectPatch, 'env'>]: Exclude<ProjectPatch[K], undefined> }> & { env: Env };

export type ProjectRecord = ProjectSettings & {
  id: string;
  name: string;
  /** Rises with every committed plan of this project: what plans are compared-and-set against. */
  flow_version: number;
  last_generation: number;
  /** Set when DELETE was accepted; the row goes when the agents have reported. */
  deleting_at: number | null;
  created_at: number;
  updated_at: number;
};

export type Failure = { code: FailureCode; message: string };
/**
 * A node that lost this deployment. One that went silent is asked again when it was seen after that. With `error` the node itself reported
 * that it could not work (its engine is down, its disk is full); the deployment then goes to another node.
 */
export type NodeLoss = { node_id: string; at: number; error?: Failure };

/**
 * How long a deployment has waited in its present state, by the uptime clock (domain/uptime.ts). `state_since` names the state: a timer of
 * an earlier state counts for nothing. `running_since` is null while it waits for work of Berth itself.
 */
export type Timer = { state_since: number; ran_ms: number; running_since: number | null };

/** Removals or starts of its container that failed in a row, and when, by the uptime clock, the next one may be tried. */
export type Retry = { tries: number; not_before: number };

/** A dataset as a release has it. `version` is null for `readwrite`. `told`: the newer version that its story spoke of last. */
export type PinnedDataset = { dataset_id: string; name: string; mode: MountMode; version: number | null; told?: number };

export type StoppedFirst = 'asked' | 'stopped';

export type PhaseRecord = { name: PhaseName; started_at: number; ended_at: number | null };

export type DeploymentRecord = {
  id: string;
  project_id: string;
  generation: number;
  status: DeploymentState;
  settings: ProjectSettings;
  requested_commit: string | null;
  note: string | null;
  /** Null where an earlier version made the row: created_by, trigger, phases. */
  created_by: CreatedBy | null;
  trigger: Trigger | null;
  branch: string | null;
  commit_message: string | null;
  commit_author: string | null;
  phases: PhaseRecord[] | null;
  /** The deployment whose release is brought back; its image is used and nothing is built. */
  rollback_of: string | null;
  error: Failure | null;
  cancel_requested_at: number | null;
  commit: string | null;
  image_tag: string | null;
  image_digest: string | null;
  /** Go’s name of the architecture that the image was built for; null: its builder did not say. */
  image_arch: string | null;
  builder_id: string | null;
  node_id: string | null;
  container_id: string | null;
  host_port: number | null;
  /** When the route was switched to it; null before. `running` only after the proxy was seen to serve it. */
  route_published_at: number | null;
  placement: Placement | null;
  health: (Omit<Health, 'since'> & { since: number }) | null;
  /** Tasks of the present kind that were lost with their node. */
  losses: NodeLoss[];
  /** What it was given when it went to its node, then what its node says it mounted. Null before. */
  datasets: PinnedDataset[] | null;
  /** Why it waits, for people, so that the story tells each reason once. No decision depends on this text. */
  waiting: string | null;
  /** It serves and was told to stop for a newer version (flow/single-writer.ts): `stopped` once its node has said that it did. */
  stopped_first: StoppedFirst | null;
  created_at: number;
  state_since: number;
  finished_at: number | null;
  /** The deadline of its present state: the queue, then the proxy. Null: not begun. */
  timer: Timer | null;
  retry: Retry | null;
  /** Builds of the project that newer requests ended, one after the other, without one that went live between them. */
  builds_given_up: number;
  /** Order of the requests of all projects; does not go back when the machine's clock does. */
  ordinal: number;
  /** When retention removed its log; its story, tasks and placement (store/retention.ts). Null: they are there. */
  log_removed_at: number | null;
  story_removed_at: number | null;
};

/** What lists show: without the columns that grow with env, nodes and failures, and without what only decisions read. */
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
  | 'error'
  | 'waiting'
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
  /** Null for `sync`, which belongs to a node alone. */
  project_id: string | null;
  deployment_id: string | null;
  node_id: string;
  attempt: number;
  payload: Payload[K];
  /** The lease of the present attempt. Null until an agent claimed the task; contract-only agents never do. */
  lease_token: string | null;
  /** This and the two deadlines by the uptime clock (domain/uptime.ts). Of a task that has ended: when it did. */
  lease_expires_at: number | null;
  /** Not claimed by then: given to another node. */
  queue_deadline_at: number;
  /** Not ended by then: failed, whatever the agent says. */
  wall_deadline_at: number;
  cancel_requested_at: number | null;
  /** The accepted report, so that the same one again gets the same answer. */
  report: TaskReport | null;
  /** How far its copies are, as its agent said last. */
  progress: (TaskProgress & { copied_at?: number }) | null;
  created_at: number;
  started_at: number | null;
  finished_at: number | null;
};

export type NodeRecord = {
  id: string;
  hostname: string;
  role: NodeRole;
  host_ip: string;
  max_storage: number;
  free_storage: number | null;
  max_builds: number;
  /** null: an agent that knows the contract alone. */
  agent_version: string | null;
  boot_id: string | null;
  /** These four are null where the agent does not send them. */
  arch: string | null;
  engine: NodeEngine | null;
  capabilities: string[] | null;
  disk: NodeDisk | null;
  /** Whether it has a secret of its own: then nothing else speaks for it. */
  has_secret: boolean;
  /** Another process that runs under its name; may be old. */
  doubled: Doubled | null;
  schedulable: boolean;
  deleting_at: number | null;
  cached: CachedDataset[];
  /** Bytes a second of its copies of late; null: it never copied. */
  copy_rate: number | null;
  /** Set while it is being emptied; `finished_at` when nothing was left. */
  drain: DrainRecord | null;
  containers: ObservedContainer[];
  /** When `containers` was last reported, by the uptime clock (domain/uptime.ts); null: never. */
  observed_at: number | null;
  last_seen_at: number;
  last_polled_at: number | null;
  created_at: number;
};

/** Without its hash. */
export type JoinTokenRecord = {
  id: string;
  role: NodeRole;
  /** The only hostname that may use it; null: any. */
  name: string | null;
  created_by: string | null;
  created_at: number;
  expires_at: number;
  used_at: number | null;
  /** The node that joined by it. */
  node_id: string | null;
};

/** `address`: where that node registered from last. */
export type AdmissionRecord = { id: string; hostname: string; role: NodeRole; address: string | null; created_at: number };

export type DrainRecord = {
  started_at: number;
  finished_at: number | null;
  moved: number;
  /** Project id -> how often its move was tried, and why the last one failed. */
  tries: Record<string, { count: number; deployment_id: string | null; problem: string | null; at: number }>;
};

export type RouteRecord = {
  project_id: string;
  deployment_id: string;
  node_id: string;
  domain_prefix: string;
  host_ip: string;
  host_port: number;
  published_at: number;
};

/** What the share was when it was first seen well; the base that is looked at later must be the same. */
export type ShareIdentity = { marker: string | null; mount: { type: string; source: string; root: string } | null };

export type DatasetRecord = {
  id: string;
  name: string;
  nfs_path: string;
  status: DatasetState;
  problem: string | null;
  /** The newest one; null until the first scan has ended. */
  version: number | null;
  manifest_digest: string | null;
  files: number;
  bytes: number;
  skipped: Skipped;
  share: ShareIdentity | null;
  /** Asked for by a person or an agent and not begun yet. */
  scan_requested_at: number | null;
  scan_full: boolean;
  accept_loss: boolean;
  /** Which control plane scans it, and until when, by the uptime clock, nobody else may. */
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

/** `at`: the last time; `since`: the first time of a line that came `count` times. */
export type EventRecord = Omit<DeploymentEvent, 'at' | 'since'> & { at: number; since?: number };

export type LogLineRecord = { seq: number; at: number; stream: 'stdout' | 'stderr' | 'system'; step: string | null; text: string };
