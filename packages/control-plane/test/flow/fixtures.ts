/** Records and facts with default values; a test names only the values that matter to it. */
import { isScaledToZero } from '@berth/wire/project';
import { createCacheIndex } from '../../src/domain/nodes/cache-index.ts';
import {
  type DatasetFact,
  DEFAULT_LIMITS,
  type Facts,
  type NodeFact,
} from '../../src/domain/deployments/facts.ts';
import type { InstanceRecord } from '../../src/domain/deployments/instance.ts';
import type { Plan } from '../../src/domain/deployments/plan.ts';
import type {
  DeploymentRecord,
  ProjectRecord,
  ProjectSettings,
  RouteRecord,
  TaskRecord,
} from '../../src/domain/platform/records.ts';
import { UNTOUCHED } from '../untouched.ts';

export const NOW = Date.parse('2026-11-21T12:00:00Z');
export const COMMIT = 'a'.repeat(40);
export const DIGEST = `sha256:${'b'.repeat(64)}`;

export const SETTINGS: ProjectSettings = {
  git_url: 'https://git.example/shop.git',
  branch: 'main',
  dockerfile_path: 'Dockerfile',
  build_context: '.',
  build_target: null,
  build_args: {},
  submodules: true,
  git_lfs: false,
  domain_prefix: 'shop',
  container_port: 8080,
  auth_required: false,
  env: {},
  datasets: [],
  health_path: null,
  start_seconds: null,
  release_command: null,
  release_timeout_seconds: 600,
  memory_bytes: null,
  cpus: null,
  requires: {},
  drain_seconds: 5,
  stop_grace_seconds: 10,
  replace: 'rolling',
  on_dataset_change: 'tell',
  data_copies: 1,
  deploy_on_push: true,
  members: [],
  watch_paths: [],
  volumes: [],
  cors_origins: [],
  domains: [],
  processes: [{ name: 'web', count: 1 }],
  settle_seconds: 5,
  spread: 'nodes',
  sticky: false,
  on_node_lost: 'move',
  allow_exec: false,
  exec_role: 'admin',
};

export const project = (over: Partial<ProjectRecord> = {}): ProjectRecord => ({
  ...SETTINGS,
  id: 'p1',
  name: 'shop',
  flow_version: 7,
  secrets_version: 0,
  replace_set: false,
  on_node_lost_set: false,
  scaled: {},
  last_generation: 2,
  deleting_at: null,
  deletes_volumes: false,
  stopped_at: null,
  // A test of a project at count 0 that a person stopped names it.
  stopped_by_person:
    typeof over.stopped_at === 'number' && !isScaledToZero({ ...SETTINGS, ...over }),
  created_at: NOW - 1e6,
  updated_at: NOW - 1e6,
  ...over,
});

export const node = (over: Partial<NodeFact> = {}): NodeFact => ({
  id: 'n1',
  hostname: 'node-1',
  role: 'deploy',
  host_ip: '10.0.0.1',
  max_storage: 1e9,
  free_storage: 1e9,
  max_builds: 1,
  agent_version: '0.1.0',
  boot_id: 'boot',
  arch: null,
  cpus: null,
  memory_bytes: null,
  labels: {},
  admin_labels: {},
  devices: {},
  engine: null,
  capabilities: null,
  disk: null,
  has_secret: false,
  doubled: null,
  schedulable: true,
  deleting_at: null,
  cached: [],
  copy_rate: null,
  drain: null,
  containers: [],
  earlier_nodes: [],
  observed_at: NOW,
  observed_since: null,
  last_seen_at: NOW - 1000,
  last_polled_at: NOW - 1000,
  created_at: NOW - 1e6,
  open_builds: 0,
  ...over,
});
export const builder = (over: Partial<NodeFact> = {}): NodeFact =>
  node({ id: 'b1', hostname: 'builder-1', role: 'builder', host_ip: '10.0.0.9', ...over });

/** The timer of its state runs since the state began, or since its route was published. */
export const deployment = (over: Partial<DeploymentRecord> = {}): DeploymentRecord => {
  const d = {
    ...UNTOUCHED,
    id: 'd2',
    project_id: 'p1',
    generation: 2,
    settings: SETTINGS,
    created_at: NOW - 5000,
    state_since: NOW - 5000,
    ordinal: NOW - 5000,
    ...over,
  };
  const timer = {
    state_since: d.state_since,
    ran_ms: 0,
    running_since: d.route_published_at ?? d.state_since,
  };
  return { ...d, timer: over.timer === undefined ? timer : over.timer };
};

const BUILT = {
  commit: COMMIT,
  image_tag: `registry:5000/shop:${COMMIT}`,
  image_digest: DIGEST,
} as const;

/** The same, waiting in its state since `at`. */
export const waitingSince = (d: DeploymentRecord, at: number): DeploymentRecord => ({
  ...d,
  state_since: at,
  timer: { state_since: at, ran_ms: 0, running_since: at },
});

/** A deployment in each state. */
export const on = {
  pending: (over: Partial<DeploymentRecord> = {}) => deployment(over),
  building: (over: Partial<DeploymentRecord> = {}) =>
    deployment({ status: 'building', builder_id: 'b1', ...over }),
  built: (over: Partial<DeploymentRecord> = {}) =>
    deployment({ status: 'built', ...BUILT, ...over }),
  deploying: (over: Partial<DeploymentRecord> = {}) =>
    deployment({ status: 'deploying', ...BUILT, node_id: 'n1', ...over }),
  /** Reported, with a published route that is not confirmed. */
  published: (over: Partial<DeploymentRecord> = {}) =>
    deployment({
      status: 'deploying',
      ...BUILT,
      node_id: 'n1',
      host_port: 32_002,
      container_id: 'c2',
      route_published_at: NOW - 1000,
      ...over,
    }),
  running: (over: Partial<DeploymentRecord> = {}) =>
    deployment({
      status: 'running',
      ...BUILT,
      node_id: 'n1',
      host_port: 32_002,
      container_id: 'c2',
      route_published_at: NOW - 3000,
      finished_at: NOW - 2000,
      health: { status: 'healthy', since: NOW - 2000, detail: null },
      ...over,
    }),
  ended: (status: DeploymentRecord['status'], over: Partial<DeploymentRecord> = {}) =>
    deployment({ status, finished_at: NOW - 1000, ...over }),
};
export const old = (over: Partial<DeploymentRecord> = {}) =>
  on.running({ id: 'd1', generation: 1, host_port: 32_001, container_id: 'c1', ...over });

export function task(kind: TaskRecord['kind'], over: Partial<TaskRecord> = {}): TaskRecord {
  return {
    id: 't1',
    kind,
    status: 'running',
    project_id: 'p1',
    deployment_id: 'd2',
    node_id: kind === 'build' ? 'b1' : 'n1',
    attempt: 1,
    payload: (kind === 'retire'
      ? { remove: [{ deployment_id: 'd1', reason: 'test' }], keep: null }
      : {}) as never,
    lease_token: 'lease',
    lease_expires_at: NOW + 10_000,
    queue_deadline_at: NOW + 10_000,
    wall_deadline_at: NOW + 100_000,
    cancel_requested_at: null,
    report: null,
    progress: null,
    created_at: NOW - 4000,
    started_at: NOW - 3000,
    finished_at: null,
    ...over,
  };
}

export const dataset = (over: Partial<DatasetFact> = {}): DatasetFact => ({
  id: 's1',
  name: 'maps',
  nfs_path: 'maps',
  status: 'ok',
  problem: null,
  version: 3,
  manifest_digest: DIGEST,
  bytes: 1000,
  files: 2,
  ...over,
});

export const routeTo = (d: DeploymentRecord): RouteRecord => ({
  project_id: 'p1',
  deployment_id: d.id,
  node_id: d.node_id ?? 'n1',
  domain_prefix: d.settings.domain_prefix,
  host_ip: '10.0.0.1',
  host_port: d.host_port ?? 1,
  published_at: NOW - 1000,
});

export const facts = (over: Partial<Facts> = {}): Facts => ({
  now: NOW,
  uptime: { at: NOW, since: 0 },
  limits: DEFAULT_LIMITS,
  project: project(),
  live: [],
  tasks: [],
  route: null,
  nodes: [builder(), node()],
  datasets: [],
  endedWork: [],
  secrets: [],
  lastBuilderId: null,
  gitCredentials: null,
  platform: { registryAddr: 'registry:5000', authServiceUrl: null, reservedPrefixes: [] },
  cacheIndex: createCacheIndex(),
  volumes: [],
  freshIds: ['x1', 'x2', 'x3', 'x4'],
  ...over,
});

/** Returns the state of a deployment after a plan, or null if the plan does not change it. */
export const stateOf = (plan: Plan, id: string): string | null =>
  plan.changeDeployments.find((c) => c.id === id)?.set.status ?? null;
export const changeOf = (
  plan: Plan,
  id: string,
): NonNullable<Plan['changeDeployments'][number]['set']> =>
  plan.changeDeployments.find((c) => c.id === id)?.set ?? {};

/** An instance beside the first one of d2. */
export const instance = (over: Partial<InstanceRecord> = {}): InstanceRecord => ({
  id: 'i2',
  project_id: 'p1',
  deployment_id: 'd2',
  process: 'web',
  number: 2,
  state: 'serving',
  labelled: true,
  node_id: 'n2',
  host_port: 33_002,
  container_id: 'k2',
  detail: null,
  memory_bytes: null,
  losses: [],
  placement: null,
  since: NOW - 2000,
  created_at: NOW - 4000,
  ...over,
});
