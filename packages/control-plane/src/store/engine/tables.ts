/** The types of the tables that migrations/ create. rows/ converts rows to records. */
import type { AuditOutcome, AuditVia } from '@berth/wire/audit';
import type { DatasetChange } from '@berth/wire/dataset';
import type { DeviceScope } from '@berth/wire/gateway';
import type { FailureCode } from '@berth/wire/errors';
import type { SecretDelivery, SecretScope } from '@berth/wire/secret';
import type { Verdict } from '@berth/wire/hook';
import type { NotificationKind, ProblemKind } from '@berth/wire/notification';
import type { RuntimeStream } from '@berth/wire/runtime';
import type { HealthState, Role } from '@berth/wire/vocabulary';
import type { Generated, Insertable, Kysely, Selectable, Transaction } from 'kysely';
import type { InstanceRecord } from '../../domain/deployments/instance.ts';
import type { CleanUpRecord } from '../../domain/deployments/clean-up.ts';
import type { CommitState, StatusRecord } from '../../domain/git/commit-statuses.ts';
import type { DeployKeyRecord, GitTokenRecord } from '../../domain/git/git-stores.ts';
import type { HookRecord } from '../../domain/git/hooks.ts';
import type { DeviceCodeStatus } from '../../domain/identity/identity-records.ts';
import type { StoredKey } from '../../domain/git/git-hosts.ts';
import type {
  AdmissionRecord,
  DatasetRecord,
  DatasetVersionRecord,
  DeploymentRecord,
  JoinTokenRecord,
  NodeRecord,
  ProjectRecord,
  RouteRecord,
  TaskRecord,
  UserRecord,
} from '../../domain/platform/records.ts';
import type { Machine } from '../../domain/nodes/machine.ts';
import type { DeviceLease } from '../../domain/nodes/room.ts';
import type { JobRecord } from '../../domain/runs/job-store.ts';
import type { RunRecord } from '../../domain/runs/run-store.ts';
import type { UnmanagedContainer } from '../../domain/nodes/unmanaged-containers.ts';
import type { VolumeCopy } from '../../domain/data/volume-copy.ts';

/** 0 or 1, on both engines. */
type Flag = number;
/** Milliseconds since the epoch, by the machine's clock. */
type Ms = number;
/** Milliseconds by the uptime clock (domain/platform/uptime.ts). Never compare it with `Ms`. */
type UptimeMs = number;
type Json = string;

/**
 * The columns of a record: a flag becomes 0 or 1, and an object or a list becomes JSON
 * (rows/columns.ts converts both ways).
 */
export type Columns<R> = { [K in keyof R]: Column<Exclude<R[K], undefined>> };
export type Column<T> =
  | Extract<T, string | number | null>
  | (Extract<T, boolean> extends never ? never : Flag)
  | (Exclude<T, string | number | boolean | null> extends never ? never : Json);

/** The columns of `error`. */
export type FailureColumns = { error_code: FailureCode | null; error_message: string | null };
/** The columns of `health`. */
export type HealthColumns = {
  health_status: HealthState | null;
  health_since: Ms | null;
  health_detail: string | null;
  /** JSON of the cause, with the `health_since` that it belongs to. */
  health_cause: Json | null;
};

type Optional =
  | 'waiting'
  | 'task_id'
  | 'node_id'
  | 'removed'
  | 'missing'
  | 'bytes_before'
  | 'bytes_after'
  | 'error_code'
  | 'error_message'
  | 'started_at'
  | 'finished_at';

export type Tables = {
  projects: Columns<Omit<ProjectRecord, 'stopped_by_person'>> & {
    /**
     * 1 if a person stopped the project, 0 if only its count is 0. Null while it is not stopped, and
     * after a stop by an earlier version (rows/project.ts).
     */
    stopped_by_person: Generated<Flag | null>;
    /**
     * Increased when `auth_required` is turned on: older session cookies no longer open the
     * project.
     */
    auth_epoch: Generated<number>;
  };
  /**
   * `members` of projects, for queries. A project without rows is visible to every user. The rows
   * of a deleted project are kept while the feed has its events (store/project-access.ts).
   */
  project_members: { project_id: string; user_id: string; role: Role };
  /** Dataset versions that a node keeps for a project (domain/data/data-copies.ts). */
  dataset_pins: { project_id: string; node_id: string; dataset_id: string; version: number };
  /**
   * Custom domains in use (`domains` of projects, outside BASE_DOMAIN), and domains in quarantine: a
   * project gave them up recently, and no other project can have them yet. The row outlives its
   * project.
   */
  domain_claims: {
    host: string;
    /** Changes each time a project gets the domain: session cookies are bound to it. */
    id: string;
    project_id: string;
    claimed_at: Ms;
    /** Null while the domain is in use. */
    released_at: Ms | null;
  };
  /**
   * The same for domain prefixes. A prefix that its project gave up can still be in use until the
   * project's next deployment is live.
   */
  prefix_claims: {
    prefix: string;
    id: string;
    project_id: string;
    claimed_at: Ms;
    /** Null while the prefix is in use. */
    released_at: Ms | null;
  };
  /**
   * The key that seals the values of a project, wrapped by a key of SECRETS_KEY (secrets/vault.ts).
   */
  project_keys: { project_id: string; wrapped: string; wrapped_by: string; created_at: Ms };
  /** Keys for values that belong to no project, wrapped in the same way. */
  platform_keys: { name: string; wrapped: string; wrapped_by: string; created_at: Ms };
  /**
   * `sealed`: encrypted with the project's key. `delivery`: the API calls it `as`, which is a
   * reserved word in SQL.
   */
  project_secrets: {
    project_id: string;
    name: string;
    sealed: string;
    fingerprint: string;
    scope: SecretScope;
    delivery: SecretDelivery;
    /** Size of the plain value in bytes. */
    bytes: number;
    /** E-mail of the person who set the secret. */
    set_by: string | null;
    set_at: Ms;
  };
  /** Copies of volumes on nodes (domain/data/volumes.ts). They outlive their project. */
  volume_copies: Omit<VolumeCopy, 'names' | 'sizes' | 'seen' | 'missing_since'> & {
    names: Json;
    sizes: Generated<Json>;
    seen: Generated<Json | null>;
    /**
     * `reported_at`: when the node first reported the copy. `delete_asked_at`: when the node was
     * first asked to delete a copy that it had.
     */
    reported_at: Generated<Ms | null>;
    delete_asked_at: Generated<Ms | null>;
    missing_since: Generated<Ms | null>;
  };
  deploy_keys: DeployKeyRecord;
  git_tokens: GitTokenRecord;
  /** ssh host keys that builders found (domain/git/git-hosts.ts). */
  git_host_keys: {
    host: string;
    fingerprint: string;
    key_type: string | null;
    state: StoredKey['state'];
    added_by: string | null;
    at: Ms;
  };
  /** Builders that can still import the host keys that they trusted. */
  git_host_imports: { node_id: string };
  deployments: Columns<
    Omit<DeploymentRecord, 'error' | 'health' | 'image_missing' | 'image_removed_at' | 'ordinal'>
  > &
    FailureColumns &
    HealthColumns & {
      /**
       * Copy of settings.domain_prefix, to find the deployments that might still publish this host
       * name.
       */
      domain_prefix: string;
      /** A copy of the value in `settings`, for sums by node. */
      memory_bytes: number | null;
      /** Order of the requests; null in rows that an older version wrote. */
      ordinal: number | null;
      /** When retention had left only the record. */
      thinned_at: Ms | null;
      /**
       * Key of the deployment's settings in kept_settings; null if this row contains the settings.
       */
      settings_digest: string | null;
      /**
       * When a clean-up began to remove the deployment's image from the registry. `image_deleting`
       * is 1 until the registry has confirmed the deletion.
       */
      image_removed_at: Ms | null;
      image_deleting: Flag | null;
      /**
       * 1 if the registry did not have the image at the last clean-up that checked
       * (`image_removed_at`: since when). The next clean-up checks again.
       */
      image_missing: Flag | null;
    };
  kept_settings: { project_id: string; digest: string; settings: Json };
  /**
   * Written only by store/story.ts. A repeated line is one row: `count` occurrences from `first_at`
   * (null for a single occurrence) to `at`.
   */
  deployment_events: {
    id: Generated<number>;
    deployment_id: string;
    at: Ms;
    kind: string;
    message: string;
    count: Generated<number>;
    first_at: Ms | null;
  };
  tasks: Columns<TaskRecord> & {
    /** Order of creation, also within one plan. */
    seq: Generated<number>;
  };
  nodes: Columns<
    Omit<NodeRecord, 'has_secret' | 'doubled' | 'earlier_nodes' | 'admin_labels' | keyof Machine>
  > & {
    cpus: Generated<number | null>;
    memory_bytes: Generated<number | null>;
    /** JSON; null: none. The same for `admin_labels` and `devices`. */
    labels: Generated<Json | null>;
    admin_labels: Generated<Json | null>;
    devices: Generated<Json | null>;
    /** JSON (domain/nodes/renamed-machine.ts). */
    earlier_nodes: Json | null;
    /** SHA-256 of the node's secret in hex; null if it has none. */
    secret_hash: string | null;
    /** 1 after the agent has used the secret. */
    secret_used: Flag | null;
    /** When an admin revoked the secret; null again after a new secret is issued. */
    secret_reset_at: Ms | null;
    /**
     * Fingerprint of the AGENT_SECRET value in the last registration; null if the node sent its own
     * secret, or none.
     */
    shared_secret: string | null;
    /** Other agent processes with this node's name (domain/nodes/duplicate-agents.ts). */
    boots: Json | null;
    /** The state that the feed of events announced last: `online`, `offline`. */
    announced: string | null;
    /**
     * When a control plane last heard the agent, by the uptime clock; null with one control plane.
     */
    heard_at: Ms | null;
    /** When the node got its address, by the uptime clock; null: unknown. */
    addressed_at: Ms | null;
  };
  join_tokens: JoinTokenRecord & {
    hash: string;
    /** Boot id of the agent process that used the token. */
    boot_id: string | null;
  };
  /**
   * Contract-only nodes that can register with the shared secret while REQUIRE_NODE_SECRETS is on.
   */
  node_admissions: AdmissionRecord;
  datasets: Columns<Omit<DatasetRecord, 'scan_full' | 'accept_loss'>> & {
    /** Bitmasks by scan (store/datasets/scan-flags.ts). */
    scan_full: number;
    accept_loss: number;
  };
  /** Visible versions: the row is inserted after the history and tree objects of the version. */
  dataset_versions: DatasetVersionRecord;
  /** `body`: the deflated text of the object. */
  dataset_trees: { dataset_id: string; digest: string; body: Buffer };
  /**
   * `path` is encoded (wire/tree.ts). If the path is too long for the index, `path` has its
   * beginning and `long_path` the whole path (history-path.ts). The time is in `dataset_versions`.
   */
  dataset_history: {
    dataset_id: string;
    version: number;
    path: string;
    long_path: string | null;
    change: DatasetChange;
    size: number | null;
    checksum: string | null;
    previous_checksum: string | null;
  };
  /** Further instances of deployments (domain/deployments/instance.ts). */
  instances: Columns<InstanceRecord>;
  routes: Omit<RouteRecord, 'stopped' | 'servers'> & {
    /** JSON: the servers beside the first one; null: none. */
    servers: Generated<Json | null>;
    /** 1 if the project is stopped: its host shows the page of a stopped project. */
    stopped: Generated<Flag>;
  };
  users: Columns<UserRecord>;
  /**
   * Tombstones: sessions of this address from before the deletion are invalid. A tombstone is
   * removed after the last of these sessions has expired.
   */
  deleted_users: { email: string; deleted_at: Ms; expires_at: Ms };
  /** Sessions of the gateway: every session cookie with this id is invalid. */
  revoked_sessions: { id: string; email: string; revoked_at: Ms; expires_at: Ms };
  used_codes: { id: string; expires_at: Ms };
  device_codes: {
    /**
     * SHA-256 of the device's code (device_hash) and of the code that the person types (user_hash).
     */
    device_hash: string;
    user_hash: string;
    status: DeviceCodeStatus;
    address: string;
    user_agent: string;
    /** Null means `projects`. */
    scope: DeviceScope | null;
    /** The person who approved the device. */
    identity: Json | null;
    /** Seconds between two polls of the device; increased by `slow_down`. */
    poll_seconds: number;
    polled_at: Ms | null;
    created_at: Ms;
    expires_at: Ms;
  };
  device_tokens: {
    id: string;
    hash: string;
    /** Copy of identity.email in lower case. */
    email: string;
    identity: Json;
    address: string;
    user_agent: string;
    /** Null means `projects` (rows of a version without scopes). */
    scope: DeviceScope | null;
    created_at: Ms;
    expires_at: Ms;
    last_used_at: Ms | null;
  };
  /** A sign-in at the API with its refresh tokens. The row exists while the sign-in is valid. */
  api_sessions: {
    id: string;
    user_id: string;
    /** SHA-256 of the one valid refresh token. */
    refresh_hash: string;
    address: string;
    created_at: Ms;
    refreshed_at: Ms;
    expires_at: Ms;
  };
  api_tokens: {
    id: string;
    user_id: string;
    name: string;
    hash: string;
    role: Role;
    /** Project ids as a JSON array; null if the token is not limited to projects. */
    projects: Generated<Json | null>;
    created_at: Ms;
    expires_at: Ms;
    last_used_at: Ms | null;
  };
  audit_log: {
    id: Generated<number>;
    at: Ms;
    email: string | null;
    via: AuditVia;
    action: string;
    target: string | null;
    address: string;
    outcome: AuditOutcome;
    status: number;
    code: string | null;
    request_id: string;
    detail: string | null;
  };
  /**
   * Answers to requests that create something, by user and request (method, path, Idempotency-Key).
   * `answer` is encrypted (api/idempotency.ts).
   */
  kept_answers: {
    user_id: string;
    request: string;
    body_hash: string;
    /** Token of the running request; null after `answer` is stored. */
    claim: string | null;
    claimed_until: Ms | null;
    answer: Buffer | null;
    bytes: number;
    created_at: Ms;
    expires_at: Ms;
  };
  /** The feed of events (store/events.ts). */
  events: {
    seq: Generated<number>;
    at: Ms;
    kind: string;
    project_id: string | null;
    deployment_id: string | null;
    node_id: string | null;
    dataset_id: string | null;
    user_id: string | null;
    message: string;
  };
  hooks: HookRecord;
  deliveries: {
    seq: Generated<number>;
    id: string;
    project_id: string;
    forge_id: string | null;
    at: Ms;
    event: string;
    branch: string | null;
    commit: string | null;
    verdict: Verdict | null;
    reason: string | null;
    deployment_id: string | null;
  };
  commit_statuses: Omit<StatusRecord, 'seq' | 'state'> & {
    seq: Generated<number>;
    /**
     * One row for each deployment and state. `failure of COMMIT` is about a commit that the
     * deployment replaced.
     */
    state: CommitState | `failure of ${string}`;
  };
  /** One row for each kind and subject (domain/notifications/problems.ts). */
  problems: {
    kind: ProblemKind;
    subject: string;
    /** Texts for the problem, or for its end. */
    seen: Json;
    opened_at: Ms;
    /** When a control plane last observed the problem, by its own clock. */
    observed_at: Ms;
    /** Uptime since which the problem has not been observed; null while it is observed. */
    gone_since: UptimeMs | null;
    /** Null while the problem is still open. */
    ended_at: Ms | null;
    flaps: number;
  };
  /** Beginnings and ends of problems. Notifications read them in order. */
  problem_changes: {
    seq: Generated<number>;
    kind: ProblemKind;
    subject: string;
    is_over: Flag;
    seen: Json;
    opened_at: Ms;
    at: Ms;
  };
  notifications: {
    id: string;
    name: string;
    kind: NotificationKind;
    /** Sealed, like `secret`. */
    target: string;
    /** The target with its secret parts masked. */
    shown: string;
    secret: string | null;
    events: Json;
    projects: Json;
    /** `seq` of the last problem change that the notification has read. */
    after: number;
    last_sent_at: Ms | null;
    failing_since: Ms | null;
    problem: string | null;
    created_at: Ms;
    updated_at: Ms;
  };
  /** Deliveries of notifications; also the outbox. */
  notices: {
    seq: Generated<number>;
    id: string;
    notification_id: string;
    message: Json;
    tries: number;
    next_at: UptimeMs;
    give_up_at: UptimeMs;
    claimed_until: UptimeMs | null;
    /** Recipients whose mail server accepted the e-mail. */
    received: Json;
    created_at: Ms;
    done_at: Ms | null;
    is_sent: Flag;
    error: string | null;
  };
  /** Only the newest rows are kept (store/backups.ts). */
  backups: {
    id: string;
    /** 1 if BACKUP_INTERVAL started it, 0 if a person did. */
    scheduled: Flag;
    /** Folder or address of the backups, without credentials. */
    target: string;
    name: string | null;
    bytes: number | null;
    error: string | null;
    started_at: Ms;
    /** Null while the backup runs, or if its process died. */
    finished_at: Ms | null;
  };
  /**
   * Usage of containers (domain/nodes/usage.ts). `step`: length of the slot in ms. `slot`: number
   * of the slot since 1970.
   */
  usage_points: {
    project_id: string;
    step: number;
    slot: number;
    /** Id of the instance if its container has the labels of one, else id of the deployment. */
    deployment_id: string;
    /** Id of the deployment, if `deployment_id` has the id of an instance. */
    of_deployment: string | null;
    /** Null means `web`, and null in `instance` means 1. */
    process: string | null;
    instance: number | null;
    at: Ms;
    started_at: Ms | null;
    cpu_ms: number | null;
    throttled_ms: number | null;
    memory_bytes: number | null;
    memory_limit: number | null;
    restarts: number | null;
    oom_kills: number | null;
    net_rx: number | null;
    net_tx: number | null;
  };
  /** Only the newest rows are kept (store/clean-ups.ts). */
  clean_ups: Omit<CleanUpRecord, 'holds_builds' | Optional> & { holds_builds: Flag } & {
    [K in Optional]: Generated<CleanUpRecord[K]>;
  };
  /** Images in the registry that belonged to deleted projects. `repository` has no host. */
  orphan_images: { repository: string; digest: string; noted_at: Ms };
  /** Devices that containers have (domain/nodes/room.ts). */
  device_leases: Omit<DeviceLease, 'holders' | 'run'> & {
    instance_id: Generated<string | null>;
    /** The run that has the device: the same id as `deployment_id`. */
    run_id: Generated<string | null>;
    task_id: Generated<string | null>;
    /** When Berth noticed the end of the task of the run. */
    task_ended_at: Generated<UptimeMs | null>;
    since: Ms;
  };
  /** Containers on nodes with a contract-only agent (domain/nodes/unmanaged-containers.ts). */
  unmanaged_containers: Omit<UnmanagedContainer, 'labelled' | 'confirmed_at'> & {
    labelled: Flag;
    confirmed_at: Generated<Ms | null>;
  };
  meta: { key: string; value: string };
  /** One row: the uptime clock, which every deadline uses (domain/platform/uptime.ts). */
  uptime: { id: number; clock: UptimeMs };
  /**
   * Idempotency-Keys of `POST /api/projects/{id}/deployments`. All other requests use
   * `kept_answers`.
   */
  idempotency_keys: {
    project_id: string;
    key: string;
    body_hash: string;
    deployment_id: string;
    expires_at: Ms;
  };
  log_lines: {
    deployment_id: string;
    seq: number;
    at: Ms;
    stream: string;
    step: string | null;
    text: string;
  };
  /**
   * One row for each deployment with a log. `left_out`: number of lines that were not stored
   * because the log had reached its size limit.
   */
  log_heads: { deployment_id: string; last_seq: number; bytes: number; left_out: number };
  /** High-water mark of the lines that a task attempt has sent. */
  log_marks: {
    task_id: string;
    attempt: number;
    deployment_id: string;
    next_line: number;
    /** The engine's time of the last stored line of a release command. */
    logged_until: string | null;
  };
  /** Commands with a schedule (domain/runs/job-store.ts). */
  jobs: Columns<JobRecord>;
  /** Commands in containers of their own (domain/runs/run-store.ts). */
  runs: Columns<RunRecord> & { devices_task: Generated<string | null> };
  /** The output of runs: the tables of deployment logs with another key. */
  run_log_lines: {
    run_id: string;
    seq: number;
    at: Ms;
    stream: string;
    step: string | null;
    text: string;
  };
  run_log_heads: { run_id: string; last_seq: number; bytes: number; left_out: number };
  run_log_marks: { task_id: string; attempt: number; run_id: string; next_line: number };
  /**
   * Container logs that people are reading now. `owner`: the control plane with the readers.
   * `expires_at`: by the uptime clock. `position`: the last line that the owner has, by the clock
   * of the node.
   */
  log_wants: {
    key: string;
    owner: string;
    node_id: string;
    deployment_id: string;
    instance: string | null;
    mode: 'follow' | 'read';
    tail: number;
    since_at: Ms | null;
    until_at: Ms | null;
    stream: RuntimeStream | null;
    position: string | null;
    expires_at: UptimeMs;
  };
  /** Tickets of exec sessions and tunnels. `agent_order`, `credential`, `place`: JSON. */
  exec_sessions: {
    id: string;
    ticket_hash: string;
    kind: 'exec' | 'tunnel' | 'input';
    project_id: string;
    node_id: string;
    agent_order: string;
    credential: string;
    place: string;
    expires_at: UptimeMs;
    used_at: UptimeMs | null;
  };
  /** How containers ended. `run`: identifies one run of one container. `lines`: JSON. */
  container_exits: {
    deployment_id: string;
    run: string;
    /** Null (written by an earlier version) means `web`, and null in `instance` means 1. */
    process: string | null;
    instance: number | null;
    node_id: string | null;
    container: string;
    exit_code: number | null;
    out_of_memory: Flag;
    error: string | null;
    started_at: Ms | null;
    finished_at: Ms | null;
    stored_at: Ms;
    truncated: Flag;
    bytes: number;
    lines: Json;
  };
};

export type Row<T extends keyof Tables> = Selectable<Tables[T]>;
export type NewRow<T extends keyof Tables> = Insertable<Tables[T]>;

export type Db = Kysely<Tables>;
export type Tx = Transaction<Tables>;
