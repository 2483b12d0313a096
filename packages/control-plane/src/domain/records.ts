/**
 * The nouns as the control plane keeps them. Times are milliseconds since the epoch by the control plane's clock; the API
 * writes them as RFC 3339. Ids are opaque URL-safe strings.
 */
import type { DeploymentEvent, Health } from '@berth/wire/deployment';
import type { FailureCode } from '@berth/wire/errors';
import type { CachedDataset, ObservedContainer, Placement } from '@berth/wire/node';
import type { ProjectPatch } from '@berth/wire/project';
import type { Payload, TaskReport } from '@berth/wire/task';
import type { DeploymentState, NodeRole, Role, TaskKind, TaskState } from '@berth/wire/vocabulary';

/** What a person set about a project; a deployment carries the copy that it was requested with. */
export type ProjectSettings = Required<{ [K in keyof ProjectPatch]: Exclude<ProjectPatch[K], undefined> }>;

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
/** A node that went silent over this deployment; it is asked again only when it was seen after that. */
export type NodeLoss = { node_id: string; at: number };

export type DeploymentRecord = {
  id: string;
  project_id: string;
  generation: number;
  status: DeploymentState;
  settings: ProjectSettings;
  requested_commit: string | null;
  note: string | null;
  /** The deployment whose release is brought back; its image is used and nothing is built. */
  rollback_of: string | null;
  error: Failure | null;
  cancel_requested_at: number | null;
  commit: string | null;
  image_tag: string | null;
  image_digest: string | null;
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
  /** Why it waits, so that the story tells each reason once. */
  waiting: string | null;
  created_at: number;
  state_since: number;
  finished_at: number | null;
};

export type TaskRecord<K extends TaskKind = TaskKind> = {
  id: string;
  kind: K;
  status: TaskState;
  project_id: string;
  deployment_id: string | null;
  node_id: string;
  attempt: number;
  payload: Payload[K];
  /** The lease of the present attempt. Null until an agent claimed the task; contract-only agents never do. */
  lease_token: string | null;
  lease_expires_at: number | null;
  /** Not claimed by then: given to another node. */
  queue_deadline_at: number;
  /** Not ended by then: failed, whatever the agent says. */
  wall_deadline_at: number;
  cancel_requested_at: number | null;
  /** The accepted report, so that the same one again gets the same answer. */
  report: TaskReport | null;
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
  schedulable: boolean;
  deleting_at: number | null;
  cached: CachedDataset[];
  containers: ObservedContainer[];
  /** When `containers` was last reported; null: never. */
  observed_at: number | null;
  last_seen_at: number;
  last_polled_at: number | null;
  created_at: number;
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

export type UserRecord = {
  id: string;
  email: string;
  role: Role;
  password_hash: string | null;
  disabled: boolean;
  last_login_at: number | null;
  created_at: number;
};

export type EventRecord = Omit<DeploymentEvent, 'at'> & { at: number };

export type LogLineRecord = { seq: number; at: number; stream: 'stdout' | 'stderr' | 'system'; step: string | null; text: string };
