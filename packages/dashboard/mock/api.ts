/**
 * The API of the control plane with made-up data: a request listener for vite (dev.ts) and for a
 * plain server (serve.ts). Paths, roles, bodies and status codes come from the route table of
 * wire/. The page /mock changes the scenario and the role of one browser.
 */
import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import type { Dataset } from '@berth/wire/dataset';
import type { Deployment } from '@berth/wire/deployment';
import { ERRORS, type ErrorCode, type ProblemDocument } from '@berth/wire/errors';
import type { Node } from '@berth/wire/node';
import { isScaledToZero, type Project } from '@berth/wire/project';
import type { Route } from '@berth/wire/route';
import { type AnswerOf, ROUTES, type RouteName } from '@berth/wire/routes';
import type { SystemReadiness } from '@berth/wire/system';
import type { User } from '@berth/wire/user';
import { type Role, ROLES } from '@berth/wire/vocabulary';
import type { TSchema } from 'typebox';
import { Value } from 'typebox/value';
import { ago, dataset, digestOf, GB, inFuture, instanceOf, placementOf, project } from './rows.ts';
import { jobsOf, RUN_LINES, runsOf } from './runs.ts';
import { sample } from './sample.ts';
import { createWorld, type Rows, SCENARIOS, type Scenario, secret, type World } from './world.ts';

export type MockOptions = { scenario?: Scenario; role?: Role };
/** Returns false for a request that is not for the API. */
export type Mock = (request: IncomingMessage, response: ServerResponse) => boolean;

type Call = {
  params: Readonly<Record<string, string>>;
  query: URLSearchParams;
  body: Record<string, unknown>;
  role: Role;
  world: World;
  match: string | null;
};
type Handlers = { [N in RouteName]?: (call: Call) => AnswerOf<N> };

class Refusal extends Error {
  readonly code: ErrorCode;
  readonly errors: ProblemDocument['errors'];
  constructor(code: ErrorCode, detail: string, errors?: ProblemDocument['errors']) {
    super(detail);
    this.code = code;
    this.errors = errors;
  }
}

const SLOW_MS = 3_000;
const LOOK_AGAIN_MS = 250;
const EMAIL: Record<Role, string> = {
  admin: 'ada@example.org',
  developer: 'grace@example.org',
  viewer: 'vera@example.org',
};

function page<T>(
  rows: Rows<T>,
  query: URLSearchParams,
): { items: T[]; next_cursor: string | null } {
  const from = Number(query.get('cursor') ?? 0);
  const limit = Number(query.get('limit') ?? 50);
  const items: T[] = [];
  for (let index = from; index < Math.min(from + limit, rows.length); index++) {
    const row = rows.at(index);
    if (row !== undefined) items.push(row);
  }
  return { items, next_cursor: from + limit < rows.length ? String(from + limit) : null };
}

const named = <T extends { name: string }>(rows: T[], query: URLSearchParams): T[] =>
  query.has('name') ? rows.filter(({ name }) => name === query.get('name')) : rows;
const withIds = <T extends { id: string }>(rows: T[], query: URLSearchParams): T[] => {
  const ids = query.get('ids')?.split(',');
  return ids === undefined ? rows : rows.filter(({ id }) => ids.includes(id));
};

function one<T extends { id: string }>(
  rows: readonly T[],
  wanted: string | undefined,
  nameOf: (row: T) => string,
): T {
  const row = rows.find((each) => each.id === wanted || nameOf(each) === wanted);
  if (row === undefined) throw new Refusal('not_found', `there is no ${wanted ?? ''}`);
  return row;
}
const projectOf = ({ world, params }: Call): Project =>
  one(world.projects, params['id'], ({ name }) => name);
const nodeOf = ({ world, params }: Call): Node =>
  one(world.nodes, params['id'], ({ hostname }) => hostname);
const datasetOf = ({ world, params }: Call): Dataset =>
  one(world.datasets, params['id'], ({ name }) => name);
const userOf = ({ world, params }: Call): User =>
  one(world.users, params['id'], ({ email }) => email);
function deploymentOf({ world, params }: Call): Deployment {
  const row = world.deployment(params['id'] ?? '');
  if (row === undefined) throw new Refusal('not_found', 'there is no such deployment');
  return row;
}

/** Viewers get names of variables without values. */
function shown(of: Project, role: Role): Project {
  if (role !== 'viewer') return of;
  const { env: _env, build_args: _args, ...rest } = of;
  return { ...rest, env_hidden: true };
}

const tagOf = (answer: unknown): string =>
  `"${createHash('sha1').update(JSON.stringify(answer)).digest('hex').slice(0, 16)}"`;

function changeProject(call: Call, change: (of: Project) => void): Project {
  const of = projectOf(call);
  if (call.match !== null && call.match !== tagOf(shown(of, call.role)))
    throw new Refusal('changed_meanwhile', 'the project changed after you read it');
  change(of);
  of.updated_at = new Date().toISOString();
  call.world.tell({
    kind: 'project.changed',
    project_id: of.id,
    message: `${of.name} was changed`,
  });
  return shown(of, call.role);
}

const item = ({
  events: _e,
  placement: _p,
  instances: _i,
  commit_status: _c,
  ...row
}: Deployment) => row;

/** The instances of running deployments, by project. */
function instances({ world, query }: Call): AnswerOf<'listInstances'> {
  const rows = world.projects.flatMap((of) => {
    const running = world.deployment(of.running_deployment_id ?? '');
    if (running === undefined || of.stopped) return [];
    const { id, generation, commit } = running;
    return running.instances.map(({ placement: _, ...row }) => ({
      ...row,
      project_id: of.id,
      project: of.name,
      deployment_id: id,
      generation,
      commit,
    }));
  });
  const [project, node] = [query.get('project_id'), query.get('node_id')];
  return page(
    rows.filter(
      (row) =>
        (project === null || row.project_id === project) && (node === null || row.node_id === node),
    ),
    query,
  );
}

function projectPlacement(call: Call): AnswerOf<'projectPlacement'> {
  const running = call.world.deployment(projectOf(call).running_deployment_id ?? '');
  return {
    deployment_id: running?.id ?? null,
    items: (running?.instances ?? []).map((one) => ({
      process: one.process,
      number: one.number,
      state: one.state,
      node_id: one.node_id,
      node_name: one.node_name,
      terms: one.placement?.items.filter(({ eligible }) => eligible) ?? [],
      refusals: (one.placement?.items ?? [])
        .filter(({ eligible }) => !eligible)
        .map(({ node_id, hostname, reason }) => ({ node_id, node_name: hostname, reason })),
      note: null,
    })),
  };
}

/** Sets counts. New instances start on node-a, and serve at once. */
function scale(call: Call): Project {
  const unknown = Object.keys(call.body).filter((name) => name !== 'web');
  if (unknown.length > 0) throw new Refusal('validation', `no process ${unknown.join(', ')}`);
  return changeProject(call, (of) => {
    const count = Number(call.body['web']);
    const wasAtZero = isScaledToZero(of);
    of.processes = [{ name: 'web', count }];
    if (of.stopped_by_person) return;
    const running = call.world.deployment(of.running_deployment_id ?? '');
    if (running === undefined) return;
    if (count === 0) {
      Object.assign(running, {
        instances: [],
        health: null,
        waiting: 'the project is scaled to 0; scale it up to serve again',
      });
      of.stopped = true;
      return;
    }
    if (wasAtZero) Object.assign(of, { stopped: false });
    if (!of.stopped) running.waiting = null;
    const kept = running.instances.filter(({ state }) => state !== 'lost').slice(0, count);
    const node = call.world.nodes.find(({ role }) => role === 'deploy') ?? null;
    for (let number = kept.length + 1; number <= count; number++)
      kept.push(instanceOf(number, node, { since: ago(0) }));
    running.instances = kept;
    running.health = { status: 'healthy', since: ago(0), detail: null };
  });
}
function deployments(call: Call, of?: Project): AnswerOf<'listDeployments'> {
  const status = call.query.get('status');
  const ids = call.query.get('ids')?.split(',');
  if (ids !== undefined)
    return page(ids.flatMap((id) => call.world.deployment(id) ?? []).map(item), call.query);
  let rows = call.world.deployments(of);
  if (call.query.get('attention') === 'true') rows = needAttention(rows);
  if (status !== null) {
    // Only the newest ones are searched: `large` has 100,000.
    const newest = Array.from({ length: Math.min(rows.length, 5_000) }, (_, index) =>
      rows.at(index),
    );
    rows = newest.filter((row): row is Deployment => row?.status === status);
  }
  const dataset = call.query.get('dataset_id');
  if (dataset !== null) {
    const known = Array.from({ length: rows.length }, (_, index) => rows.at(index));
    rows = known.filter(
      (row): row is Deployment =>
        row?.datasets.some(({ dataset_id }) => dataset_id === dataset) === true,
    );
  }
  const { items, next_cursor } = page(rows, call.query);
  return { items: items.map(item), next_cursor };
}

/** Only the newest ones are searched, as for a state. */
function needAttention(rows: Rows<Deployment>): Rows<Deployment> {
  const seen = new Set<string>();
  const newest = Array.from({ length: Math.min(rows.length, 200) }, (_, index) =>
    rows.at(index),
  ).filter((row) => row !== undefined);
  return newest.filter(({ project_id, status, health }) => {
    const first = !seen.has(project_id);
    seen.add(project_id);
    return (
      (first && status === 'failed') ||
      (status === 'running' && health !== null && health.status !== 'healthy')
    );
  });
}

function deploy(call: Call, given: Partial<Deployment>): Deployment {
  return call.world.deploy(projectOf(call), {
    created_by: { kind: 'user', id: null, name: EMAIL[call.role] },
    ...given,
  });
}

function changeNode(call: Call, what: string, given: Partial<Node>): Node {
  const of = Object.assign(nodeOf(call), given);
  call.world.tell({ kind: `node.${what}`, node_id: of.id, message: `${of.hostname}: ${what}` });
  return of;
}

/**
 * Points up to now: a pause while the agent restarts, then a restart of the container, at which the
 * counters begin again.
 */
function metrics(call: Call): AnswerOf<'projectMetrics'> {
  const of = projectOf(call);
  const id = of.running_deployment_id;
  const instance = call.query.get('instance');
  const running = call.world.deployment(id ?? '')?.instances ?? [];
  const numbers = running
    .map(({ number }) => number)
    .filter((number) => instance === null || number === Number(instance));
  // Instance 1 has the most requests.
  const share = numbers.reduce((sum, number) => sum + 1 / number, 0);
  const to = Date.now();
  const from = Date.parse(call.query.get('from') ?? ago(3_600));
  const step = to - from > 86_400_000 + 60_000 ? 900 : 60;
  const count = numbers.length === 0 || of.stopped ? 0 : Math.floor((to - from) / 1_000 / step);
  const [pause, restart] = [Math.floor(count * 0.3), Math.floor(count * 0.62)];
  const points = Array.from({ length: count }, (_, index) => {
    const since = index < restart ? index + 30 : index - restart + 0.6;
    const minutes = (since * step) / 60;
    return {
      at: new Date(to - (count - index) * step * 1_000).toISOString(),
      deployment_id: id ?? '',
      started_at: new Date(to - (count - index + since) * step * 1_000)
        .toISOString()
        .replace(/\d{3}Z$/, '000Z'),
      ...(numbers.length === 1 ? { process: 'web', instance: numbers[0] ?? 1 } : {}),
      cpu_seconds: share * (minutes * 14 + 6 * Math.sin(minutes / 5)),
      throttled_seconds: index > count * 0.8 ? (minutes - (0.8 * count - restart)) * 9 : 0,
      memory_bytes:
        numbers.length *
        (230 + 90 * Math.sin(index / 9 + share) ** 2) *
        1_048_576 *
        (index < restart ? 1 : 0.7),
      memory_limit: of.memory_bytes === null ? null : of.memory_bytes * numbers.length,
      restarts: index < restart ? 0 : 1,
      oom_kills: index < restart ? 0 : 1,
      net_rx: share * minutes * 4_000_000,
      net_tx: share * (minutes * 21_000_000 + 90_000_000 * Math.sin(minutes / 7)),
    };
  }).filter((_, index) => index < pause || index > pause + count / 15);
  return {
    points,
    from: new Date(from).toISOString(),
    to: new Date(to).toISOString(),
    step_seconds: step,
    truncated: false,
  };
}

type GitAccess = { key: AnswerOf<'getDeployKey'> | null; token: AnswerOf<'getGitToken'> | null };
const access = new WeakMap<Project, GitAccess>();
const deployKey = (): AnswerOf<'getDeployKey'> => ({
  public_key: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample berth',
  fingerprint: `SHA256:${'a'.repeat(43)}`,
  created_at: ago(86_400),
});
const gitToken = (role: Role, username: string | null): AnswerOf<'getGitToken'> => ({
  ...{ host: 'git.example.org', username, api_url: null, set_by: EMAIL[role] },
  set_at: ago(3_600),
});
/** The first project has both. */
function gitAccess(of: Project): GitAccess {
  const isFirst = of.id === 'p-explorer';
  const found = access.get(of) ?? {
    key: isFirst ? deployKey() : null,
    token: isFirst ? gitToken('admin', null) : null,
  };
  access.set(of, found);
  return found;
}
function none(text: string): never {
  throw new Refusal('not_found', text);
}
const hooks = new WeakMap<World, Map<string, AnswerOf<'getHook'>>>();
function hooksOf(world: World): Map<string, AnswerOf<'getHook'>> {
  let found = hooks.get(world);
  if (found === undefined) {
    const hook = {
      forge: 'gitea',
      url: 'https://berth.example.org/api/hooks/h-explorer',
      refused: 2,
      created_at: ago(9e6),
      updated_at: ago(9e6),
    } as const;
    found = new Map([['p-explorer', hook]]);
    hooks.set(world, found);
  }
  return found;
}

const cleanUp = {
  requested_by: null,
  requested_at: ago(90_000),
  started_at: ago(89_990),
  finished_at: ago(89_800),
  waiting: null,
};
const cleanUps = (): AnswerOf<'cleanUps'> => ({
  keep_releases: 5,
  interval_seconds: 86_400,
  next_at: inFuture(3_600),
  current: null,
  items: [
    {
      id: 'c-1',
      state: 'done',
      ...cleanUp,
      images: 41,
      images_left: 0,
      removed: 41,
      missing: 0,
      bytes_before: 96 * GB,
      bytes_after: 61 * GB,
      error: null,
    },
  ],
});

type RepositoryAsked = { git_url: string; branch: string | null; project_id?: string };
const repositoryLooks = new Map<string, RepositoryAsked>([
  ['l-0', { git_url: 'https://git.example.org/team/shop.git', branch: null }],
]);
/**
 * An address with `private` is refused, except for its project; every other repository has the same
 * branches and files. `id` null: no builder can look.
 */
function looked(
  id: string | null,
  asked: RepositoryAsked,
  unavailable?: string,
): AnswerOf<'getRepositoryLook'> {
  const base = { id, ...asked, requested_at: ago(0), found: null, error: null };
  if (unavailable !== undefined) return { ...base, state: 'unavailable', unavailable };
  if (asked.git_url.includes('private') && asked.project_id === undefined)
    return {
      ...base,
      state: 'failed',
      error: {
        code: 'git_credentials',
        message: 'The git server refused the access of the builder.',
      },
    };
  const branches = ['trunk', 'develop', 'release/2.1'];
  const branch = branches.find((name) => name === (asked.branch ?? 'trunk')) ?? null;
  const dockerfiles = [
    {
      path: 'web/Dockerfile',
      ports: [3000, 9090],
      targets: [{ name: 'web', ports: [3000, 9090] }],
    },
    { path: 'worker/worker.dockerfile', ports: [], targets: [] },
  ];
  const found = {
    default_branch: 'trunk',
    branches,
    branches_left_out: 0,
    branch,
    commit: branch === null ? null : '5bc2aec'.padEnd(40, '0'),
  };
  const files = branch === null ? [] : dockerfiles;
  return {
    ...base,
    state: 'done',
    found: { ...found, dockerfiles: files, dockerfiles_left_out: 0, submodules: false, lfs: true },
  };
}

const HANDLERS: Handlers = {
  authMethods: () => ({ methods: ['gateway', 'password'] }),
  me: ({ world, role }) => ({
    ...one(world.users, 'u-ada', ({ email }) => email),
    email: EMAIL[role],
    role,
  }),
  version: () => ({
    version: '0.1.0',
    commit: '5bc2aec',
    node: '24.22.1',
    schema: '0034',
    oldest_agent: '0.1.0',
  }),

  system: () => ({
    readiness: READY,
    settings: [
      { name: 'AGENT_SECRET', value: null, source: 'hidden', doc: 'Secret of the agents' },
      {
        name: 'BASE_DOMAIN',
        value: 'apps.example.org',
        source: 'set',
        doc: 'Projects are published at PREFIX.BASE_DOMAIN',
      },
      {
        name: 'KEEP_RELEASES',
        value: '5',
        source: 'default',
        doc: 'Releases of each project to which a rollback is possible',
      },
      { name: 'SMTP_URL', value: null, source: 'default', doc: 'Mail server for notifications' },
    ],
    backups: {
      interval_seconds: 86_400,
      next_at: inFuture(40_000),
      items: [
        ...[1, 2].map((day) => ({
          id: `b-${day}`,
          name: `berth-2026-11-2${5 - day}T0300.tar.age`,
          target: '/var/backups/berth',
          scheduled: true,
          bytes: 48_000_000,
          error: null,
          started_at: ago(day * 86_400),
          finished_at: ago(day * 86_400 - 20),
        })),
        {
          id: 'b-3',
          name: null,
          target: '/var/backups/berth',
          scheduled: true,
          bytes: null,
          error: 'The disk is full',
          started_at: ago(260_000),
          finished_at: ago(259_990),
        },
      ],
    },
  }),
  listProjects: ({ world, query, role }) =>
    page(
      withIds(named(world.projects, query), query)
        .filter(({ name, domain_prefix, git_url }) =>
          `${name} ${domain_prefix} ${git_url}`
            .toLowerCase()
            .includes(query.get('find')?.toLowerCase() ?? ''),
        )
        .filter(
          ({ certificate }) =>
            query.get('attention') !== 'true' || (certificate?.problem ?? null) !== null,
        )
        .map((row) => shown(row, role)),
      query,
    ),
  getProject: (call) => shown(projectOf(call), call.role),
  createRepositoryLook: ({ world, body }) => {
    const named = body['project_id'];
    const project =
      typeof named === 'string' ? one(world.projects, named, ({ name }) => name) : null;
    const asked = {
      git_url: project?.git_url ?? String(body['git_url']),
      branch: (body['branch'] as string | null | undefined) ?? null,
      ...(project === null ? {} : { project_id: project.id }),
    };
    // A platform without a builder.
    if (world.nodes.every(({ role }) => role !== 'builder'))
      return looked(null, asked, 'no builder is registered');
    const id = `l-${repositoryLooks.size}`;
    repositoryLooks.set(id, asked);
    return { ...looked(id, asked), state: 'waiting', found: null, error: null };
  },
  getRepositoryLook: ({ params: { id = '' } }) => {
    const asked = repositoryLooks.get(id);
    if (asked === undefined)
      throw new Refusal('not_found', 'the look does not exist; it may be too old');
    return looked(id, asked);
  },
  createProject: ({ world, body, role }) => {
    const name = String(body['name']);
    if (world.projects.some((row) => row.name === name))
      throw new Refusal('name_taken', `a project has the name ${name}`, [
        { field: 'name', rule: 'name_taken', message: 'is taken by another project' },
      ]);
    const row = project(name, {
      ...(body as Partial<Project>),
      certificate: null,
      created_at: ago(0),
      updated_at: ago(0),
    });
    world.projects.push(row);
    world.projects.sort((a, b) => a.name.localeCompare(b.name));
    world.tell({ kind: 'project.created', project_id: row.id, message: `${name} was created` });
    return shown(row, role);
  },
  patchProject: (call) =>
    changeProject(call, (of) => {
      const { env, build_args, ...rest } = call.body as Partial<Project> & {
        env?: Record<string, string | null>;
        build_args?: Record<string, string | null>;
      };
      Object.assign(of, rest);
      for (const [name, value] of Object.entries(env ?? {})) setEnv(of, name, value);
      const args = Object.entries({ ...of.build_args, ...build_args }).filter(
        (pair): pair is [string, string] => pair[1] !== null,
      );
      Object.assign(of, {
        build_args: Object.fromEntries(args),
        build_arg_names: args.map(([name]) => name),
      });
    }),
  deleteProject: (call) => {
    const of = changeProject(call, (row) => void (row.deleting = true));
    call.world.projects.splice(call.world.projects.indexOf(projectOf(call)), 1);
    return of;
  },
  putEnv: (call) =>
    changeProject(call, (of) => setEnv(of, call.params['name'] ?? '', String(call.body['value']))),
  deleteEnv: (call) => changeProject(call, (of) => setEnv(of, call.params['name'] ?? '', null)),
  projectDomains: (call) => {
    const of = projectOf(call);
    return {
      items: of.domains.map((domain) => ({
        domain,
        url: `https://${domain}`,
        published: of.running_deployment_id !== null,
        dns: {
          state: 'elsewhere' as const,
          addresses: ['203.0.113.9'],
          cname: null,
          expected: ['192.0.2.1'],
          problem: `${domain} leads to 203.0.113.9. Set its A record to 192.0.2.1.`,
          checked_at: ago(60),
        },
        certificate: null,
      })),
    };
  },
  listJobs: (call) => ({ items: jobsOf(projectOf(call).id), next_cursor: null }),
  projectRuns: (call) => {
    const [job, status] = [call.query.get('job'), call.query.get('status')];
    const rows = runsOf(projectOf(call).id).filter(
      (run) => (job === null || run.job === job) && (status === null || run.status === status),
    );
    return page(rows, call.query);
  },
  getRun: ({ params }) => {
    const rows = runsOf('p-explorer');
    return rows.find(({ id }) => id === params['id']) ?? one(rows, 'run-1', ({ id }) => id);
  },
  listSecrets: (call) => page(call.world.secrets.get(projectOf(call).id) ?? [], call.query),
  putSecret: (call) => {
    const { id } = projectOf(call);
    const row = { ...secret(call.params['name'] ?? ''), set_at: ago(0), set_by: EMAIL[call.role] };
    call.world.secrets.set(id, [
      ...(call.world.secrets.get(id) ?? []).filter(({ name }) => name !== row.name),
      row,
    ]);
    return row;
  },
  deleteSecret: (call) => {
    const { id } = projectOf(call);
    call.world.secrets.set(
      id,
      (call.world.secrets.get(id) ?? []).filter(({ name }) => name !== call.params['name']),
    );
    return null as never;
  },

  createDeployment: (call) => deploy(call, { trigger: 'api' }),
  rollback: (call) => {
    const live = call.world.deployment(projectOf(call).running_deployment_id ?? '');
    const rollback_of = (call.body['deployment_id'] as string | undefined) ?? null;
    return deploy(call, {
      trigger: 'rollback',
      rollback_of,
      rolled_back_from: live?.generation ?? null,
    });
  },
  restartProject: (call) => deploy(call, { trigger: 'restart' }),
  startProject: (call) => deploy(call, { trigger: 'start' }),
  stopProject: (call) =>
    changeProject(call, (of) => void Object.assign(of, { stopped: true, stopped_by_person: true })),
  scaleProject: scale,
  execProject: () => ({ ticket: 'ticket', url: 'ws://berth.example.org/api/exec/exec-1' }),
  listInstances: instances,
  projectPlacement,
  listDeployments: (call) =>
    deployments(
      call,
      call.world.projects.find(({ id }) => id === call.query.get('project_id')),
    ),
  projectDeployments: (call) => deployments(call, projectOf(call)),
  getDeployment: deploymentOf,
  cancelDeployment: (call) => Object.assign(deploymentOf(call), { cancel_requested: true }),
  deploymentLogs: (call) => {
    const log = call.world.log(deploymentOf(call));
    const lines = page(
      log,
      new URLSearchParams({ limit: '1000', cursor: call.query.get('after') ?? '0' }),
    ).items;
    return { lines, next: lines.at(-1)?.seq ?? 0 };
  },
  deploymentExits: (call) => {
    const row = deploymentOf(call);
    if (row.health?.status !== 'unhealthy') return { items: [] };
    const texts = ['listening on 8080', 'error: out of connections', 'fatal: the pool is empty'];
    return {
      items: [
        {
          deployment_id: row.id,
          node_id: row.node_id,
          container: `berth-labels-${row.generation}`,
          exit_code: 137,
          out_of_memory: true,
          error: null,
          started_at: ago(9_000),
          finished_at: ago(1_400),
          lines: texts.map((text, index) => ({
            at: ago(1_403 - index),
            stream: index === 0 ? ('stdout' as const) : ('stderr' as const),
            text,
          })),
          truncated: false,
        },
      ],
    };
  },
  projectLogs: (call) => ({ lines: runtimeLines(projectOf(call)), truncated: false }),
  projectMetrics: metrics,

  getDeployKey: (call) => gitAccess(projectOf(call)).key ?? none('the project has no deploy key'),
  createDeployKey: (call) => (gitAccess(projectOf(call)).key = deployKey()),
  deleteDeployKey: (call) => void (gitAccess(projectOf(call)).key = null),
  getGitToken: (call) => gitAccess(projectOf(call)).token ?? none('the project has no git token'),
  putGitToken: (call) =>
    (gitAccess(projectOf(call)).token = gitToken(
      call.role,
      (call.body['username'] as string | undefined) ?? null,
    )),
  deleteGitToken: (call) => void (gitAccess(projectOf(call)).token = null),
  getHook: (call) => {
    const hook = hooksOf(call.world).get(projectOf(call).id);
    if (hook === undefined) throw new Refusal('not_found', 'the project has no hook');
    return hook;
  },
  putHook: (call) => {
    const { id } = projectOf(call);
    const forge = call.body['forge'] as AnswerOf<'getHook'>['forge'];
    const hook = {
      forge,
      url: `https://berth.example.org/api/hooks/h-${id}`,
      refused: 0,
      created_at: ago(0),
      updated_at: ago(0),
    };
    hooksOf(call.world).set(id, hook);
    return { ...hook, secret: 'whsec_bW9jayBzZWNyZXQgb2YgdGhlIG1vY2s=' };
  },
  deleteHook: (call) => {
    hooksOf(call.world).delete(projectOf(call).id);
    return null as never;
  },
  listDeliveries: (call) => {
    const newest = call.world.deployments(projectOf(call)).at(0);
    const row = { event: 'push', branch: 'main', commit: newest?.commit ?? null };
    return page(
      [
        {
          id: 'dl-2',
          at: ago(7_200),
          ...row,
          verdict: 'deployed' as const,
          reason: null,
          deployment_id: newest?.id ?? null,
        },
        {
          id: 'dl-1',
          at: ago(90_000),
          ...row,
          branch: 'drafts',
          verdict: 'skipped' as const,
          reason: 'the branch is not main',
          deployment_id: null,
        },
      ],
      call.query,
    );
  },

  listNodes: ({ world, query }) =>
    page(
      query.has('name')
        ? world.nodes.filter(({ hostname }) => hostname === query.get('name'))
        : world.nodes,
      query,
    ),
  getNode: nodeOf,
  patchNode: (call) => {
    const of = nodeOf(call);
    const patch = call.body['labels'] as Record<string, string | null>;
    const kept = (labels: Record<string, string | null>): Record<string, string> =>
      Object.fromEntries(
        Object.entries(labels).filter((entry): entry is [string, string] => entry[1] !== null),
      );
    return changeNode(call, 'labelled', {
      labels: kept({ ...of.labels, ...patch }),
      admin_labels: kept({ ...of.admin_labels, ...patch }),
    });
  },
  cordonNode: (call) => changeNode(call, 'cordoned', { schedulable: false }),
  uncordonNode: (call) => changeNode(call, 'uncordoned', { schedulable: true, drain: null }),
  drainNode: (call) =>
    changeNode(call, 'draining', {
      schedulable: false,
      drain: { started_at: ago(0), finished_at: null, moved: 0, left: [] },
    }),
  confirmRemoved: (call) => {
    const of = nodeOf(call);
    const { container = '' } = call.params;
    const left = of.unmanaged ?? [];
    if (left.every((one) => one.container !== container))
      throw new Refusal(
        'not_found',
        `${of.hostname} has no container ${container} that a person must remove`,
      );
    const drain = of.drain ?? null;
    return changeNode(call, 'container_removed', {
      unmanaged: left.filter((one) => one.container !== container),
      drain: drain && {
        ...drain,
        left: drain.left.filter(({ problem }) => problem?.startsWith(`${container} `) !== true),
      },
    });
  },
  nodeDisk: (call) => {
    const of = nodeOf(call);
    const wanted = Number(call.query.get('bytes') ?? 0);
    const free = of.free_storage ?? 0;
    const unused = of.cached.filter(({ pinned }) => pinned !== true);
    const evict =
      free >= wanted
        ? []
        : unused.map((row) => ({
            kind: 'dataset' as const,
            name: `${row.name ?? ''} version ${row.version}`,
            bytes: row.bytes,
            why: 'no container uses it, and nobody used it for 5 days',
          }));
    return {
      disk: of.disk,
      budget_bytes: of.max_storage,
      free_bytes: free,
      wanted_bytes: wanted,
      enough: free + evict.reduce((sum, { bytes }) => sum + bytes, 0) >= wanted,
      evict,
      kept_bytes: of.cached.reduce(
        (sum, { bytes, pinned }) => sum + (pinned === true ? bytes : 0),
        0,
      ),
      volumes:
        of.hostname === 'node-a'
          ? [
              {
                project: 'labels',
                name: 'uploads',
                bytes: 3 * GB,
                kept_of_deleted: false,
                missing_since: null,
              },
            ]
          : [],
    };
  },
  placement: ({ world }) =>
    placementOf(
      world.nodes,
      world.nodes.find(
        ({ role, schedulable, status }) => role === 'deploy' && schedulable && status === 'online',
      ) ?? null,
    ),
  cleanUps,
  startCleanUp: () => {
    const rest = {
      images: 3,
      images_left: 0,
      removed: null,
      missing: null,
      bytes_before: null,
      bytes_after: null,
      error: null,
    };
    return {
      ...cleanUps(),
      current: {
        id: 'c-2',
        state: 'waiting',
        requested_by: EMAIL.admin,
        requested_at: ago(0),
        started_at: null,
        finished_at: null,
        waiting: 'a build runs',
        ...rest,
      },
    };
  },

  listDatasets: ({ world, query }) => page(named(world.datasets, query), query),
  getDataset: datasetOf,
  createDataset: ({ world, body }) => {
    const row = dataset(String(body['name']), {
      nfs_path: String(body['nfs_path']),
      status: 'new',
      version: null,
      bytes: 0,
      files: 0,
      scanning: true,
    });
    world.datasets.push(row);
    return row;
  },
  scanDataset: (call) => {
    const row = Object.assign(datasetOf(call), { scanning: true });
    call.world.tell({
      kind: 'dataset.scanning',
      dataset_id: row.id,
      message: `a scan of ${row.name} was requested`,
    });
    return row;
  },
  datasetVersions: (call) => {
    const of = datasetOf(call);
    const rows = Array.from(
      { length: of.version ?? 0 },
      (_, index) => (of.version ?? 0) - index,
    ).map((version, index) => ({
      version,
      created_at: ago(86_400 * (index + 1)),
      files: of.files - index * 12,
      bytes: of.bytes - index * GB,
      manifest_digest: digestOf(`${of.name} ${version}`),
    }));
    return page(rows, call.query);
  },
  datasetDiff: (call) => {
    const of = datasetOf(call);
    const version = (name: string): AnswerOf<'datasetDiff'>['from'] => {
      const number = Number(call.query.get(name));
      if (of.version === null || number > of.version)
        throw new Refusal(
          'not_found',
          `${of.name} has no version ${number}; its newest is ${of.version ?? 0}`,
        );
      if (number === 1)
        throw new Refusal(
          'not_found',
          `version 1 of ${of.name} was removed: Berth keeps the newest versions and those in use`,
        );
      return {
        version: number,
        created_at: ago(86_400 * (of.version - number + 1)),
        files: of.files,
        bytes: of.bytes,
        manifest_digest: digestOf(`${number}`),
      };
    };
    const [from, to] = [version('from'), version('to')];
    const count = Math.abs(from.version - to.version) * 40;
    const items = Array.from({ length: count }, (_, index) => {
      const change = (['added', 'modified', 'removed'] as const)[index % 3] ?? 'added';
      const [size, previous_size] = [
        change === 'removed' ? null : 41_000 + index,
        change === 'added' ? null : 40_000 + index,
      ];
      const path = `readings/2026/11/station-${String(index).padStart(3, '0')}.csv`;
      return {
        path,
        change,
        size,
        previous_size,
        checksum: size === null ? null : digestOf(path),
        previous_checksum: null,
      };
    });
    const third = { files: Math.floor(count / 3), bytes: Math.floor(count / 3) * 41_000 };
    const totals = {
      added: third,
      modified: { ...third, previous_bytes: third.bytes },
      removed: third,
      complete: true,
    };
    return { from, to, totals, ...page(items, call.query) };
  },
  datasetHistory: (call) => {
    const version = Number(call.query.get('version') ?? datasetOf(call).version ?? 1);
    const changes = ['added', 'modified', 'removed'] as const;
    const rows = Array.from({ length: 12 }, (_, index) => {
      const change = changes[index % 3] ?? 'added';
      const gone = change === 'removed';
      return {
        at: ago(86_400),
        version,
        path: `readings/2026/11/station-${index}.csv`,
        change,
        size: gone ? null : 41_000 + index,
        checksum: gone ? null : digestOf(`new ${index}`),
        previous_checksum: change === 'added' ? null : digestOf(`old ${index}`),
      };
    });
    return page(rows, call.query);
  },

  listNotifications: ({ world, query }) => page(named(world.notifications, query), query),
  createNotification: ({ world, body }) => {
    const row = {
      ...(sample(ROUTES.getNotification.answer) as AnswerOf<'getNotification'>),
      ...(body as Partial<AnswerOf<'getNotification'>>),
      id: `no-${world.notifications.length}`,
    };
    world.notifications.push(row);
    return {
      ...row,
      secret: row.kind === 'webhook' ? 'whsec_bW9jayBzZWNyZXQgb2YgdGhlIG1vY2s=' : null,
    };
  },
  deleteNotification: ({ world, params }) => {
    world.notifications = world.notifications.filter(
      ({ id, name }) => id !== params['id'] && name !== params['id'],
    );
    return null as never;
  },
  testNotification: ({ params }) => ({
    id: 'nd-1',
    at: ago(0),
    type: 'test',
    title: 'Test of Berth',
    status: params['id'] === 'no-pager' ? 'failed' : 'sent',
    tries: params['id'] === 'no-pager' ? 1 : 0,
    error: params['id'] === 'no-pager' ? 'The address answered 502 Bad Gateway' : null,
    finished_at: ago(0),
  }),

  listUsers: ({ world, query }) => page(world.users, query),
  createUser: ({ world, body }) => {
    const row: User = {
      id: `u-${world.users.length}`,
      email: String(body['email']),
      role: body['role'] as Role,
      disabled: false,
      last_login_at: null,
    };
    world.users.push(row);
    return row;
  },
  patchUser: (call) => {
    const { role, disabled } = call.body as Partial<User>;
    return Object.assign(
      userOf(call),
      role === undefined ? {} : { role },
      disabled === undefined ? {} : { disabled },
    );
  },
  listTokens: ({ query }) =>
    page(
      [
        {
          id: 'tk-1',
          user_id: 'u-ada',
          name: 'ci',
          role: 'developer' as const,
          projects: ['p-shop'],
          created_at: ago(9e5),
          expires_at: inFuture(9e6),
          last_used_at: ago(300),
        },
        {
          id: 'tk-2',
          user_id: 'u-ada',
          name: 'backup script',
          role: 'viewer' as const,
          projects: null,
          created_at: ago(8e6),
          expires_at: inFuture(4e5),
          last_used_at: null,
        },
      ],
      query,
    ),
  createToken: ({ body }) => ({
    ...(sample(ROUTES.createToken.answer) as AnswerOf<'createToken'>),
    ...(body as Partial<AnswerOf<'createToken'>>),
    token: 'berthpat_mock_shown_once',
  }),
  audit: ({ world, query }) =>
    page(
      world.audit.filter(
        ({ outcome }) => !query.has('outcome') || outcome === query.get('outcome'),
      ),
      query,
    ),
  events: ({ world, query }) => {
    const limit = Number(query.get('limit') ?? 50);
    const find = (query.get('find') ?? '').toLowerCase();
    const found = world.events.filter(({ kind, message }) =>
      `${kind} ${message}`.toLowerCase().includes(find),
    );
    if (query.has('after')) {
      const after = Number(query.get('after'));
      const items = found.filter(({ seq }) => seq > after).slice(0, limit);
      return { items, next: items.at(-1)?.seq ?? after, gap: false };
    }
    const earlier = found.filter(
      ({ seq }) => seq < Number(query.get('before') ?? Number.POSITIVE_INFINITY),
    );
    const items = earlier.slice(-limit);
    return {
      items,
      next: items.at(-1)?.seq ?? 0,
      gap: false,
      ...(earlier.length > items.length ? { previous: items[0]?.seq ?? 0 } : {}),
    };
  },
};

function setEnv(of: Project, name: string, value: string | null): void {
  const env = Object.fromEntries(Object.entries(of.env ?? {}).filter(([key]) => key !== name));
  of.env = value === null ? env : { ...env, [name]: value };
  of.env_names = Object.keys(of.env).toSorted();
}

function runtimeLines(of: Project): AnswerOf<'projectLogs'>['lines'] {
  const id = of.running_deployment_id;
  if (id === null || of.stopped) return [];
  return Array.from({ length: 80 }, (_, index) => runtimeLine(id, index, ago((80 - index) * 7)));
}
const runtimeLine = (
  id: string,
  index: number,
  at: string,
): AnswerOf<'projectLogs'>['lines'][number] => ({
  at,
  deployment_id: id,
  stream: index % 17 === 0 ? 'stderr' : 'stdout',
  text:
    index % 17 === 0
      ? `\u001B[33mwarn\u001B[0m slow query, ${200 + index * 3} ms: select * from readings`
      : `GET /readings?page=${index} 200 ${3 + (index % 9)} ms`,
});

const TABLE = (Object.entries(ROUTES) as [RouteName, Route][])
  .map(([name, route]) => {
    const names = [...route.path.matchAll(/:(\w+)/g)].map(([, param = '']) => param);
    return {
      name,
      route,
      names,
      pattern: new RegExp(`^${route.path.replaceAll(/:\w+/g, '([^/]+)')}$`),
    };
  })
  .toSorted((a, b) => a.names.length - b.names.length); // /api/nodes/join-tokens is not a node

const READY: SystemReadiness = {
  status: 'ready',
  parts: [
    { name: 'database', ok: true, required: true, detail: 'SQLite, schema 0034' },
    {
      name: 'proxy',
      ok: true,
      required: true,
      detail: '2 entry points confirmed the configuration 4 s ago',
    },
    { name: 'registry', ok: true, required: false, detail: 'answers' },
    { name: 'agents', ok: false, required: false, detail: 'node-d was last seen 90 minutes ago' },
  ],
  notes: [],
};

/**
 * Cookies `mock_scenario`, `mock_role` and `mock_signed_out` win over the options, so that one
 * server shows all states.
 */
export function createMock({ scenario = 'usual', role = 'admin' }: MockOptions = {}): Mock {
  const worlds = new Map<Scenario, World>();
  const worldOf = (wanted: Scenario): World => {
    const world = worlds.get(wanted) ?? createWorld(wanted);
    worlds.set(wanted, world);
    world.tick();
    return world;
  };
  return (request, response) => {
    const url = new URL(request.url ?? '/', 'http://mock');
    if (url.pathname === '/mock') {
      choose(url, response);
      return true;
    }
    if (!/^\/(?:api|_oauth)(?:\/|$)/.test(url.pathname)) return false;
    const cookies = cookiesOf(request);
    const wanted = SCENARIOS.find((name) => name === cookies.get('mock_scenario')) ?? scenario;
    const as = ROLES.find((name) => name === cookies.get('mock_role')) ?? role;
    void answer({
      request,
      response,
      url,
      world: worldOf(wanted),
      scenario: wanted,
      role: as,
      signedOut: cookies.has('mock_signed_out'),
    }).catch((error: unknown) => {
      if (error instanceof Refusal) refuse(response, error.code, error.message, error.errors);
      else refuse(response, 'internal', String(error));
    });
    return true;
  };
}

type Exchange = {
  request: IncomingMessage;
  response: ServerResponse;
  url: URL;
  world: World;
  scenario: Scenario;
  role: Role;
  signedOut: boolean;
};

async function answer({
  request,
  response,
  url,
  world,
  scenario,
  role,
  signedOut,
}: Exchange): Promise<void> {
  if (scenario === 'away') {
    response.writeHead(502).end('Bad Gateway');
    return;
  }
  if (scenario === 'slow') await pause(SLOW_MS);
  const rows = TABLE.filter(({ pattern }) => pattern.test(url.pathname));
  const found = rows.find(({ route }) => route.method === request.method);
  if (found === undefined)
    throw new Refusal(
      rows.length === 0 ? 'not_found' : 'method_not_allowed',
      `no route ${request.method ?? ''} ${url.pathname}`,
    );
  const { name, route } = found;
  if (name === 'login' || name === 'logout') {
    const body = await bodyOf(request, route);
    if (name === 'login' && body['password'] === 'wrong')
      throw new Refusal('wrong_credentials', 'the e-mail address or the password is wrong');
    response.setHeader(
      'set-cookie',
      name === 'login' ? 'mock_signed_out=; Max-Age=0; Path=/' : 'mock_signed_out=1; Path=/',
    );
    const user = HANDLERS.me?.({
      params: {},
      query: url.searchParams,
      body,
      role,
      world,
      match: null,
    });
    send(
      response,
      route.status,
      name === 'login'
        ? { token: '', token_type: 'Bearer', expires_in: 3_600, refresh_token: '', user }
        : null,
    );
    return;
  }
  if (name === 'exchange') throw new Refusal('unauthenticated', 'the mock has no gateway');
  if (route.who !== 'public') authorize(route, role, signedOut);
  const values = found.pattern.exec(url.pathname)?.slice(1) ?? [];
  const params = Object.fromEntries(
    found.names.map((param, index) => [param, decodeURIComponent(values[index] ?? '')]),
  );
  const call: Call = {
    params,
    query: url.searchParams,
    body: await bodyOf(request, route),
    role,
    world,
    match: request.headers['if-match'] ?? null,
  };
  if (
    /event-stream/.test(request.headers.accept ?? '') &&
    (name === 'events' || route.streams === true)
  ) {
    await stream(name, call, request, response);
    return;
  }
  const handler = HANDLERS[name] as ((call: Call) => unknown) | undefined;
  const result =
    handler === undefined
      ? route.answer === undefined
        ? null
        : sample(route.answer)
      : handler(call);
  if (route.etag === true) response.setHeader('etag', tagOf(result));
  send(response, route.status, result);
}

function authorize(route: Route, role: Role, signedOut: boolean): void {
  if (route.who === 'agent' || route.who === 'gateway')
    throw new Refusal('agent_secret', 'the mock has no agents');
  if (signedOut) throw new Refusal('unauthenticated', 'sign in first');
  if (route.who !== 'public' && ROLES.indexOf(role) < ROLES.indexOf(route.who))
    throw new Refusal('forbidden', `your role is ${role}; this needs ${route.who}`);
}

async function bodyOf(request: IncomingMessage, route: Route): Promise<Record<string, unknown>> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString('utf8');
  if (route.body === undefined || (text === '' && route.bodyOptional === true)) return {};
  const body: unknown = text === '' ? undefined : JSON.parse(text);
  const schema: TSchema = route.body;
  if (Value.Check(schema, body)) return body as Record<string, unknown>;
  const errors = [...Value.Errors(schema, body)].map(({ instancePath, keyword, message }) => ({
    field: instancePath.slice(1).replaceAll('/', '.'),
    rule: keyword,
    message,
  }));
  throw new Refusal('validation', 'some fields are invalid', errors);
}

/** Logs end after their last line, but for a project and for events the stream goes on. */
async function stream(
  name: RouteName,
  call: Call,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
  const write = (id: string | number, data: unknown): boolean =>
    response.write(`id: ${id}\ndata: ${JSON.stringify(data)}\n\n`);
  const gone = (): boolean => response.destroyed || request.socket.destroyed;
  const after = Number(request.headers['last-event-id'] ?? 0) || 0;
  if (name === 'deploymentLogs') {
    const log = call.world.log(deploymentOf(call));
    for (let index = after; index < log.length && !gone(); index++) {
      const line = log.at(index);
      // A reader that is slower than this loop gets the next lines when it has taken these.
      if (line !== undefined && !write(line.seq, line))
        await Promise.race([
          new Promise((resolve) => response.once('drain', resolve)),
          pause(1_000),
        ]);
    }
    response.end('event: end\ndata: {}\n\n');
    return;
  }
  if (name === 'runLogs') {
    for (const line of RUN_LINES.slice(after)) write(line.seq, line);
    response.end('event: end\ndata: {}\n\n');
    return;
  }
  if (name === 'projectLogs') {
    const of = projectOf(call);
    const first = runtimeLines(of);
    for (const [index, line] of first.entries()) write(index + 1, line);
    for (let index = first.length; !gone(); index++) {
      await pause(4 * LOOK_AGAIN_MS);
      if (of.running_deployment_id !== null && !of.stopped)
        write(index + 1, runtimeLine(of.running_deployment_id, index, ago(0)));
    }
    return;
  }
  response.write(': open\n\n');
  for (
    let seen = request.headers['last-event-id'] === undefined ? call.world.events.length : after;
    !gone();
  ) {
    call.world.tick();
    for (const event of call.world.events.slice(seen)) write(event.seq, event);
    seen = call.world.events.length;
    await pause(LOOK_AGAIN_MS);
  }
}

function send(response: ServerResponse, status: number, body: unknown): void {
  if (status === 204 || body === null) response.writeHead(status === 200 ? 204 : status).end();
  else response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

function refuse(
  response: ServerResponse,
  code: ErrorCode,
  detail: string,
  errors?: ProblemDocument['errors'],
): void {
  const { status, title } = ERRORS[code];
  const problem: ProblemDocument = {
    type: `urn:berth:error:${code}`,
    title,
    status,
    detail,
    code,
    request_id: 'r-mock',
    ...(errors === undefined ? {} : { errors }),
  };
  if (response.headersSent) response.end();
  else
    response
      .writeHead(status, { 'content-type': 'application/problem+json' })
      .end(JSON.stringify(problem));
}

function cookiesOf(request: IncomingMessage): Map<string, string> {
  const pairs = (request.headers.cookie ?? '').split(/; */).filter((pair) => pair.includes('='));
  return new Map(
    pairs.map((pair) => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)]),
  );
}

function choose(url: URL, response: ServerResponse): void {
  const cookies = ['scenario', 'role'].flatMap((name) =>
    url.searchParams.has(name)
      ? [`mock_${name}=${encodeURIComponent(url.searchParams.get(name) ?? '')}; Path=/`]
      : [],
  );
  if (cookies.length > 0) {
    response.writeHead(303, { location: '/', 'set-cookie': cookies }).end();
    return;
  }
  const links = (name: string, values: readonly string[]): string =>
    `<p>${name}: ` +
    `${values.map((value) => `<a href="/mock?${name}=${value}">${value}</a>`).join(' ')}</p>`;
  response
    .writeHead(200, { 'content-type': 'text/html; charset=utf-8' })
    .end(
      '<!doctype html><title>Mock</title><h1>Mock of Berth’s ' +
        `API</h1>${links('scenario', SCENARIOS)}${links('role', ROLES)}`,
    );
}
