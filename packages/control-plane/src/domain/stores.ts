/**
 * What the rest of the control plane may ask of the database. Each method says its rule and the codes of DomainError it
 * throws; none leaks the engine. Implemented in store/, one noun a file. Public methods own their transaction.
 */
import type { NodeRegister } from '@berth/wire/node';
import type { ProjectCreate } from '@berth/wire/project';
import type { TaskProgress } from '@berth/wire/dataset';
import type { LogLineIn, SyncPayload, TaskReport } from '@berth/wire/task';
import type { DeploymentState, HealthState, NodeRole, Role, TaskKind, TaskState } from '@berth/wire/vocabulary';
import type { Entry, SecretState } from './agent-identity.ts';
import type { Relay } from './changes.ts';
import type { DatasetStore } from './dataset-stores.ts';
import type { EventStore } from './event-store.ts';
import type { Facts } from './facts.ts';
import type { RecordChange, RecordGuard } from './guard.ts';
import type { NameFilter, Page, Paged } from './page.ts';
import type { Uptime, UptimeStore } from './uptime.ts';
import type {
  ApiSessionStore,
  ApiTokenStore,
  AuditStore,
  DeviceCodeStore,
  DeviceTokenStore,
  IdempotencyAnswerStore,
  PolicyStore,
  RevokedSessionStore,
  UsedCodeStore,
  UserChange,
} from './identity-stores.ts';
import type { Plan } from './plan.ts';
import type { RetentionStore } from './retention.ts';
import type {
  AdmissionRecord,
  DeploymentRecord,
  DeploymentSummary,
  DrainRecord,
  EventRecord,
  JoinTokenRecord,
  LogLineRecord,
  NodeRecord,
  PinnedDataset,
  ProjectRecord,
  ProjectSettings,
  RouteRecord,
  TaskRecord,
  UserRecord,
} from './records.ts';

export type ProjectStore = {
  /** Defaults of PROJECT_DEFAULTS fill what is left out (`replace`: rolling). Throws name_taken, domain_prefix_taken, validation (a dataset that is unknown or being deleted). */
  create(input: ProjectCreate, now: number): Promise<ProjectRecord>;
  /** Throws not_found. */
  get(id: string): Promise<ProjectRecord>;
  /** Those that there are. */
  getMany(ids: readonly string[]): Promise<ProjectRecord[]>;
  list(page: Page, filter?: NameFilter): Promise<Paged<ProjectRecord>>;
  /** The id of the project with this id, else of the one with this name; null: there is none. */
  idOf(idOrName: string): Promise<string | null>;
  /**
   * Only the given fields change; raises flow_version. `change` may depend on the project as it stands when it is written: it is
   * called inside the transaction, perhaps again, and throws to refuse. A prefix also counts as taken while another project still serves under it.
   * Throws not_found, domain_prefix_taken, being_deleted, validation.
   */
  patch(id: string, change: RecordChange<ProjectRecord, Partial<ProjectSettings>>, now: number): Promise<ProjectRecord>;
  /** Marks it and raises flow_version; repeated: no change. `guard` sees it as it stands and throws to refuse. Throws not_found. */
  markDeleting(id: string, now: number, guard?: RecordGuard<ProjectRecord>): Promise<ProjectRecord>;
  listDeleting(): Promise<ProjectRecord[]>;
  /** Removes the row and all that hangs on it, if it was marked, no task of it is open and no node reports a container of it. Returns whether it is gone. */
  removeIfGone(id: string): Promise<boolean>;
  /** id -> id of the deployment that runs, for those that have one. */
  runningDeployments(ids: readonly string[]): Promise<Map<string, string>>;
};

export type DeploymentStore = {
  /** Throws not_found. */
  get(id: string): Promise<DeploymentRecord>;
  /** How many there are in each state that any is in. */
  countByStatus(): Promise<Map<DeploymentState, number>>;
  /** Newest first. */
  list(filter: { project_id?: string; status?: DeploymentState }, page: Page): Promise<Paged<DeploymentSummary>>;
  events(ids: readonly string[]): Promise<Map<string, EventRecord[]>>;
  /** Ids of deployments that a loop must look at: not terminal and not running. Oldest first. */
  unsettled(): Promise<{ id: string; project_id: string; status: DeploymentState }[]>;
  /** `deploying` with a published route: those whose route waits for the proxy. */
  awaitingRoute(): Promise<{ id: string; route_published_at: number; health_path: string | null }[]>;
  /** Running or with a published route on that node. */
  servingOn(nodeId: string): Promise<DeploymentRecord[]>;
  /**
   * What a register of the node may call for something about: the deployments it named, and those that should serve there. null:
   * it reported the same before, everything was as it should be (`settled` was called), and nothing of it has changed since.
   * With several control planes that is as of the last `flow.watch`.
   */
  concerning(
    node: NodeRecord,
    named: readonly string[],
  ): Promise<{ known: DeploymentRecord[]; serving: DeploymentRecord[]; settled: () => void } | null>;
  /**
   * Running ones whose health is not `unknown` yet, on nodes that have not reported their containers within `uptime`, by that clock. One that
   * went live within `seen` by the machine's clock is left out (a later time is of a clock that was set back since).
   */
  onSilentNodes(seen: Span, uptime?: Span): Promise<string[]>;
  getMany(ids: readonly string[]): Promise<DeploymentRecord[]>;
  /** Running ones that were given this dataset (`datasets` names it, in any mode), oldest first. */
  runningWith(datasetId: string): Promise<DeploymentRecord[]>;
  /** What everything that runs has mounted. */
  mountedNow(): Promise<PinnedDataset[][]>;
};

/** The doors of the flow: read everything a decision needs, write its plan. */
/** The facts that the database holds; the caller adds the others. */
export type StoredFacts = Omit<Facts, 'now' | 'uptime' | 'limits' | 'platform' | 'cacheIndex' | 'freshIds'>;
export type FlowStore = {
  /** Reads the facts of a project. `datasetIds`: additional datasets. Throws not_found (project). */
  facts(projectId: string, datasetIds?: readonly string[]): Promise<StoredFacts>;
  /**
   * All of the plan in one transaction, or nothing: `stale` when the project's flow_version, a deployment's `from` state or
   * a task's attempt/openness is not what the plan was made from. Raises flow_version. Throws domain_prefix_taken when the
   * deployment it creates has the prefix of another project.
   */
  commit(plan: Plan): Promise<'committed' | 'stale'>;
  /**
   * As commit, for a plan that creates a deployment under an Idempotency-Key: key, hash of the body and deployment id are
   * written with it. Two requests with one key: one plan wins, the other is `stale` and finds the key when it looks again.
   */
  commitWithKey(plan: Plan, key: IdempotencyKey): Promise<'committed' | 'stale'>;
  /** Finds what other control planes committed, so that nobody here takes for settled what is not; asks nothing where there are none. */
  watch(): Promise<void>;
  findKey(projectId: string, key: string, now: number): Promise<{ body_hash: string; deployment_id: string } | null>;
};
export type IdempotencyKey = { key: string; body_hash: string; expires_at: number };

/** `id`: a fresh one, used if none is open yet. */
export type NewSync = { id: string; node_id: string; payload: SyncPayload; queue_deadline_at: number; wall_deadline_at: number };
/** Why a task was lost, as `overdue` says it. */
export type Overdue = 'queue' | 'lease' | 'wall' | 'attempts';

export type Span = { before: number; after: number };
/** `lease_expires_at` is by the uptime clock. */
export type Claim = { attempt: number; lease_token: string; lease_expires_at: number };

export type TaskStore = {
  /** Throws not_found. */
  get(id: string): Promise<TaskRecord>;
  /** Open tasks of the node, oldest first; other kinds than build and deploy only if the node sent agent_version. Marks the node as polled. Throws not_found (node). */
  openFor(nodeId: string, now: number): Promise<TaskRecord[]>;
  /** Node id -> a text that changes whenever an open task of the node does: one look for all who wait. */
  openByNode(): Promise<Map<string, string>>;
  /** What `openByNode` last saw of the node, as `openTasksText` writes it; asks nothing. null: it has not looked yet. */
  lastOpen(nodeId: string): string | null;
  /** Raises `attempt`, sets a new lease, adds a line to the story. Throws not_found, task_over, too many attempts: `task_over`. */
  claim(id: string, lease: { token: string; expires_at: number }, now: number, maxAttempts: number): Promise<Claim>;
  /** Throws not_found, stale_lease, task_over. */
  renew(id: string, token: string, expiresAt: number, now: number): Promise<{ cancel_requested: boolean }>;
  /**
   * Open tasks past a deadline, by `uptime`: `queue` (never claimed, and its node was not heard of since `silentSince` or has no request
   * for tasks), `lease`, `wall`, `attempts`.
   */
  overdue(
    at: { uptime: Uptime; now: number; silentSince: number },
    limits: { leaseMs: number; maxAttempts: number },
  ): Promise<{ task: TaskRecord; why: Overdue }[]>;
  /** Keeps how far the copies of a claimed task are, as said last. Gives the task. Throws not_found, stale_lease, task_over. */
  progress(id: string, token: string, progress: TaskProgress, now: number): Promise<TaskRecord>;
  /** Of the open deploy tasks of these deployments what was said last, by deployment. */
  progressOf(deploymentIds: readonly string[]): Promise<Map<string, TaskProgress>>;
  /**
   * A `sync` task for a node: tasks of that kind belong to no project, so no plan makes or ends them. At most one is open for a
   * node, dataset and version: a second request gets the one that is there (`created` false). Throws not_found (node), being_deleted (node).
   */
  createSync(input: NewSync, now: number): Promise<{ task: TaskRecord<'sync'>; created: boolean }>;
  /** The report on a `sync` task ends it. The same one again gets the same answer. Throws not_found, stale_lease, task_over. */
  endSync(id: string, leaseToken: string | null, report: TaskReport, now: number): Promise<{ status: TaskState }>;
  /**
   * A `sync` task that `overdue` found. `lease`: offered to its node again; `queue`, `wall`, `attempts`: it ends as lost. False when
   * it was claimed, renewed or ended since, so that nothing was done.
   */
  loseSync(task: TaskRecord, why: Overdue, now: number): Promise<boolean>;
  /** Of each of these nodes its `sync` tasks, newest first: open ones, and those that ended within the last hour; at most 20 a node. */
  syncsOf(nodeIds: readonly string[], now: number): Promise<Map<string, TaskRecord<'sync'>[]>>;
};

export type LogStore = {
  /** Numbers the lines; returns how many were stored. Beyond the bound (lines and bytes of a deployment) the middle of its log is left out and one line says so. `first`: number of the first line in its attempt, so a batch sent again is stored once. Throws not_found. */
  append(
    deploymentId: string,
    source: { task_id: string; attempt: number; first: number | null },
    lines: readonly LogLineIn[],
    now: number,
  ): Promise<number>;
  /** Lines with seq > after, in order. */
  read(deploymentId: string, after: number, limit: number): Promise<LogLineRecord[]>;
};

export type Registered = {
  node: NodeRecord;
  before: NodeRecord | null;
  secret?: string;
  nameTaken?: true;
  routesMoved?: true;
  displaced?: NodeRecord;
};
export type NodeStanding = { hostname: string; role: NodeRole; secret: SecretState; capabilities: string[] | null };

export type NodeStore = {
  /**
   * The same (hostname, role) keeps its id. Returns the record and what it was before (null: new). Routes of the node follow a
   * changed host_ip. One that says nothing new is only marked as seen; marks are written by `flush`, and reads here know them.
   * The node's own secret finds the node whatever its hostname: it keeps its id and takes the new name, unless another node has that
   * (`nameTaken`). `secret`: the node's own, given out this once. Without `entry` nothing is asked for. `uptime`: the uptime clock,
   * by which `observed_at` goes; left out: `now`. Another machine that may have a silent node's name gets a node of its own; the first
   * keeps its id and all that it has, as `name~address` (`displaced`). Throws AgentRefused, node_doubled.
   */
  register(input: NodeRegister, now: number, entry?: Entry, uptime?: Uptime): Promise<Registered>;
  /** True: this is the node's own secret, as far as is known without a look at the database. False: not known here. */
  shownSecret(id: string, hash: string): boolean;
  /** By what requests for a node are judged; exact. null: there is no such node. */
  standing(id: string): Promise<NodeStanding | null>;
  /** Its agent has shown the secret, so it is not given out again. */
  secretUsed(id: string, hash: string): Promise<void>;
  /** The node's own secret ends; its next register gets another one. Throws not_found. */
  resetSecret(id: string, now: number): Promise<NodeRecord>;
  /** Throws not_found. */
  get(id: string): Promise<NodeRecord>;
  /** Those that there are. */
  getMany(ids: readonly string[]): Promise<NodeRecord[]>;
  list(page: Page, filter?: NameFilter): Promise<Paged<NodeRecord>>;
  /** The node with this id, else those with this host name (`role:hostname`: of that role). */
  named(idOrName: string): Promise<Pick<NodeRecord, 'id' | 'hostname' | 'role'>[]>;
  all(role?: NodeRole): Promise<NodeRecord[]>;
  /** Writes when nodes were last seen and polled, all in one statement. */
  flush(): Promise<void>;
  /** Those under whose name another machine was heard of, maybe long ago. */
  listDoubled(): Promise<NodeRecord[]>;
  /** Those of which `drain` is set, finished or not. */
  listDraining(): Promise<NodeRecord[]>;
  /** Sets `drain` if it still is what the caller read (`expected`); null: it is not, look again. A node that is drained takes no work. Throws not_found. */
  setDrain(id: string, drain: DrainRecord | null, expected: DrainRecord | null): Promise<NodeRecord | null>;
  /** One that takes work is not drained. Throws not_found, being_deleted. */
  setSchedulable(id: string, schedulable: boolean): Promise<NodeRecord>;
  /** Marks it; repeated: no change. Throws not_found. */
  markDeleting(id: string, now: number): Promise<NodeRecord>;
  /** Tells the feed of events which of them came or went, once for each change, whichever control plane looks. Gives how many. */
  announce(states: ReadonlyMap<string, 'online' | 'offline'>): Promise<number>;
  listDeleting(): Promise<NodeRecord[]>;
  /** Removes the row if it was marked, none of its tasks is open (`sync` tasks end as lost with it) and it reported no container of ours (or `force`: tasks are ended as lost). Returns whether it is gone. */
  removeIfGone(id: string, force: boolean): Promise<boolean>;
};

export type NewJoinToken = { id: string; hash: string; role: NodeRole; name: string | null; created_by: string | null; expires_at: number };
export type JoinTokenStore = {
  /** Throws too_many_tokens. */
  create(token: NewJoinToken, now: number): Promise<JoinTokenRecord>;
  /** Those that are not over, newest first; used ones too. */
  list(now: number, page: Page): Promise<Paged<JoinTokenRecord>>;
  /** Throws not_found. */
  remove(id: string): Promise<void>;
  hashOf(id: string): Promise<string | null>;
  sweep(now: number): Promise<number>;
};

export type AdmissionStore = {
  /** Repeated: the one that is there. */
  create(node: { hostname: string; role: NodeRole }, now: number): Promise<AdmissionRecord>;
  list(): Promise<AdmissionRecord[]>;
  /** Throws not_found. */
  remove(id: string): Promise<void>;
  has(hostname: string, role: NodeRole): Promise<boolean>;
  /** Whether an admitted node registered from there last. */
  hasAddress(address: string): Promise<boolean>;
};

/** A route with what the proxy's configuration needs of its project. */
export type PublishedRoute = RouteRecord & { project_name: string; auth_required: boolean };
export type RouteStore = {
  /** All of them. An error is an error: never an empty list in doubt. */
  all(): Promise<PublishedRoute[]>;
};

export type UserStore = {
  /** Addresses are the same whatever their case. */
  findByEmail(email: string): Promise<UserRecord | null>;
  /** Throws not_found. */
  get(id: string): Promise<UserRecord>;
  /** By address. */
  list(page: Page): Promise<Paged<UserRecord>>;
  count(): Promise<number>;
  /** Throws email_taken. */
  create(input: { email: string; role: Role; password_hash: string | null }, now: number): Promise<UserRecord>;
  /**
   * Only what is given changes. Another password ends the user's API sessions; disabling ends them and the device tokens.
   * Throws not_found, last_admin (nobody would be left who is admin and not disabled).
   */
  patch(id: string, change: UserChange, guard?: RecordGuard<UserRecord>): Promise<UserRecord>;
  /** With sessions, API tokens and device tokens; leaves a tombstone of the address. Throws not_found, last_admin. */
  remove(id: string, now: number, guard?: RecordGuard<UserRecord>): Promise<void>;
  /** When an account with this address was deleted last, as long as a session from before could be valid; null: none was. */
  deletedAt(email: string): Promise<number | null>;
  /** Removes tombstones that are no longer needed. Returns how many rows went. */
  sweep(now: number): Promise<number>;
  /** Those of them that there are become admin and not disabled. */
  makeAdmins(emails: readonly string[]): Promise<void>;
  setLastLogin(id: string, now: number): Promise<void>;
};

export type MetaStore = {
  get(key: string): Promise<string | null>;
  /** Sets it unless there is one; returns what stands. */
  setOnce(key: string, value: string): Promise<string>;
  set(key: string, value: string): Promise<void>;
  startingWith(prefix: string): Promise<{ key: string; value: string }[]>;
  /** Overwrites the value before the row goes, so that no copy of the file holds it. */
  remove(key: string): Promise<void>;
};

/** How the database does, for Prometheus. */
export type HealthStore = {
  /** What it takes on the disk, and how much of that is empty. */
  size(): Promise<{ bytes: number; free: number }>;
  /** Told of every statement, when it is over. */
  onQuery(listener: (operation: QueryKind, seconds: number) => void): void;
  /** Open tasks by kind and state, with when the oldest of them was made. */
  openTasks(): Promise<{ kind: TaskKind; status: TaskState; count: number; oldest_at: number }[]>;
  /** Running deployments by health; null: nothing was reported yet. */
  running(): Promise<{ health: HealthState | null; count: number }[]>;
  /** How many nodes of each role were seen since, and how many not; and of `most` with the least free storage how much that is. */
  nodes(since: number, most: number): Promise<NodeFigures>;
};
export const QUERY_KINDS = ['read', 'write', 'commit', 'other'] as const;
export type QueryKind = (typeof QUERY_KINDS)[number];
export type NodeFigures = {
  counts: { role: NodeRole; status: 'online' | 'offline'; count: number }[];
  storage: { role: NodeRole; hostname: string; free: number; max: number }[];
};

export type Stores = {
  projects: ProjectStore;
  deployments: DeploymentStore;
  flow: FlowStore;
  tasks: TaskStore;
  logs: LogStore;
  nodes: NodeStore;
  joinTokens: JoinTokenStore;
  admissions: AdmissionStore;
  datasets: DatasetStore;
  routes: RouteStore;
  users: UserStore;
  apiSessions: ApiSessionStore;
  apiTokens: ApiTokenStore;
  revokedSessions: RevokedSessionStore;
  usedCodes: UsedCodeStore;
  deviceCodes: DeviceCodeStore;
  deviceTokens: DeviceTokenStore;
  audit: AuditStore;
  idempotencyAnswers: IdempotencyAnswerStore;
  events: EventStore;
  /** Name of the newest migration. */
  schema: string;
  policy: PolicyStore;
  meta: MetaStore;
  uptime: UptimeStore;
  retention: RetentionStore;
  health: HealthStore;
  /** Carries what changed to other control planes on the same database; null where it serves only one. */
  relay: Relay | null;
  /** A trivial read, for /readyz. */
  ping(): Promise<void>;
  close(): Promise<void>;
};
