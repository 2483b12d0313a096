/**
 * Runs the whole control plane in this process, with a database in memory and without loops: only
 * calls of a test change anything. Validates every answer against the route table: a success
 * against `answer` of its row, an error against ProblemDocument.
 */
import { BERTH_VERSION } from '@berth/wire/version';
import { createHash, createHmac, randomUUID } from 'node:crypto';
import { silentLogger } from '@berth/kit/log';
import { ERRORS, type ErrorCode, ProblemDocument } from '@berth/wire/errors';
import { pathOf } from '@berth/wire/client';
import type { Route } from '@berth/wire/route';
import { ROUTES, type RouteName } from '@berth/wire/routes';
import { ROLES, type Role } from '@berth/wire/vocabulary';
import { Ajv } from 'ajv';
import formats from 'ajv-formats';
import { describe, expect, test } from 'vitest';
import { type App, createApp, type Overrides } from '../../src/app.ts';
import { readConfig } from '../../src/config.ts';
import type { AllStores } from '../../src/store/open.ts';
import { steadyUptime } from '../steady-uptime.ts';
import { openStores } from '../../src/store/open.ts';
import type { EmptiedDatabases } from '../store/emptied-databases.ts';
import { storesInMemory } from '../store/in-memory.ts';

export const JWT_SECRET = 'test-secret-that-is-long-enough-for-anybody';
export const AGENT_SECRET = 'agent-secret-of-the-tests-0123456789';
export const GATEWAY_SECRET = 'gateway-secret-of-the-tests-0123456789';
export const PASSWORD = 'correct horse battery staple';

export const ENV = {
  BASE_DOMAIN: 'berth.localhost',
  PUBLIC_URL: 'http://berth.localhost:8000',
  DATABASE_URL: 'sqlite::memory:',
  LISTEN: '127.0.0.1:0',
  REGISTRY_ADDR: 'registry.test:5000',
  REGISTRY_USER: 'berth',
  REGISTRY_PASSWORD: 'push',
  ADMIN_EMAILS: 'admin@example.com',
  ADMIN_PASSWORD: PASSWORD,
  AGENT_SECRET,
  GATEWAY_SECRET,
  JWT_SECRET,
  SECRETS_KEY: Buffer.alloc(32, 7).toString('base64'),
};

const ajv = formats.default(new Ajv({ allErrors: true, strict: true }));
const isProblem = ajv.compile(ProblemDocument);
const answerChecks = new Map<RouteName, ReturnType<Ajv['compile']>>();

export type Input = {
  params?: Record<string, string>;
  query?: Record<string, string | number | boolean>;
  body?: unknown;
  /** Raw text that is sent instead of `body`. */
  raw?: string;
  headers?: Record<string, string>;
  as?: Role | 'agent' | 'gateway' | null;
};
export type Reply = {
  status: number;
  headers: Record<string, string | string[] | number | undefined>;
  text: string;
  json: Record<string, unknown>;
};

export type Api = App & {
  call(name: RouteName, input?: Input): Promise<Reply>;
  token(role: Role): string;
  /** Creates a new session for the role. Later calls with `as` use it. */
  signIn(role: Role): Promise<string>;
  /** Advances the clock. */
  pass(ms: number): void;
};

/** Databases of the tests that name none. Null: each test has one in memory. */
let databases: EmptiedDatabases | null = null;
/** on-postgres.real.test.ts runs the same tests on another engine. */
export const useDatabases = (others: EmptiedDatabases): void => void (databases = others);

/**
 * Tests of rules that need no database, such as a wrong body or a format of another program:
 * on-postgres.real.test.ts leaves them out. They run on SQLite.
 */
export const onceOnly = {
  get each(): typeof test.each {
    return databases === null ? test.each.bind(test) : () => () => undefined;
  },
  test(name: string, body: () => Promise<void>, timeout?: number): void {
    if (databases === null) test(name, body, timeout);
  },
  describe(name: string, body: () => void): void {
    if (databases === null) describe(name, body);
  },
  /** Returns the list on SQLite, and one of each kind on another engine. */
  of<T>(list: readonly T[], kindOf: (one: T) => string): T[] {
    const kinds = list.map(kindOf);
    return list.filter((_, i) => databases === null || kinds.indexOf(kinds[i] ?? '') === i);
  },
  /** Returns the number of repetitions on SQLite, or the smaller one on another engine. */
  times: (once: number, again: number): number => (databases === null ? once : again),
};

export async function createApi(
  given: {
    env?: Record<string, string | undefined>;
    overrides?: Partial<Overrides>;
    stores?: (real: AllStores) => AllStores;
    /** Default: a new one. */
    databaseUrl?: string;
  } = {},
): Promise<Api> {
  let passed = 0;
  const now = (): number => Date.now() + passed;
  const log = silentLogger();
  let borrowed = given.databaseUrl === undefined ? ((await databases?.borrow()) ?? null) : null;
  const databaseUrl = given.databaseUrl ?? borrowed;
  const config = readConfig(
    Object.fromEntries(Object.entries({ ...ENV, ...given.env }).filter(([, v]) => v !== undefined)),
  );
  const domainQuarantineMs = config.DOMAIN_QUARANTINE;
  const real =
    databaseUrl === null
      ? await storesInMemory(now, domainQuarantineMs)
      : await openStores({ databaseUrl, log, now, domainQuarantineMs });
  const stores = given.stores?.(real) ?? real;
  const app = await createApp(config, {
    log,
    stores,
    now,
    uptime: steadyUptime(now),
    loops: false,
    passwordCost: { logN: 4, r: 8, p: 1 },
    ...given.overrides,
  });
  const tokens = new Map<Role, string>();
  async function signIn(role: Role): Promise<string> {
    const email = `${role}@example.com`;
    const user =
      (await real.users.findByEmail(email)) ??
      (await real.users.create({ email, role, password_hash: null }, now()));
    const sid = `session-${role}-${randomUUID()}`;
    const expires_at = now() + 400 * 86_400_000;
    await real.apiSessions.create(
      { id: sid, user_id: user.id, refresh_hash: '', address: '127.0.0.1', expires_at },
      now(),
    );
    tokens.set(role, jwt({ sub: user.id, sid }));
    return token(role);
  }
  const token = (role: Role): string => tokens.get(role) ?? '';
  const credentials = (as: Role | 'agent' | 'gateway' | null): Record<string, string> => {
    if (as === null) return {};
    if (as === 'agent') return { 'x-agent-secret': AGENT_SECRET };
    if (as === 'gateway') return { 'x-gateway-secret': GATEWAY_SECRET };
    return { authorization: `Bearer ${token(as)}` };
  };
  for (const role of ROLES) await signIn(role);

  return {
    ...app,
    token,
    signIn,
    pass: (ms) => void (passed += ms),
    async close() {
      await app.close();
      const url = borrowed;
      borrowed = null;
      if (url !== null) await databases?.giveBack(url);
    },
    async call(name, input = {}) {
      const row: Route = ROUTES[name];
      const as = input.as === undefined ? (row.who === 'public' ? null : row.who) : input.as;
      const payload =
        input.raw ?? (input.body === undefined ? undefined : JSON.stringify(input.body));
      const answer = await app.server.inject({
        method: row.method,
        url: pathOf(row, input.params, input.query),
        headers: {
          ...(payload === undefined ? {} : { 'content-type': 'application/json' }),
          ...credentials(as),
          ...input.headers,
        },
        ...(payload === undefined ? {} : { payload }),
      });
      const reply = {
        status: answer.statusCode,
        headers: answer.headers,
        text: answer.body,
        json: parse(answer.body),
      };
      checkShape(name, row, reply);
      return reply;
    },
  };
}

function parse(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    // Metrics, an event stream or 304 are not JSON. A test that expects JSON fails by itself.
    return {};
  }
}

function checkShape(name: RouteName, row: Route, reply: Reply): void {
  if (reply.status === 304 || (name === 'readyz' && reply.status === 503)) return;
  if (reply.status >= 400) return checkProblem(reply);
  expect(reply.status, `${name} answers with the status of its row`).toBe(row.status);
  if (
    row.answer === undefined ||
    !String(reply.headers['content-type']).startsWith('application/json')
  )
    return;
  const check = answerChecks.get(name) ?? ajv.compile(row.answer);
  answerChecks.set(name, check);
  expect(check(reply.json) ? [] : check.errors, `${name} answers in the shape of its row`).toEqual(
    [],
  );
}

export function checkProblem(reply: Reply): void {
  expect(reply.headers['content-type']).toMatch(/^application\/problem\+json/);
  expect(isProblem(reply.json) ? [] : isProblem.errors).toEqual([]);
  const code = reply.json['code'] as ErrorCode;
  expect(ERRORS[code], `code ${code} is in the table`).toMatchObject({
    status: reply.status,
    title: reply.json['title'],
  });
  expect(reply.json['status']).toBe(reply.status);
  if (reply.status === 422 && code === 'validation') expect(reply.json['errors']).not.toEqual([]);
}

/** Returns `field:rule` of each problem of a 422. */
export const rulesOf = (reply: Reply): string[] =>
  ((reply.json['errors'] ?? []) as { field: string; rule: string }[]).map(
    (e) => `${e.field}:${e.rule}`,
  );

/** Creates a JWT without code of Berth. */
export function jwt(
  claims: Record<string, unknown>,
  options: { secret?: string; alg?: string } = {},
): string {
  const seconds = Math.floor(Date.now() / 1000);
  const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const alg = options.alg ?? 'HS256';
  const text =
    `${part({ alg, typ: 'JWT' })}.` +
    part({ iss: 'berth', iat: seconds, exp: seconds + 3600, ...claims });
  if (alg === 'none') return `${text}.`;
  return `${text}.${createHmac(alg.replace('HS', 'sha'), options.secret ?? JWT_SECRET)
    .update(text)
    .digest('base64url')}`;
}

/** Reads user and session of a token, to create another token from them. */
export function claimsOf(token: string): { sub: string; sid: string } {
  const { sub, sid } = JSON.parse(
    Buffer.from(token.split('.')[1] ?? '', 'base64url').toString(),
  ) as { sub: string; sid: string };
  return { sub, sid };
}

export const sha = (text: string): string => createHash('sha1').update(text).digest('hex');

export const PROJECT = {
  name: 'shop',
  git_url: 'https://git.example.com/shop.git',
  domain_prefix: 'shop',
};

export async function createProject(
  api: Api,
  given: Record<string, unknown> = {},
): Promise<string> {
  const reply = await api.call('createProject', { body: { ...PROJECT, ...given } });
  expect(reply.status, reply.text).toBe(201);
  return reply.json['id'] as string;
}

/**
 * Returns a function that creates projects `{prefix}0`, `{prefix}1`, … with the given variables.
 */
export function projectsNamed(
  prefix: string,
  api: () => Api,
): (env?: Record<string, string>) => Promise<string> {
  let made = 0;
  return (env = {}) => {
    const name = `${prefix}${made++}`;
    return createProject(api(), { name, domain_prefix: name, env });
  };
}

export async function deploy(api: Api, projectId: string, body: unknown = {}): Promise<string> {
  const reply = await api.call('createDeployment', { params: { id: projectId }, body });
  expect(reply.status, reply.text).toBe(201);
  return reply.json['id'] as string;
}

export const NODE = {
  hostname: 'worker-1',
  role: 'builder',
  host_ip: '10.0.0.7',
  max_storage: 1e12,
  free_storage: 9e11,
  agent_version: BERTH_VERSION,
  boot_id: 'b1',
};

export async function register(api: Api, given: Record<string, unknown> = {}): Promise<string> {
  const reply = await api.call('agentRegister', { body: { ...NODE, ...given } });
  expect(reply.status, reply.text).toBe(200);
  return reply.json['id'] as string;
}

/** Advances the deployment once, like the scheduler. */
export const tick = (api: Api, deploymentId: string): Promise<unknown> =>
  api.driver.advance(deploymentId, { type: 'tick' });

/** Creates a project with a deployment whose build task is pending. */
export async function withBuild(
  api: Api,
  settings: Record<string, unknown> = {},
): Promise<{ project: string; deployment: string; builder: string; task: string }> {
  const builder = await register(api);
  const project = await createProject(api, settings);
  const deployment = await deploy(api, project);
  await tick(api, deployment);
  const tasks = await api.call('agentTasks', { query: { node_id: builder } });
  const [task] = tasks.json as unknown as { id: string }[];
  if (task === undefined) throw new Error(`no build task: ${tasks.text}`);
  return { project, deployment, builder, task: task.id };
}
