/**
 * Builds the resources of the mock. All times are relative to now, so that a page looks the same on
 * each day.
 */
import { createHash } from 'node:crypto';
import type { Dataset } from '@berth/wire/dataset';
import type { Deployment, DeploymentEvent } from '@berth/wire/deployment';
import type { PlacedInstance } from '@berth/wire/instance';
import type { CachedDataset, Node, Placement } from '@berth/wire/node';
import type { Project } from '@berth/wire/project';
import type { DeploymentState } from '@berth/wire/vocabulary';

export const GB = 1_000_000_000;
export const ago = (seconds: number): string =>
  new Date(Date.now() - seconds * 1_000).toISOString();
export const inFuture = (seconds: number): string => ago(-seconds);
const hash = (algorithm: 'sha1' | 'sha256', text: string): string =>
  createHash(algorithm).update(text).digest('hex');
export const commitOf = (text: string): string => hash('sha1', text);
export const digestOf = (text: string): string => `sha256:${hash('sha256', text)}`;

export const project = (name: string, given: Partial<Project> = {}): Project => {
  const env = given.env ?? { LOG_LEVEL: 'info', TZ: 'Europe/Berlin' };
  return {
    id: `p-${name}`,
    name,
    git_url: `https://git.example.org/team/${name}.git`,
    branch: 'main',
    dockerfile_path: 'Dockerfile',
    build_context: '.',
    build_target: null,
    build_args: {},
    submodules: true,
    git_lfs: false,
    domain_prefix: name,
    container_port: 8080,
    auth_required: false,
    cors_origins: [],
    env,
    env_names: Object.keys(env),
    env_hidden: false,
    build_arg_names: [],
    datasets: [],
    volumes: [],
    health_path: '/healthz',
    start_seconds: null,
    release_command: null,
    release_timeout_seconds: 600,
    memory_bytes: 512 * 1_048_576,
    cpus: 1,
    requires: {},
    drain_seconds: 5,
    stop_grace_seconds: 10,
    replace: 'rolling',
    processes: [{ name: 'web', count: 1 }],
    settle_seconds: 5,
    spread: 'nodes',
    sticky: false,
    on_node_lost: 'move',
    allow_exec: true,
    exec_role: 'admin',
    on_dataset_change: 'tell',
    data_copies: 1,
    deploy_on_push: true,
    watch_paths: [],
    members: [],
    domains: [],
    url: `https://${given.domain_prefix ?? name}.apps.example.org`,
    stopped: false,
    stopped_by_person: given.stopped ?? false,
    running_deployment_id: null,
    certificate: {
      state: 'ok',
      issuer: 'Let’s Encrypt R13',
      not_after: inFuture(61 * 86_400),
      problem: null,
      checked_at: ago(1_800),
    },
    deleting: false,
    created_at: ago(90 * 86_400),
    updated_at: ago(2 * 86_400),
    ...given,
  };
};

export const cached = (
  dataset: Dataset,
  version: number,
  given: Partial<CachedDataset> = {},
): CachedDataset => ({
  dataset_id: dataset.id,
  version,
  bytes: dataset.bytes,
  last_used_at: ago(7_200),
  name: dataset.name,
  pinned: false,
  recopyable: false,
  ...given,
});

export const node = (hostname: string, given: Partial<Node> = {}): Node => ({
  id: `n-${hostname}`,
  hostname,
  role: 'deploy',
  host_ip: `192.0.2.${10 + (hostname.charCodeAt(hostname.length - 1) % 40)}`,
  max_storage: 2_000 * GB,
  free_storage: 1_200 * GB,
  last_seen_at: ago(9),
  status: 'online',
  schedulable: true,
  deleting: false,
  agent_version: '0.1.0',
  max_builds: 2,
  arch: 'amd64',
  cpus: 16,
  memory_bytes: 64 * 1_073_741_824,
  labels: { zone: 'a', disk: 'nvme' },
  admin_labels: { zone: 'a' },
  devices: {},
  engine: { ok: true, version: '29.1.2', error: null },
  capabilities: ['secrets', 'secret_files', 'logs', 'metrics', 'volumes', 'volume_moves'],
  disk: {
    datasets: 640 * GB,
    images: 38 * GB,
    build_cache: 0,
    other: 60 * GB,
    free: 1_262 * GB,
    total: 2_000 * GB,
  },
  has_secret: true,
  doubled: null,
  cached: [],
  copy_rate: 240_000_000,
  copying: [],
  drain: null,
  containers: [],
  quarantined: [],
  ...given,
});

export const dataset = (name: string, given: Partial<Dataset> = {}): Dataset => ({
  id: `d-${name}`,
  name,
  nfs_path: `team/${name}`,
  status: 'ok',
  problem: null,
  version: 12,
  manifest_digest: digestOf(name),
  bytes: 320 * GB,
  files: 48_210,
  skipped: { count: 0, first: [] },
  scanning: false,
  deleting: false,
  last_scanned_at: ago(240),
  created_at: ago(200 * 86_400),
  updated_at: ago(86_400),
  ...given,
});

export const placementOf = (nodes: readonly Node[], winner: Node | null): Placement => ({
  winner: winner?.id ?? null,
  items: nodes
    .filter(({ role }) => role === 'deploy')
    .map((row) => {
      const eligible = row.status === 'online' && row.schedulable;
      return {
        node_id: row.id,
        hostname: row.hostname,
        eligible,
        reason: eligible ? null : row.status === 'offline' ? 'offline' : 'cordoned',
        cached_dataset_count: row.cached.length,
        missing_bytes: row.cached.length > 0 ? 0 : 320 * GB,
        free_storage_bytes: row.free_storage ?? 0,
        score: eligible ? (row.cached.length > 0 ? 1.94 : 0.6) : 0,
        estimated_seconds: eligible ? (row.cached.length > 0 ? 0 : 1_340) : null,
      };
    }),
});

/** An instance of the process `web` that serves. */
export const instanceOf = (
  number: number,
  on: Node | null,
  given: Partial<PlacedInstance> = {},
): PlacedInstance => ({
  id: `i-${number}-${on?.hostname ?? 'none'}`,
  process: 'web',
  number,
  state: 'serving',
  node_id: on?.id ?? null,
  node_name: on?.hostname ?? null,
  host_ip: on?.host_ip ?? null,
  host_port: on === null ? null : 32_100 + number,
  container_id: on === null ? null : `c-${number}`,
  since: ago(7_200),
  detail: null,
  placement: null,
  ...given,
});

/** A deployment that goes live takes these seconds for each step. */
const STEPS = { queue: 0.4, build: 6, place: 0.2, copy: 1, start: 1.6, route: 0.8 } as const;
type Step = keyof typeof STEPS;
/** Steps that a deployment in this state has begun. */
const BEGUN: Record<DeploymentState, number> = {
  pending: 1,
  building: 2,
  built: 3,
  deploying: 5,
  running: 6,
  retired: 6,
  failed: 2,
  cancelled: 2,
  superseded: 1,
};
const SETTLED = new Set<DeploymentState>([
  'running',
  'retired',
  'failed',
  'cancelled',
  'superseded',
]);

export type Asked = {
  project: Project;
  generation: number;
  status: DeploymentState;
  /** Age in seconds. */
  age: number;
  message?: string;
  node?: Node | null;
  nodes?: readonly Node[];
  given?: Partial<Deployment>;
};

/** A deployment with phases and events that fit its state. */
export function deployment({
  project: of,
  generation,
  status,
  age,
  message,
  node: on = null,
  nodes = [],
  given = {},
}: Asked): Deployment {
  const id = `dep-${of.name}-${generation}`;
  const commit = commitOf(`${of.name} ${generation}`);
  const names = (Object.keys(STEPS) as Step[]).slice(0, BEGUN[status]);
  const phases: Deployment['phases'] = [];
  let at = age;
  for (const [index, name] of names.entries()) {
    const open = index === names.length - 1 && !SETTLED.has(status);
    phases.push({ name, started_at: ago(at), ended_at: open ? null : ago(at - STEPS[name]) });
    at -= STEPS[name];
  }
  const lives = status === 'running' || status === 'retired';
  const host = of.url?.replace('https://', '') ?? '';
  const events: DeploymentEvent[] = [
    { at: ago(age), kind: 'created', message: `requested by ada@example.org, branch ${of.branch}` },
  ];
  const tell = (after: number, kind: string, text: string): void =>
    void events.push({ at: ago(age - after), kind, message: text });
  if (names.length > 1) tell(0.4, 'assigned', 'builder-1 builds');
  if (names.length > 2)
    tell(6.4, 'built', `built ${digestOf(id).slice(0, 19)} from ${commit.slice(0, 12)}`);
  if (names.length > 3) {
    tell(
      6.6,
      'placed',
      `placed on ${on?.hostname ?? 'node-a'}, which has all datasets: nothing to copy`,
    );
    tell(7.6, 'started', 'the container answers on port 8080');
  }
  if (lives) {
    tell(9.2, 'published', `the route ${host} is published`);
    tell(9.9, 'confirmed', 'every entry point of the proxy confirmed the route');
    tell(10, 'running', `deployment ${generation} is live`);
    if (generation > 1)
      tell(
        15,
        'draining',
        `the old container of deployment ${generation - 1} has drained; it had no open request`,
      );
  }
  if (status === 'retired') tell(86_000, 'retired', `deployment ${generation + 1} replaced it`);
  const error = {
    code: 'build_step_failed',
    message: 'A step of the Dockerfile failed: RUN npm test, exit code 1',
  };
  if (status === 'failed') tell(6.4, 'failed', error.message);
  return {
    id,
    project_id: of.id,
    generation,
    status,
    note: null,
    error: status === 'failed' ? error : null,
    waiting: null,
    cancel_requested: false,
    rollback_of: null,
    created_by: {
      kind: generation % 3 === 0 ? 'hook' : 'user',
      id: null,
      name: generation % 3 === 0 ? 'gitea' : 'ada@example.org',
    },
    trigger: generation % 3 === 0 ? 'hook' : 'api',
    branch: of.branch,
    commit,
    commit_message:
      message ??
      ['Show the newest readings first', 'Fix the export of empty tables', 'Update the base image'][
        generation % 3
      ] ??
      null,
    commit_author: 'Ada Lovelace',
    phases,
    image_tag: names.length > 2 ? `${of.name}:${generation}` : null,
    image_digest: names.length > 2 ? digestOf(id) : null,
    node_id: lives || status === 'deploying' ? (on?.id ?? null) : null,
    node_name: lives || status === 'deploying' ? (on?.hostname ?? null) : null,
    host_ip: lives ? (on?.host_ip ?? null) : null,
    host_port: lives ? 32_000 + generation : null,
    health: status === 'running' ? { status: 'healthy', since: ago(age - 12), detail: null } : null,
    created_at: ago(age),
    finished_at: SETTLED.has(status) ? ago(age - 10) : null,
    url: of.url ?? '',
    datasets: [],
    instances:
      (status === 'running' || status === 'deploying') && on !== null
        ? [instanceOf(1, on, { since: ago(age - 12), placement: placementOf(nodes, on) })]
        : [],
    progress: null,
    log_removed_at: null,
    story_removed_at: null,
    events,
    placement: names.length > 3 ? placementOf(nodes, on) : null,
    commit_status: null,
    ...given,
  };
}
