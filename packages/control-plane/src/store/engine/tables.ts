/** The tables as Kysely sees them: what the columns hold, before rows/ makes records of them. Made by migrations/. */
import type { AuditOutcome, AuditVia } from '@berth/wire/audit';
import type { DatasetChange, DatasetState } from '@berth/wire/dataset';
import type { DeviceScope } from '@berth/wire/gateway';
import type { Trigger } from '@berth/wire/deployment';
import type { DeploymentState, HealthState, NodeRole, Role, TaskKind, TaskState } from '@berth/wire/vocabulary';
import type { Generated, Insertable, Kysely, Selectable, Transaction } from 'kysely';
import type { DeviceCodeStatus } from '../../domain/identity-records.ts';
import type { StoppedFirst } from '../../domain/records.ts';

/** 0 or 1 on both engines. */
type Flag = number;
/** Milliseconds since the epoch. */
type Ms = number;
type Json = string;

export type Tables = {
  projects: {
    id: string;
    name: string;
    git_url: string;
    branch: string;
    dockerfile_path: string;
    domain_prefix: string;
    container_port: number;
    auth_required: Flag;
    /** Rises when `auth_required` is turned on: session cookies from before do not open the project. */
    auth_epoch: Generated<number>;
    env: Json;
    datasets: Json;
    health_path: string | null;
    memory_bytes: number | null;
    cpus: number | null;
    drain_seconds: number;
    stop_grace_seconds: number;
    replace: string;
    on_dataset_change: string;
    flow_version: number;
    last_generation: number;
    deleting_at: Ms | null;
    created_at: Ms;
    updated_at: Ms;
  };
  deployments: {
    id: string;
    project_id: string;
    generation: number;
    status: DeploymentState;
    settings: Json;
    /** Copy of settings.domain_prefix, to ask who may still publish a host name. */
    domain_prefix: string;
    requested_commit: string | null;
    note: string | null;
    rollback_of: string | null;
    error_code: string | null;
    error_message: string | null;
    cancel_requested_at: Ms | null;
    commit: string | null;
    image_tag: string | null;
    image_digest: string | null;
    image_arch: string | null;
    builder_id: string | null;
    node_id: string | null;
    container_id: string | null;
    host_port: number | null;
    route_published_at: Ms | null;
    placement: Json | null;
    health_status: HealthState | null;
    health_since: Ms | null;
    health_detail: string | null;
    losses: Json;
    datasets: Json | null;
    waiting: string | null;
    stopped_first: StoppedFirst | null;
    created_by: Json | null;
    trigger: Trigger | null;
    branch: string | null;
    commit_message: string | null;
    commit_author: string | null;
    phases: Json | null;
    created_at: Ms;
    state_since: Ms;
    finished_at: Ms | null;
    timer: Json | null;
    retry: Json | null;
    builds_given_up: Generated<number>;
    /** Null in rows that an earlier version wrote. */
    ordinal: Ms | null;
    /** When retention began to remove its log, and its story and tasks; when only the record was left. */
    log_removed_at: Generated<Ms | null>;
    story_removed_at: Generated<Ms | null>;
    thinned_at: Generated<Ms | null>;
    /** Its settings are in kept_settings; null: they are in this row. */
    settings_digest: Generated<string | null>;
  };
  kept_settings: { project_id: string; digest: string; settings: Json };
  /** Written by store/story.ts alone. `at`: the last time; `count` and `first_at` (null: once): a line that repeats. */
  deployment_events: {
    id: Generated<number>;
    deployment_id: string;
    at: Ms;
    kind: string;
    message: string;
    count: Generated<number>;
    first_at: Ms | null;
  };
  tasks: {
    /** Order of creation, also within one plan. */
    seq: Generated<number>;
    id: string;
    kind: TaskKind;
    status: TaskState;
    /** Null exactly for `sync`. */
    project_id: string | null;
    deployment_id: string | null;
    node_id: string;
    attempt: number;
    payload: Json;
    lease_token: string | null;
    /** By the uptime clock; of a task that has ended: when it did, and null where an earlier version wrote its end. */
    lease_expires_at: Ms | null;
    queue_deadline_at: Ms;
    wall_deadline_at: Ms;
    cancel_requested_at: Ms | null;
    report: Json | null;
    progress: Json | null;
    created_at: Ms;
    started_at: Ms | null;
    /** Null exactly while the task is open: what the partial indexes go by. */
    finished_at: Ms | null;
  };
  nodes: {
    id: string;
    hostname: string;
    role: NodeRole;
    host_ip: string;
    max_storage: number;
    free_storage: number | null;
    max_builds: number;
    agent_version: string | null;
    boot_id: string | null;
    arch: string | null;
    engine: Json | null;
    capabilities: Json | null;
    disk: Json | null;
    /** SHA-256 in hex of the node's own secret; null: it has none. */
    secret_hash: string | null;
    /** 1 when its agent has shown it. */
    secret_used: Flag | null;
    /** An admin took the earlier one away; null again with the next one. */
    secret_reset_at: Ms | null;
    /** domain/boots.ts. */
    boots: Json | null;
    schedulable: Flag;
    deleting_at: Ms | null;
    cached: Json;
    copy_rate: number | null;
    drain: Json | null;
    containers: Json;
    /** This and the next one by the uptime clock. */
    observed_at: Ms | null;
    /** What was observed then was seen after this. */
    observed_since: Ms | null;
    last_seen_at: Ms;
    last_polled_at: Ms | null;
    /** What the feed of events said last: `online`, `offline`. */
    announced: string | null;
    created_at: Ms;
  };
  join_tokens: {
    id: string;
    hash: string;
    role: NodeRole;
    /** The only hostname that may use it; null: any. */
    name: string | null;
    /** E-mail of the admin. */
    created_by: string | null;
    created_at: Ms;
    expires_at: Ms;
    used_at: Ms | null;
    /** Of the process that used it. */
    boot_id: string | null;
    node_id: string | null;
  };
  /** Contract-only nodes that may register with the shared secret while REQUIRE_NODE_SECRETS is on. */
  node_admissions: {
    id: string;
    hostname: string;
    role: NodeRole;
    /** Where it registered from last. */
    address: string | null;
    created_at: Ms;
  };
  datasets: {
    id: string;
    name: string;
    nfs_path: string;
    status: DatasetState;
    problem: string | null;
    version: number | null;
    manifest_digest: string | null;
    files: number;
    bytes: number;
    skipped: Json;
    share: Json | null;
    scan_requested_at: Ms | null;
    /** These two by store/datasets/scan-flags.ts. */
    scan_full: number;
    accept_loss: number;
    /** Token of the claim under which it is scanned. */
    scanning_by: string | null;
    /** By the uptime clock. */
    scanning_until: Ms | null;
    last_scanned_at: Ms | null;
    next_scan_at: Ms;
    deleting_at: Ms | null;
    created_at: Ms;
    updated_at: Ms;
  };
  /** The row makes a version visible: history and tree objects are written before it. */
  dataset_versions: { dataset_id: string; version: number; created_at: Ms; files: number; bytes: number; manifest_digest: string };
  /** `body`: the object's text, deflated. */
  dataset_trees: { dataset_id: string; digest: string; body: Buffer };
  /** `path` is encoded (wire/tree.ts), and shortened where `long_path` has the whole (history-path.ts). When it happened is said by the version. */
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
  routes: {
    project_id: string;
    deployment_id: string;
    node_id: string;
    domain_prefix: string;
    host_ip: string;
    host_port: number;
    published_at: Ms;
  };
  users: {
    id: string;
    /** Lower case: addresses are compared without regard to it. */
    email: string;
    role: Role;
    password_hash: string | null;
    disabled: Flag;
    last_login_at: Ms | null;
    created_at: Ms;
  };
  /** Tombstones: sessions of this address from before do not count. Kept until none of them can be valid any more. */
  deleted_users: { email: string; deleted_at: Ms; expires_at: Ms };
  /** Of the gateway: every session cookie that carries this id is worth nothing. */
  revoked_sessions: { id: string; email: string; revoked_at: Ms; expires_at: Ms };
  used_codes: { id: string; expires_at: Ms };
  device_codes: {
    /** SHA-256 of what the device holds and of what the person types. */
    device_hash: string;
    user_hash: string;
    status: DeviceCodeStatus;
    address: string;
    user_agent: string;
    /** Null: `projects`. */
    scope: DeviceScope | null;
    /** Of who approved it. */
    identity: Json | null;
    /** How long a device waits between polls; slow_down makes it longer. */
    poll_seconds: number;
    polled_at: Ms | null;
    created_at: Ms;
    expires_at: Ms;
  };
  device_tokens: {
    id: string;
    hash: string;
    /** Copy of identity.email, lower case. */
    email: string;
    identity: Json;
    address: string;
    user_agent: string;
    /** Null, from before there were scopes: `projects`. */
    scope: DeviceScope | null;
    created_at: Ms;
    expires_at: Ms;
    last_used_at: Ms | null;
  };
  /** A sign-in at the API and the family of refresh tokens that came from it; the row is there while it is good. */
  api_sessions: {
    id: string;
    user_id: string;
    /** SHA-256 of the one refresh token that is good. */
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
  };
  /** Answers to creating requests, by user and request (method, path, Idempotency-Key); `answer` is sealed (api/idempotency.ts). */
  kept_answers: {
    user_id: string;
    request: string;
    body_hash: string;
    /** Token of the request that is under way; null when `answer` is there. */
    claim: string | null;
    claimed_until: Ms | null;
    answer: Buffer | null;
    bytes: number;
    created_at: Ms;
    expires_at: Ms;
  };
  /** What people may follow (store/events.ts). */
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
  meta: { key: string; value: string };
  /** One row: the clock of every deadline (domain/uptime.ts). */
  uptime: { id: number; clock: Ms };
  idempotency_keys: { project_id: string; key: string; body_hash: string; deployment_id: string; expires_at: Ms };
  log_lines: { deployment_id: string; seq: number; at: Ms; stream: string; step: string | null; text: string };
  /** One row a deployment that has a log: the last number given out and what the bound is counted by. */
  log_heads: { deployment_id: string; last_seq: number; bytes: number; left_out: number };
  /** High-water mark of the lines an attempt has sent. */
  log_marks: { task_id: string; attempt: number; deployment_id: string; next_line: number };
};

export type Row<T extends keyof Tables> = Selectable<Tables[T]>;
export type NewRow<T extends keyof Tables> = Insertable<Tables[T]>;

export type Db = Kysely<Tables>;
export type Tx = Transaction<Tables>;
