/**
 * What the mock knows: one Berth of a small team for each scenario. Changes last until the process
 * ends.
 */
import type { AuditEntry } from '@berth/wire/audit';
import type { Dataset } from '@berth/wire/dataset';
import type { Deployment, LogLine } from '@berth/wire/deployment';
import type { Event } from '@berth/wire/event';
import type { Node } from '@berth/wire/node';
import type { Notification } from '@berth/wire/notification';
import { isScaledToZero, type Project } from '@berth/wire/project';
import type { Secret } from '@berth/wire/secret';
import type { User } from '@berth/wire/user';
import { isSettled } from '@berth/wire/vocabulary';
import {
  ago,
  cached,
  dataset,
  deployment,
  digestOf,
  GB,
  inFuture,
  instanceOf,
  node,
  placementOf,
  project,
} from './rows.ts';

/**
 * `usual`: a small team, with a failed build and a node that drains. `empty`: after the
 * installation. `large`: 5,000 projects and 100,000 deployments. `hostile`: names and texts that
 * try to be markup, and long ones. `away`: nothing answers. `slow`: each answer takes 3 s. `cut`: most
 * nodes are silent, and the brake holds them.
 */
export const SCENARIOS = ['usual', 'empty', 'large', 'hostile', 'away', 'slow', 'cut'] as const;
export type Scenario = (typeof SCENARIOS)[number];

/** A list that may be too large to be stored. */
export type Rows<T> = { readonly length: number; at(index: number): T | undefined };

export type World = {
  projects: Project[];
  nodes: Node[];
  datasets: Dataset[];
  users: User[];
  notifications: Notification[];
  secrets: Map<string, Secret[]>;
  audit: AuditEntry[];
  events: Event[];
  /** All deployments, or those of one project, newest first. */
  deployments(of?: Project): Rows<Deployment>;
  deployment(id: string): Deployment | undefined;
  /** Adds a deployment that goes live within seconds. */
  deploy(of: Project, given?: Partial<Deployment>): Deployment;
  log(of: Deployment): Rows<LogLine>;
  tell(event: Omit<Event, 'seq' | 'at'>): void;
  /** Moves deployments in progress on. */
  tick(): void;
};

const LARGE = { projects: 5_000, deployments: 100_000, nodes: 60, logLines: 100_000 };
/** Each `EVERY`th deployment of `large` belongs to its first project: 2,000 in all. */
const EVERY = 50;

export function createWorld(scenario: Scenario): World {
  const kept = scenario === 'empty' ? nothing() : scenario === 'hostile' ? hostile() : usual();
  if (scenario === 'cut') cutOff(kept);
  const deployments: Deployment[] = kept.deployments;
  const large = scenario === 'large' ? addMany(kept.projects, kept.nodes) : null;
  const world: World = {
    ...kept,
    events: [],
    deployments: (of) => {
      const own = deployments
        .filter(({ project_id }) => of === undefined || project_id === of.id)
        .toReversed();
      return large === null ? own : joined(own, large(of));
    },
    deployment: (id) =>
      deployments.find((row) => row.id === id) ?? (large === null ? undefined : found(large(), id)),
    deploy: (of, given = {}) => {
      const generation = 1 + (world.deployments(of).at(0)?.generation ?? 0);
      const row = deployment({
        project: of,
        generation,
        status: 'pending',
        age: 0,
        nodes: kept.nodes,
        given,
      });
      deployments.push(row);
      world.tell({
        kind: 'deployment.pending',
        project_id: of.id,
        deployment_id: row.id,
        message: `${of.name} #${generation} was requested`,
      });
      return row;
    },
    log: (of) => (scenario === 'large' ? manyLines() : buildLog(of)),
    tell: (event) =>
      void world.events.push({
        seq: world.events.length + 1,
        at: new Date().toISOString(),
        ...event,
      }),
    tick: () => {
      for (const [index, row] of deployments.entries())
        if (!isSettled(row.status) && row.waiting === null) advance(world, deployments, index, row);
    },
  };
  for (const row of deployments.slice(-12))
    world.tell({
      kind: `deployment.${row.status}`,
      project_id: row.project_id,
      deployment_id: row.id,
      message: row.events.at(-1)?.message ?? row.status,
    });
  return world;
}

/** The state of a deployment that was requested `seconds` ago. */
const stateAfter = (seconds: number): Deployment['status'] =>
  seconds < 0.5
    ? 'pending'
    : seconds < 6.5
      ? 'building'
      : seconds < 7
        ? 'built'
        : seconds < 10
          ? 'deploying'
          : 'running';

function advance(world: World, rows: Deployment[], index: number, row: Deployment): void {
  const of = world.projects.find(({ id }) => id === row.project_id);
  if (of === undefined) return;
  const age = (Date.now() - Date.parse(row.created_at)) / 1_000;
  const status = row.cancel_requested ? 'cancelled' : stateAfter(age);
  if (status === row.status) return;
  const on =
    world.nodes.find(
      ({ role, status: is, schedulable }) => role === 'deploy' && is === 'online' && schedulable,
    ) ?? null;
  const { rollback_of, rolled_back_from, created_by, trigger, note } = row;
  const next = deployment({
    project: of,
    generation: row.generation,
    status,
    age,
    node: on,
    nodes: world.nodes,
    given: { rollback_of, rolled_back_from: rolled_back_from ?? null, created_by, trigger, note },
  });
  rows[index] = next;
  if (status === 'running') {
    const old = rows.findIndex(({ id }) => id === of.running_deployment_id);
    if (old >= 0 && rows[old] !== undefined)
      rows[old] = { ...rows[old], status: 'retired', health: null };
    Object.assign(of, {
      running_deployment_id: next.id,
      ...{ stopped: isScaledToZero(of), stopped_by_person: false },
    });
  }
  world.tell({
    kind: `deployment.${status}`,
    project_id: of.id,
    deployment_id: next.id,
    message: next.events.at(-1)?.message ?? status,
  });
}

const joined = <T>(first: readonly T[], then: Rows<T>): Rows<T> => ({
  length: first.length + then.length,
  at: (index) => (index < first.length ? first[index] : then.at(index - first.length)),
});

function found(rows: Rows<Deployment>, id: string): Deployment | undefined {
  const index = Number(/^many-(\d+)$/.exec(id)?.[1] ?? -1);
  return index >= 0 && index < rows.length ? rows.at(index) : undefined;
}

/** Cuts off all deploy nodes but node-a. They are silent for a minute, and not offline yet. */
function cutOff({ nodes }: Kept): void {
  for (const row of nodes) {
    const waiting = { 'node-b': 2, 'node-c': 1, 'node-d': 1 }[row.hostname];
    if (waiting === undefined) continue;
    Object.assign(row, {
      ...{ last_seen_at: ago(75), engine: { ok: true, version: '29.1.2', error: null } },
      ...{ status: 'online', address_taken: null },
      failover: { silent_since: ago(75), held: true, silent_nodes: 3, nodes: 4, waiting },
    });
  }
}

type Kept = Pick<
  World,
  'projects' | 'nodes' | 'datasets' | 'users' | 'notifications' | 'secrets' | 'audit'
> & {
  deployments: Deployment[];
};

const user = (name: string, role: User['role'], given: Partial<User> = {}): User => ({
  id: `u-${name}`,
  email: `${name}@example.org`,
  role,
  disabled: false,
  last_login_at: ago(3_600),
  ...given,
});

const nothing = (): Kept => ({
  projects: [],
  nodes: [],
  datasets: [],
  deployments: [],
  users: [user('ada', 'admin')],
  notifications: [],
  secrets: new Map(),
  audit: [],
});

function usual(): Kept {
  const stations = dataset('stations', { bytes: 320 * GB });
  const genomes = dataset('genomes', {
    version: 3,
    bytes: 1_400 * GB,
    files: 912,
    scanning: true,
    last_scanned_at: ago(86_400),
  });
  const images = dataset('images', {
    status: 'suspicious',
    problem:
      'The folder lost 9,120 of 9,300 files. Berth records nothing until the files are back or ' +
      'somebody accepts the loss.',
    bytes: 90 * GB,
    files: 9_300,
  });
  const archive = dataset('archive', {
    status: 'unreachable',
    problem: 'The share does not answer: read of team/archive timed out',
    version: 41,
  });
  const nodes = [
    node('node-a', {
      cached: [
        cached(stations, 12, { pinned: true }),
        cached(images, 7, { last_used_at: ago(9 * 86_400) }),
      ],
    }),
    node('node-b', {
      devices: { gpu: ['0', '1'] },
      commands: [
        {
          ...{ project_id: 'p-explorer', project: 'explorer', run_id: 'run-1' },
          ...{ deployment_id: 'dep-explorer-14', timeout_seconds: 3_600 },
        },
        {
          ...{ project_id: 'p-reports', project: 'reports', run_id: null },
          ...{ deployment_id: 'dep-reports-5', timeout_seconds: 600 },
        },
      ],
      labels: { zone: 'b', disk: 'nvme', gpu: 'l40s' },
      admin_labels: { zone: 'b' },
      free_storage: 90 * GB,
      cached: [
        cached(genomes, 3, { pinned: true }),
        cached(stations, 11, { last_used_at: ago(5 * 86_400), recopyable: true }),
      ],
      disk: {
        datasets: 1_720 * GB,
        images: 120 * GB,
        build_cache: 0,
        other: 70 * GB,
        free: 90 * GB,
        total: 2_000 * GB,
      },
      copying: [
        {
          task_id: 't-1',
          dataset_id: stations.id,
          name: 'stations',
          version: 12,
          status: 'copying',
          error: null,
          progress: {
            dataset_id: stations.id,
            name: 'stations',
            version: 12,
            step: 'copying',
            bytes_done: 120 * GB,
            bytes_total: 320 * GB,
            bytes_per_second: 240_000_000,
            remaining_seconds: 834,
          },
          requested_at: ago(500),
        },
      ],
    }),
    node('node-c', {
      schedulable: false,
      drain: {
        started_at: ago(95),
        finished_at: null,
        moved: 2,
        left: [
          {
            project_id: 'p-reports',
            project: 'reports',
            deployment_id: 'dep-reports-4',
            moving_to: 'dep-reports-5',
            problem: null,
          },
          {
            ...{
              project_id: 'p-minutes',
              project: 'minutes',
              deployment_id: 'dep-minutes-3',
              moving_to: null,
            },
            problem:
              'svc-minutes may run on; remove it by hand (docker rm -f svc-minutes), then: ' +
              'berth node removed node-c svc-minutes',
            unmanaged_container: 'svc-minutes',
          },
        ],
      },
      unmanaged: [
        {
          ...{ node_id: 'n-node-c', node: 'node-c', container: 'svc-minutes' },
          ...{ project_id: 'p-minutes', project: 'minutes', since: ago(12 * 86_400) },
        },
      ],
      quarantined: ['berth-unknown-7f3a'],
    }),
    node('node-d', {
      status: 'offline',
      host_ip: '192.0.2.28',
      address_taken: { node_id: 'n-node-b', hostname: 'node-b' },
      last_seen_at: ago(5_400),
      engine: { ok: false, version: null, error: 'no answer for 90 minutes' },
      failover: { silent_since: ago(5_330), held: false, silent_nodes: 1, nodes: 4, waiting: 1 },
    }),
    node('builder-1', {
      role: 'builder',
      disk: {
        datasets: 0,
        images: 64 * GB,
        build_cache: 41 * GB,
        other: 22 * GB,
        free: 380 * GB,
        total: 512 * GB,
      },
      max_storage: 512 * GB,
      free_storage: 380 * GB,
    }),
  ];
  const [a, b, c, d] = nodes as [Node, Node, Node, Node];
  const use = (of: Dataset): Project['datasets'] => [
    { dataset_id: of.id, mode: 'dependency', mount_path: `/data/${of.name}` },
  ];
  const projects = [
    project('explorer', {
      datasets: use(stations),
      auth_required: true,
      domains: ['explorer.example.com'],
    }),
    project('genome-browser', {
      datasets: use(genomes),
      auth_required: true,
      memory_bytes: 8 * 1_073_741_824,
    }),
    project('handbook', { git_url: 'git@git.example.org:team/handbook.git', deploy_on_push: true }),
    project('labels', { volumes: [{ name: 'uploads', mount_path: '/var/uploads' }] }),
    project('reports', {
      datasets: use(stations),
      members: [{ user_id: 'u-grace', role: 'developer' }],
    }),
    project('shop', {
      certificate: {
        state: 'expires_soon',
        issuer: 'Let’s Encrypt R13',
        not_after: inFuture(6 * 86_400),
        problem:
          'The proxy did not renew it: the name server of shop.apps.example.org refuses the ' +
          'challenge',
        checked_at: ago(900),
      },
    }),
    project('sketch', { created_at: ago(600) }),
    project('storefront', {
      processes: [{ name: 'web', count: 3 }],
      sticky: true,
      domains: ['www.example.com'],
    }),
    project('wiki', { stopped: true }),
  ];
  const of = (name: string): Project => projects.find((row) => row.name === name) as Project;
  const deployments: Deployment[] = [];
  const add = (
    name: string,
    generation: number,
    status: Deployment['status'],
    age: number,
    on: Node | null,
    given: Partial<Deployment> = {},
  ): void => {
    const row = deployment({ project: of(name), generation, status, age, node: on, nodes, given });
    deployments.push(row);
    if (status === 'running') of(name).running_deployment_id = row.id;
  };
  const mount = (of_: Dataset, version: number): Deployment['datasets'] => [
    {
      dataset_id: of_.id,
      name: of_.name,
      mode: 'dependency',
      version,
      current_version: of_.version,
      moved_on: version !== of_.version,
    },
  ];
  add('wiki', 9, 'running', 20 * 86_400, a, {
    health: null,
    waiting: 'the project is stopped; start it to serve again',
  });
  add('genome-browser', 6, 'retired', 9 * 86_400, b, { datasets: mount(genomes, 2) });
  add('genome-browser', 7, 'running', 8 * 86_400, b, { datasets: mount(genomes, 3) });
  add('labels', 3, 'running', 6 * 86_400, a, {
    health: {
      status: 'unhealthy',
      since: ago(1_300),
      detail: 'GET /healthz answers 500 for 21 minutes',
    },
    instances: [
      instanceOf(1, a, {
        state: 'unhealthy',
        since: ago(1_300),
        detail: 'GET /healthz answers 500 for 21 minutes',
        placement: placementOf(nodes, a),
      }),
    ],
  });
  add('handbook', 31, 'retired', 3 * 86_400, a);
  add('handbook', 32, 'running', 86_400, a);
  add('reports', 4, 'running', 5 * 86_400, c, { datasets: mount(stations, 11) });
  for (let generation = 8; generation < 14; generation++)
    add('explorer', generation, 'retired', (30 - generation) * 86_400, a, {
      datasets: mount(stations, 11),
    });
  add('explorer', 14, 'running', 7_200, a, { datasets: mount(stations, 12) });
  add('storefront', 17, 'running', 3 * 86_400, a, {
    health: { status: 'degraded', since: ago(5_300), detail: '2 of 3 instances serve' },
    instances: [
      instanceOf(1, a, { since: ago(3 * 86_400), placement: placementOf(nodes, a) }),
      instanceOf(2, b, { since: ago(5_290), placement: placementOf(nodes, b) }),
      instanceOf(3, d, {
        state: 'lost',
        since: ago(5_300),
        detail: 'node-d is silent; no other node has room for it',
        placement: placementOf(nodes, d),
      }),
    ],
  });
  deployments.at(-1)?.events.push(
    {
      at: ago(5_300),
      kind: 'failover',
      message: 'web 2 moves from node-d to node-b; node-d is silent',
    },
    {
      at: ago(5_300),
      kind: 'failover',
      message: 'web 3 of node-d waits for a node: none has room for it; node-d is silent',
    },
    { at: ago(5_300), kind: 'health', message: 'degraded: 1 of 3 instances serve' },
    { at: ago(5_288), kind: 'health', message: 'degraded: 2 of 3 instances serve' },
  );
  add('shop', 21, 'running', 4 * 86_400, a);
  add('shop', 22, 'failed', 3_000, null);
  add('sketch', 1, 'failed', 540, null, {
    error: {
      code: 'dockerfile_missing',
      message: 'The Dockerfile does not exist in the repository: no file "Dockerfile" at ./',
    },
  });
  add('reports', 5, 'deploying', 40, a, {
    trigger: 'drain',
    waiting: 'the old container still has 2 open requests',
    created_by: { kind: 'system', id: null, name: 'drain of node-c' },
    datasets: mount(stations, 12),
    progress: {
      datasets: [
        {
          dataset_id: stations.id,
          name: 'stations',
          version: 12,
          step: 'copying',
          bytes_done: 11 * GB,
          bytes_total: 14 * GB,
          bytes_per_second: 240_000_000,
          remaining_seconds: 13,
        },
      ],
    },
  });
  for (const row of deployments) {
    const on = nodes.find(({ id }) => id === row.node_id);
    const name = projects.find(({ id }) => id === row.project_id)?.name ?? '';
    if (on === undefined || row.status !== 'running') continue;
    on.containers.push({
      name: `svc-${name}-g${row.generation}`,
      labels: { 'berth.project_name': name, 'berth.deployment': row.id },
      host_port: row.waiting === null ? row.host_port : null,
      // An earlier version of the agent started this one.
      port_fixed: name !== 'handbook',
      state: row.waiting === null ? 'running' : 'exited',
    });
  }
  return {
    projects,
    nodes,
    datasets: [archive, genomes, images, stations],
    deployments,
    users: [
      user('ada', 'admin'),
      user('grace', 'developer', { last_login_at: ago(86_400) }),
      user('vera', 'viewer'),
      user('former', 'developer', { disabled: true, last_login_at: null }),
    ],
    notifications: [
      notification('operators', {
        kind: 'slack',
        target: 'https://hooks.slack.com/services/T…/B…/…',
        last_sent_at: ago(1_200),
      }),
      notification('pager', {
        kind: 'webhook',
        target: 'https://pager.example.org/…',
        failing_since: ago(5_000),
        problem: 'The address answered 502 Bad Gateway',
      }),
    ],
    secrets: new Map([
      ['p-explorer', [secret('DATABASE_URL'), secret('SENTRY_DSN')]],
      ['p-shop', [secret('STRIPE_KEY')]],
    ]),
    audit: [
      entry('createDeployment', 'dep-shop-22', 3_000),
      entry('drainNode', 'n-node-c', 95),
      entry('signIn', null, 3_600),
      {
        ...entry('deleteProject', 'p-explorer', 7_000),
        user: 'vera@example.org',
        outcome: 'refused' as const,
        status: 403,
        code: 'forbidden',
      },
    ].map((row, index) => ({ ...row, id: String(index + 1) })),
  };
}

const notification = (name: string, given: Partial<Notification>): Notification => ({
  id: `no-${name}`,
  name,
  kind: 'email',
  target: 'a…@example.org',
  on: ['failed', 'recovered', 'unhealthy', 'node_offline'],
  projects: [],
  last_sent_at: null,
  failing_since: null,
  problem: null,
  created_at: ago(40 * 86_400),
  updated_at: ago(40 * 86_400),
  ...given,
});

export const secret = (name: string): Secret => ({
  name,
  fingerprint: digestOf(name).slice(7, 19),
  scope: 'run',
  as: 'env',
  set_by: 'ada@example.org',
  set_at: ago(12 * 86_400),
});

const entry = (action: string, target: string | null, age: number): AuditEntry => ({
  id: '0',
  at: ago(age),
  user: 'ada@example.org',
  via: 'session',
  action,
  target,
  address: '198.51.100.7',
  outcome: 'done',
  status: 200,
  code: null,
  request_id: `r-${action}`,
  detail: null,
});

/**
 * Texts that a person, a repository or a container chose. Names of projects and nodes have narrow
 * rules, so they are only long.
 */
function hostile(): Kept {
  const kept = usual();
  const markup = (
    '<img src=x onerror="document.title=1"><b>bold</b> ${7*7} {{7*7}} \u202Eright to ' +
    'left\u202C '
  ).repeat(3);
  const long = `${'a-long-name-that-goes-on-'.repeat(3)}x`.slice(0, 63).replace(/-$/, 'x');
  const first = kept.projects[0] as Project;
  Object.assign(first, {
    name: long,
    branch: markup.slice(0, 250),
    domain_prefix: long,
    url: `https://${long}.apps.example.org`,
  });
  for (const row of kept.deployments) {
    Object.assign(row, { commit_message: markup, commit_author: markup, note: markup });
    if (row.error !== null) row.error.message = `${markup}${'x'.repeat(500)}`;
    for (const event of row.events) event.message = markup;
  }
  for (const row of kept.datasets) row.problem = row.problem === null ? null : markup;
  for (const row of kept.nodes)
    if (row.engine !== null && !row.engine.ok) row.engine.error = markup;
  for (const row of kept.notifications) row.problem = markup;
  return kept;
}

/**
 * Adds the rows of `large`. Deployments are made when they are read: all of them would take 200 MB.
 */
function addMany(projects: Project[], nodes: Node[]): (of?: Project) => Rows<Deployment> {
  const usualProjects = projects.length;
  const shop = projects.find(({ name }) => name === 'shop') as Project;
  for (let i = usualProjects; i < LARGE.projects; i++)
    projects.push(project(`project-${String(i).padStart(4, '0')}`));
  for (let i = nodes.length; i < LARGE.nodes; i++)
    nodes.push(node(`machine-${String(i).padStart(3, '0')}`));
  const states = [
    'retired',
    'retired',
    'failed',
    'retired',
    'cancelled',
    'retired',
    'superseded',
  ] as const;
  const projectOf = (index: number): Project =>
    index % EVERY === 0
      ? shop
      : (projects[usualProjects + (index % (LARGE.projects - usualProjects))] as Project);
  const rowAt = (index: number): Deployment => {
    const generation = Math.floor((LARGE.deployments - index) / EVERY);
    const row = deployment({
      project: projectOf(index),
      generation,
      status: states[index % 7] ?? 'retired',
      age: 90_000 + index * 60,
      node: nodes[0] ?? null,
    });
    return { ...row, id: `many-${index}` };
  };
  return (of) => {
    if (of === undefined)
      return {
        length: LARGE.deployments,
        at: (index) => (index < LARGE.deployments ? rowAt(index) : undefined),
      };
    const own: number[] = [];
    for (let index = 0; index < LARGE.deployments; index++)
      if (projectOf(index) === of) own.push(index);
    return {
      length: own.length,
      at: (index) => (own[index] === undefined ? undefined : rowAt(own[index])),
    };
  };
}

const line = (
  seq: number,
  at: string,
  text: string,
  stream: LogLine['stream'] = 'stdout',
  step: string | null = null,
): LogLine => ({
  seq,
  at,
  stream,
  step,
  text,
});

const manyLines = (): Rows<LogLine> => {
  const start = Date.now() - LARGE.logLines;
  return {
    length: LARGE.logLines,
    at: (index) =>
      index >= LARGE.logLines
        ? undefined
        : line(
            index + 1,
            new Date(start + index).toISOString(),
            `#12 ${(index / 1_000).toFixed(3)} compiled module ${index % 977} of the ` +
              `workspace, ${(index * 7) % 1_000} symbols`,
          ),
  };
};

const TRACE = [
  'TypeError: Cannot read properties of undefined (reading "rows")',
  '    at exportTable (/app/src/export.js:41:18)',
  '    at process.processTicksAndRejections (node:internal/process/task_queues:105:5)',
  '    at async main (/app/src/main.js:12:3)',
];
function buildLog(of: Deployment): LogLine[] {
  const texts: [string, LogLine['stream']][] = [
    [`fetched ${of.branch ?? 'main'} at ${(of.commit ?? '').slice(0, 12)}`, 'system'],
    ['#1 [internal] load build definition from Dockerfile', 'stdout'],
    ['#4 [1/5] FROM docker.io/library/node:24-slim', 'stdout'],
    ['#6 [3/5] RUN npm ci', 'stdout'],
    ['#6 4.120 added 212 packages in 4s', 'stdout'],
    ['#6 4.130 \u001B[33mwarning\u001B[0m 2 packages look for funding', 'stderr'],
    ['#7 [4/5] COPY . .', 'stdout'],
    ['#8 [5/5] RUN npm test', 'stdout'],
    ...(of.status === 'failed'
      ? ([
          ...TRACE.map((text) => [`#8 1.902 ${text}`, 'stderr']),
          ['#8 ERROR: process "/bin/sh -c npm test" did not complete: exit code: 1', 'stderr'],
        ] as [string, LogLine['stream']][])
      : ([
          ['#8 2.210 \u001B[32m✓\u001B[0m 148 tests passed', 'stdout'],
          ['pushed the image', 'system'],
          ['the container answers on port 8080', 'system'],
        ] as [string, LogLine['stream']][])),
  ];
  const start = Date.parse(of.created_at);
  return texts.map(([text, stream], index) =>
    line(index + 1, new Date(start + 400 + index * 600).toISOString(), text, stream),
  );
}
