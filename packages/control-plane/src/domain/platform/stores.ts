/**
 * Interfaces to the database. Each method documents its rule and the codes of DomainError that it
 * throws; none depends on the engine. Implemented in store/, one file for each kind of record. Each
 * method runs its own transaction.
 */
import type { NodeRegister } from '@berth/wire/node';
import type { ProjectCreate } from '@berth/wire/project';
import type { TaskProgress } from '@berth/wire/dataset';
import type { LogLineIn, SyncPayload, TaskReport } from '@berth/wire/task';
import type {
  DeploymentState,
  HealthState,
  NodeRole,
  Role,
  TaskKind,
  TaskState,
} from '@berth/wire/vocabulary';
import type { RegistrationContext, SecretState } from '../nodes/agent-identity.ts';
import type { Guarded, ProjectAccess } from '../identity/access.ts';
import type { BackupStore } from './backups.ts';
import type { CleanUpStore } from '../deployments/clean-up.ts';
import type { Notifier } from './changes.ts';
import type { DatasetStore } from '../data/dataset-stores.ts';
import type { EventStore } from './event-store.ts';
import type { DeployKeyStore, GitHostStore, GitTokenStore } from '../git/git-stores.ts';
import type { StatusStore } from '../git/commit-statuses.ts';
import type { Facts } from '../deployments/facts.ts';
import type { HookStore } from '../git/hooks.ts';
import type { NotificationStore } from '../notifications/notifications.ts';
import type { ProblemStore } from '../notifications/problems.ts';
import type { RecordChange, RecordGuard } from './guard.ts';
import type { NameFilter, Page, Paged, ProjectFilter } from './page.ts';
import type { SecretStore } from '../secrets/secrets.ts';
import type { Uptime, UptimeStore } from './uptime.ts';
import type { UsageStore } from '../nodes/usage.ts';
import type { ExitStore, LogRelay, LogWantStore } from '../deployments/runtime-logs.ts';
import type { ProjectKeyStore } from '../secrets/vault.ts';
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
} from '../identity/identity-stores.ts';
import type { Plan } from '../deployments/plan.ts';
import type { RetentionStore } from '../deployments/retention.ts';
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
import type { RepositoryLookStore } from '../git/repository-looks.ts';
import type { ReportedCopy } from '@berth/wire/volume';
import type { UnmanagedContainer } from '../nodes/unmanaged.ts';
import type { VolumeCopy } from '../data/volume-copy.ts';

export type ProjectStore = {
  /**
   * Creates a project with the defaults of PROJECT_DEFAULTS (`replace`: rolling). Throws
   * name_taken, domain_prefix_taken, domain_taken, validation (a dataset is unknown or being
   * deleted, a member is unknown). `access`: errors name no project that this caller may not see.
   */
  create(input: ProjectCreate, now: number, access?: ProjectAccess): Promise<ProjectRecord>;
  /** Throws not_found. */
  get(id: string): Promise<ProjectRecord>;
  /** Returns the existing records; missing ids are skipped. */
  getMany(ids: readonly string[]): Promise<ProjectRecord[]>;
  /** `access`: only projects that this caller may see. */
  list(page: Page, filter?: ProjectFilter, access?: ProjectAccess): Promise<Paged<ProjectRecord>>;
  /**
   * Returns what decides who may see the project with this id, else with this name; null if there
   * is none.
   */
  guarded(idOrName: string): Promise<Guarded | null>;
  /** Returns those of these ids that the caller may see. A deleted project counts as it was. */
  visible(ids: readonly string[], access: ProjectAccess): Promise<Set<string>>;
  /**
   * Removes members of projects that are gone and of which no event is left. Returns the number of
   * removed rows.
   */
  sweep(now: number): Promise<number>;
  /** Returns the id of the project with this id, else with this name, else null. */
  idOf(idOrName: string): Promise<string | null>;
  /**
   * Changes the given fields and raises flow_version. A function as `change` runs inside the
   * transaction with the current project, possibly more than once, and throws to reject. A prefix
   * is also taken while another project still serves under it. Throws not_found,
   * domain_prefix_taken, domain_taken, being_deleted, validation. `access`: as in `create`.
   */
  patch(
    id: string,
    change: RecordChange<ProjectRecord, Partial<ProjectSettings>>,
    now: number,
    access?: ProjectAccess,
  ): Promise<ProjectRecord>;
  /**
   * Marks it for deletion and raises flow_version. Idempotent. `volumes`: its volumes are deleted
   * too; without it they stay on their nodes. Throws not_found.
   */
  markDeleting(
    id: string,
    now: number,
    options?: { volumes?: boolean; guard?: RecordGuard<ProjectRecord> },
  ): Promise<ProjectRecord>;
  listDeleting(): Promise<ProjectRecord[]>;
  /**
   * Removes a marked project with its data if none of its tasks is open and no node reports a
   * container of it. Returns whether it was removed.
   */
  removeIfGone(id: string): Promise<boolean>;
  /** Returns the id of the running deployment by project id. */
  runningDeployments(ids: readonly string[]): Promise<Map<string, string>>;
};

/**
 * `attention`: the newest deployment of a project if it failed, and running ones that are not
 * healthy.
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
  /** Lists newest first. `access`: only deployments of projects that this caller may see. */
  list(
    filter: DeploymentFilter,
    page: Page,
    access?: ProjectAccess,
  ): Promise<Paged<DeploymentSummary>>;
  /**
   * Returns the project of a deployment, as `guarded` of projects; null if there is no such
   * deployment.
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
   * Returns the deployments that a registration may change: the named ones (`known`), and those
   * that should serve on the node; the routes of their projects by project (`routes`); and the
   * routes of other nodes with the address of this node (`elsewhere`). Returns null if the
   * registration is unchanged since the caller called `markReconciled` and no such deployment
   * changed since. With several control planes that is as of the last `flow.watch`.
   */
  concerning(
    node: NodeRecord,
    named: readonly string[],
  ): Promise<{
    known: DeploymentRecord[];
    serving: DeploymentRecord[];
    routes: ReadonlyMap<string, RouteRecord>;
    elsewhere: RouteRecord[];
    markReconciled: () => void;
  } | null>;
  /**
   * Returns running deployments whose health is not `unknown` yet, on nodes without a report of
   * containers within `uptime` (uptime clock). Excludes deployments that went live within `seen`
   * (machine's clock; it may have been set back since).
   */
  onSilentNodes(seen: Span, uptime?: Span): Promise<string[]>;
  getMany(ids: readonly string[]): Promise<DeploymentRecord[]>;
  /**
   * Returns the newest deployments of the project that run or ran, newest first, at most MAX_RAN.
   */
  ran(
    projectId: string,
  ): Promise<Pick<DeploymentRecord, 'id' | 'generation' | 'rollback_of' | 'trigger'>[]>;
  /** Returns the running deployments that use this dataset in any mode, oldest first. */
  runningWith(datasetId: string): Promise<DeploymentRecord[]>;
  /** Returns the mounted datasets of all running deployments. */
  mountedNow(): Promise<PinnedDataset[][]>;
};

/** The facts that the database holds; the caller adds the others. */
export type StoredFacts = Omit<
  Facts,
  'now' | 'uptime' | 'limits' | 'platform' | 'cacheIndex' | 'freshIds'
>;
/** Reads the facts of a decision and commits its plan. */
export type FlowStore = {
  /**
   * Reads the facts of a project. `datasetIds`: additional datasets. Throws not_found (project).
   */
  facts(projectId: string, datasetIds?: readonly string[]): Promise<StoredFacts>;
  /**
   * Writes the whole plan in one transaction and raises flow_version. Returns `stale` and writes
   * nothing if the project's flow_version, the `from` state of a deployment or the attempt of an
   * open task has changed. Throws domain_prefix_taken if the new deployment has the prefix of
   * another project.
   */
  commit(plan: Plan): Promise<'committed' | 'stale'>;
  /**
   * Like `commit`, and also stores the Idempotency-Key with the hash of the body and the deployment
   * id. Of two requests with one key one commits; the other gets `stale` and finds the key on its
   * next attempt.
   */
  commitWithKey(plan: Plan, key: IdempotencyKey): Promise<'committed' | 'stale'>;
  /**
   * Reads which deployments other control planes changed, and forgets their reconciled marks. Does
   * nothing with one control plane.
   */
  watch(): Promise<void>;
  findKey(
    projectId: string,
    key: string,
    now: number,
  ): Promise<{ body_hash: string; deployment_id: string } | null>;
};
export type IdempotencyKey = { key: string; body_hash: string; expires_at: number };

/**
 * Copies that a node should delete, and copies that it should move out of the way because a move
 * left them behind.
 */
export type VolumeWork = { remove: string[]; setAside: string[]; foreign?: true };
export type LeftWhere = { nodes: readonly string[]; used?: boolean } | { project: string };

/** Containers that contract-only agents may have started (domain/nodes/unmanaged.ts). */
export type UnmanagedStore = {
  /** Returns those that only a person can remove, by name. `used`: with those that serve. */
  left(where: LeftWhere): Promise<UnmanagedContainer[]>;
  /** Records that somebody removed it. Throws not_found. */
  confirm(
    node: { id: string; hostname: string },
    container: string,
    by: string,
    now: number,
  ): Promise<void>;
};

export type VolumeStore = {
  /** Copies of the volumes of a project, oldest first. */
  ofProject(projectId: string): Promise<VolumeCopy[]>;
  /** Copies on a node, by name of the project. Also for the disk of a node. */
  onNode(nodeId: string): Promise<VolumeCopy[]>;
  /** Missing copies that projects use, and those that deleted projects left, by node. */
  missing(): Promise<ReadonlyMap<string, VolumeCopy[]>>;
  /** Projects with a copy that is being received. */
  received(): Promise<string[]>;
  /** By node: a text that changes when other copies on it are to be deleted or set aside. */
  unused(): Promise<ReadonlyMap<string, string>>;
  /**
   * Compares the copies that a node reports with the rows. Returns what the node should delete and
   * set aside. `removed`: copies that the agent deleted; absent if it is of an earlier version.
   */
  report(
    node: { id: string; hostname: string },
    reported: readonly ReportedCopy[],
    now: number,
    removed?: readonly string[],
  ): Promise<VolumeWork>;
  /** Throws not_found; wrong_state for volumes in use. */
  requestDelete(nodeId: string, copyId: string, now: number): Promise<VolumeCopy>;
  /**
   * Forgets a missing copy, and returns it. Throws not_found; wrong_state for others and for
   * volumes in use.
   */
  forget(nodeId: string, copyId: string): Promise<VolumeCopy>;
};

/** `id`: used if no such task is open yet. */
export type NewSync = {
  id: string;
  node_id: string;
  payload: SyncPayload;
  queue_deadline_at: number;
  wall_deadline_at: number;
};
/** The deadline that a lost task exceeded. */
export type Overdue = 'queue' | 'lease' | 'wall' | 'attempts';

export type Span = { before: number; after: number };
/** `lease_expires_at` is by the uptime clock. */
export type Claim = { attempt: number; lease_token: string; lease_expires_at: number };

export type TaskStore = {
  /** Throws not_found. */
  get(id: string): Promise<TaskRecord>;
  /**
   * Returns the open tasks of the node, oldest first, and marks the node as polled. Contract-only
   * agents get only build and deploy tasks. Throws not_found (node).
   */
  openFor(nodeId: string, now: number): Promise<TaskRecord[]>;
  /**
   * Returns a text by node id that changes whenever an open task of the node changes. One query
   * serves all waiters.
   */
  openByNode(): Promise<Map<string, string>>;
  /**
   * Returns the last text of `openByNode` for the node without a query, or null before the first
   * query.
   */
  lastOpen(nodeId: string): string | null;
  /** Returns those of these projects whose volumes are being moved. */
  moving(projectIds: readonly string[]): Promise<Set<string>>;
  /**
   * Raises `attempt`, sets a new lease and adds a line to the story. Throws not_found, task_over
   * (also after too many attempts).
   */
  claim(
    id: string,
    lease: { token: string; expires_at: number },
    now: number,
    maxAttempts: number,
  ): Promise<Claim>;
  /** Throws not_found, stale_lease, task_over. */
  renew(
    id: string,
    token: string,
    expiresAt: number,
    now: number,
  ): Promise<{ cancel_requested: boolean }>;
  /**
   * Returns open tasks past a deadline of the uptime clock. `queue`: never claimed, and its node
   * has been silent since `silentSince` or does not request tasks.
   */
  overdue(
    at: { uptime: Uptime; now: number; silentSince: number },
    limits: { leaseMs: number; maxAttempts: number },
  ): Promise<{ task: TaskRecord; why: Overdue }[]>;
  /**
   * Stores the progress of a claimed task and returns the task. Throws not_found, stale_lease,
   * task_over.
   */
  progress(id: string, token: string, progress: TaskProgress, now: number): Promise<TaskRecord>;
  /** Returns the last progress of the open deploy tasks by deployment. */
  progressOf(deploymentIds: readonly string[]): Promise<Map<string, TaskProgress>>;
  /**
   * Creates a `sync` task for a node. Such tasks belong to no project, so no plan creates or ends
   * them. At most one is open for a node, dataset and version; a second request gets that one
   * (`created` false). Throws not_found (node), being_deleted (node).
   */
  createSync(input: NewSync, now: number): Promise<{ task: TaskRecord<'sync'>; created: boolean }>;
  /**
   * Ends a `sync` task with its report. A repeated report gets the same answer. Throws not_found,
   * stale_lease, task_over.
   */
  endSync(
    id: string,
    leaseToken: string | null,
    report: TaskReport,
    now: number,
  ): Promise<{ status: TaskState }>;
  /**
   * Handles an overdue `sync` task. After `lease` it is offered to its node again; otherwise it
   * ends as lost. Returns false and does nothing if it was claimed, renewed or ended since.
   */
  loseSync(task: TaskRecord, why: Overdue, now: number): Promise<boolean>;
  /**
   * Returns the open `sync` tasks of each node and those that ended within the last hour, newest
   * first, at most 20 for each node.
   */
  syncsOf(nodeIds: readonly string[], now: number): Promise<Map<string, TaskRecord<'sync'>[]>>;
};

export type LogStore = {
  /**
   * Numbers and stores the lines, and returns the number of stored lines. Beyond the limit of a
   * deployment (lines, bytes) the middle of its log is omitted, and one line says so. `first`:
   * number of the first line in its attempt, so a repeated batch is stored once. Throws not_found.
   */
  append(
    deploymentId: string,
    source: { task_id: string; attempt: number; first: number | null },
    lines: readonly LogLineIn[],
    now: number,
  ): Promise<number>;
  /** Returns lines with seq > after, in order. */
  read(deploymentId: string, after: number, limit: number): Promise<LogLineRecord[]>;
};

export type Registered = {
  node: NodeRecord;
  before: NodeRecord | null;
  secret?: string;
  nameTaken?: true;
  routesMoved?: true;
  displaced?: NodeRecord;
  /** A silent deploy node with the new address of this one. */
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
   * Registers a node. The same (hostname, role) keeps its id, and its routes follow a changed
   * host_ip. Returns the record and the previous one (null: new). An unchanged registration only
   * marks the node as seen; `flush` writes the marks, and reads include them. The node's own secret
   * identifies it under any hostname: it keeps its id and takes the new name, unless another node
   * has it (`nameTaken`). `secret`: the node's new secret, returned only once. Without `entry` no
   * proof is required. `uptime`: clock of `observed_at`, default `now`. If another machine may take
   * the name of a silent node, it gets a new node; the first one keeps its id and data under the
   * name `name~address` (`displaced`). Throws AgentRefused, node_doubled.
   */
  register(
    input: NodeRegister,
    now: number,
    context?: RegistrationContext,
    uptime?: Uptime,
  ): Promise<Registered>;
  /**
   * Returns whether memory knows this hash as the node's own secret. False may also mean that
   * memory does not know it.
   */
  shownSecret(id: string, hash: string): boolean;
  /**
   * Reads from the database what the authentication of a node needs. Returns null for an unknown
   * node.
   */
  standing(id: string): Promise<NodeStanding | null>;
  /**
   * Returns the nodes that use AGENT_SECRET, at most 1,000. `shared_secret`: fingerprint of the
   * value; null: not known yet.
   */
  withoutSecret(): Promise<SharedSecretNode[]>;
  /** Records that the agent used its secret, so it is not issued again. */
  secretUsed(id: string, hash: string): Promise<void>;
  /** Revokes the node's own secret. Its next registration gets a new one. Throws not_found. */
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
  /** Writes in one statement when the nodes were last seen and polled. */
  flush(): Promise<void>;
  /** Returns the nodes whose name another machine used, perhaps long ago. */
  listDoubled(): Promise<NodeRecord[]>;
  /** Returns the nodes with a drain, finished or not. */
  listDraining(): Promise<NodeRecord[]>;
  /**
   * Compare-and-set of `drain`; returns null if it differs from `expected`. A drained node is not
   * schedulable. Throws not_found.
   */
  setDrain(
    id: string,
    drain: DrainRecord | null,
    expected: DrainRecord | null,
  ): Promise<NodeRecord | null>;
  /** A schedulable node has no drain. Throws not_found, being_deleted. */
  setSchedulable(id: string, schedulable: boolean): Promise<NodeRecord>;
  /** Marks it for deletion. Idempotent. Throws not_found. */
  markDeleting(id: string, now: number): Promise<NodeRecord>;
  /**
   * Adds an event for each node that went online or offline, once over all control planes. Returns
   * the number of changes.
   */
  announce(states: ReadonlyMap<string, 'online' | 'offline'>): Promise<number>;
  listDeleting(): Promise<NodeRecord[]>;
  /**
   * Removes a marked node if none of its tasks is open (its `sync` tasks end as lost) and it
   * reports no container of Berth. `force`: removes it anyway; its tasks end as lost. Returns
   * whether it was removed.
   */
  removeIfGone(id: string, force: boolean): Promise<boolean>;
};

export type NewJoinToken = {
  id: string;
  hash: string;
  role: NodeRole;
  name: string | null;
  created_by: string | null;
  expires_at: number;
};
export type JoinTokenStore = {
  /** Throws too_many_tokens. */
  create(token: NewJoinToken, now: number): Promise<JoinTokenRecord>;
  /** Lists tokens that have not expired, including used ones, newest first. */
  list(now: number, page: Page): Promise<Paged<JoinTokenRecord>>;
  /** Throws not_found. */
  remove(id: string): Promise<void>;
  storedHashOf(id: string): Promise<string | null>;
  sweep(now: number): Promise<number>;
};

export type AdmissionStore = {
  /** Returns the existing admission on a repeated call. */
  create(node: { hostname: string; role: NodeRole }, now: number): Promise<AdmissionRecord>;
  list(): Promise<AdmissionRecord[]>;
  /** Throws not_found. */
  remove(id: string): Promise<void>;
  has(hostname: string, role: NodeRole): Promise<boolean>;
  /** Returns whether an admitted node registered last from this address. */
  hasAddress(address: string): Promise<boolean>;
};

/** A route with the fields of its project that the proxy's configuration needs. */
export type PublishedRoute = RouteRecord & {
  project_name: string;
  auth_required: boolean;
  domains?: readonly string[];
};
export type RouteStore = {
  /** Returns all routes. Throws if they cannot be read; never returns an empty list instead. */
  all(): Promise<PublishedRoute[]>;
};

/** Owners of custom domains (store/domains.ts). `projects` changes them. */
export type DomainStore = {
  /**
   * Removes domains and domain prefixes whose quarantine is over. Returns the number of rows of
   * domains.
   */
  sweep(now: number): Promise<number>;
  /**
   * Ends the quarantine of a host, and of the prefix that has this host. Throws not_found (neither
   * is kept), wrong_state (a project has or serves it).
   */
  free(host: { domain: string; prefix: string | null }, now: number): Promise<void>;
};

export type UserStore = {
  /** Ignores case. */
  findByEmail(email: string): Promise<UserRecord | null>;
  /** Throws not_found. */
  get(id: string): Promise<UserRecord>;
  /** Lists by address. */
  list(page: Page): Promise<Paged<UserRecord>>;
  count(): Promise<number>;
  /**
   * `provenAt`: when the person proved who they are. Throws email_taken, and unauthenticated if the
   * account was deleted after that.
   */
  create(
    input: { email: string; role: Role; password_hash: string | null },
    now: number,
    provenAt?: number,
  ): Promise<UserRecord>;
  /**
   * Changes the given fields. A new password ends the user's API sessions; disabling also ends the
   * device tokens. Throws not_found, last_admin (no enabled admin would remain).
   */
  patch(id: string, change: UserChange, guard?: RecordGuard<UserRecord>): Promise<UserRecord>;
  /**
   * Removes the user with sessions, API tokens and device tokens, and keeps a tombstone. Throws
   * not_found, last_admin.
   */
  remove(id: string, now: number, guard?: RecordGuard<UserRecord>): Promise<void>;
  /**
   * Returns the last deletion of an account with this address while an older session could still be
   * valid, else null.
   */
  deletedAt(email: string): Promise<number | null>;
  /** Removes expired tombstones. Returns the number of rows. */
  sweep(now: number): Promise<number>;
  /** Makes the existing users among them admins and enables them. */
  makeAdmins(emails: readonly string[]): Promise<void>;
  setLastLogin(id: string, now: number): Promise<void>;
};

export type SharedSecretNode = Pick<
  NodeRecord,
  'hostname' | 'role' | 'agent_version' | 'last_seen_at'
> & { shared_secret: string | null };

export type MetaStore = {
  get(key: string): Promise<string | null>;
  /** Sets the value unless one exists, and returns the stored value. */
  setOnce(key: string, value: string): Promise<string>;
  set(key: string, value: string): Promise<void>;
  startingWith(prefix: string): Promise<{ key: string; value: string }[]>;
  /** Overwrites the value before it removes the row, so that the database file does not keep it. */
  remove(key: string): Promise<void>;
};

/** Counts for /metrics. */
export type MetricsStore = {
  /** Returns the size on disk and the free part of it, in bytes. */
  size(): Promise<{ bytes: number; free: number }>;
  /** Calls the listener after each statement. */
  onQuery(listener: (operation: QueryKind, seconds: number) => void): void;
  /** Returns open tasks by kind and state, with the creation of the oldest one. */
  openTasks(): Promise<{ kind: TaskKind; status: TaskState; count: number; oldest_at: number }[]>;
  /** Returns running deployments by health; null before the first report. */
  running(): Promise<{ health: HealthState | null; count: number }[]>;
  /** Returns the creation of the oldest deployment in each state that is not settled. */
  oldestUnsettled(): Promise<{ status: DeploymentState; created_at: number }[]>;
  /**
   * Counts the nodes of each role that reported since `onlineSince`, and the others. Lists the free
   * storage of the fullest nodes.
   */
  nodes(onlineSince: number, maxStorageRows: number): Promise<NodeFigures>;
};
/** `wait`: for a lock of another program or thread, or for a server that does not answer. */
export const QUERY_KINDS = ['read', 'write', 'commit', 'other', 'wait'] as const;
export type QueryKind = (typeof QUERY_KINDS)[number];
export type NodeFigures = {
  counts: { role: NodeRole; status: 'online' | 'offline'; count: number }[];
  storage: { role: NodeRole; hostname: string; free: number; max: number }[];
};

export type Stores = {
  projects: ProjectStore;
  projectKeys: ProjectKeyStore;
  secrets: SecretStore;
  volumes: VolumeStore;
  unmanaged: UnmanagedStore;
  deployKeys: DeployKeyStore;
  gitTokens: GitTokenStore;
  gitHosts: GitHostStore;
  deployments: DeploymentStore;
  flow: FlowStore;
  tasks: TaskStore;
  logs: LogStore;
  logWants: LogWantStore;
  exits: ExitStore;
  nodes: NodeStore;
  joinTokens: JoinTokenStore;
  admissions: AdmissionStore;
  datasets: DatasetStore;
  routes: RouteStore;
  domains: DomainStore;
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
  hooks: HookStore;
  commitStatuses: StatusStore;
  problems: ProblemStore;
  notifications: NotificationStore;
  /** The name of the newest migration. */
  schema: string;
  policy: PolicyStore;
  backups: BackupStore;
  cleanUps: CleanUpStore;
  repositoryLooks: RepositoryLookStore;
  meta: MetaStore;
  uptime: UptimeStore;
  usage: UsageStore;
  retention: RetentionStore;
  metrics: MetricsStore;
  /**
   * Carries notifications to other control planes on the same database; null if there can be only
   * one.
   */
  notifier: Notifier | null;
  /** Carries lines of runtime logs to other control planes; null if there can be only one. */
  logRelay: LogRelay | null;
  /** Runs a trivial query, for /readyz. */
  ping(): Promise<void>;
  close(): Promise<void>;
};
