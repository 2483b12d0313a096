import { Value } from 'typebox/value';
import type { TSchema } from 'typebox';
import { describe, expect, test } from 'vitest';
import { Login } from '../src/access.ts';
import { can, DEPLOYMENT_ACTIONS } from '../src/can.ts';
import { DeploymentCreate, RollbackCreate } from '../src/deployment.ts';
import { ERRORS, FAILURES, isFailureCode } from '../src/errors.ts';
import { NodeRegister } from '../src/node.ts';
import { PROJECT_DEFAULTS, ProjectCreate, ProjectPatch } from '../src/project.ts';
import type { Route } from '../src/route.ts';
import { ROUTES } from '../src/routes.ts';
import { TaskLogs, TaskReport } from '../src/task.ts';
import {
  DEPLOYMENT_STATES,
  isOpenTask,
  isSettled,
  isTerminal,
  TASK_STATES,
} from '../src/vocabulary.ts';

const project = { name: 'shop', git_url: 'https://git.example/shop.git', domain_prefix: 'shop' };
const node = { hostname: 'n1', role: 'deploy', host_ip: '10.0.0.1', max_storage: 1e12 };
const sha = 'a'.repeat(40);

const ACCEPTED: [string, TSchema, unknown][] = [
  ['a project with only the required fields', ProjectCreate, project],
  [
    'a project with all fields',
    ProjectCreate,
    {
      ...project,
      branch: 'main',
      dockerfile_path: 'deploy/Dockerfile',
      container_port: 65_535,
      auth_required: true,
      env: { A_1: 'x', _B: '' },
      datasets: [{ dataset_id: 'd1', mode: 'dependency', mount_path: '/data/d1' }],
      health_path: '/healthz?x=1',
      memory_bytes: 6_291_456,
      cpus: 0.5,
      drain_seconds: 0,
      stop_grace_seconds: 3600,
      start_seconds: 3600,
      replace: 'recreate',
    },
  ],
  [
    'null for optional limits',
    ProjectCreate,
    { ...project, health_path: null, start_seconds: null, memory_bytes: null, cpus: null },
  ],
  ['a label of one character', ProjectCreate, { ...project, name: 'a', domain_prefix: '1' }],
  ['a label of 63 characters', ProjectCreate, { ...project, domain_prefix: 'a'.repeat(63) }],
  ['a patch of one field', ProjectPatch, { branch: 'next' }],
  ['a deployment of the branch', DeploymentCreate, {}],
  ['a deployment of a commit', DeploymentCreate, { commit: sha, note: 'x' }],
  ['a deployment of a SHA-256 commit', DeploymentCreate, { commit: 'b'.repeat(64) }],
  ['a rollback', RollbackCreate, { deployment_id: 'abc_-1' }],
  ['a login', Login, { email: 'a@b', password: 'x' }],
  ['a contract-only registration', NodeRegister, node],
  ['a registration with an unknown field', NodeRegister, { ...node, gpu: true }],
  ['a storage size that is not a whole number', NodeRegister, { ...node, max_storage: 1.5 }],
  [
    'a contract-only build report',
    TaskReport,
    { status: 'completed', result: 'ok', image_tag: 'r/shop:abc' },
  ],
  ['a contract-only deploy report', TaskReport, { status: 'completed', host_port: 32_768 }],
  [
    'a failure with its reason',
    TaskReport,
    { status: 'failed', result: { error: { code: 'build_failed', message: 'x' }, more: 1 } },
  ],
  ['log lines', TaskLogs, { lines: [{ stream: 'stdout', text: 'x' }] }],
];
const REFUSED: [string, TSchema, unknown][] = [
  ['a project without a name', ProjectCreate, { ...project, name: undefined }],
  ['an unknown field', ProjectCreate, { ...project, colour: 'red' }],
  ['an upper-case name', ProjectCreate, { ...project, name: 'Shop' }],
  ['a name with a dash in front', ProjectCreate, { ...project, name: '-shop' }],
  ['a name with a dash at the end', ProjectCreate, { ...project, name: 'shop-' }],
  ['a name with a dot', ProjectCreate, { ...project, domain_prefix: 'a.b' }],
  ['a name with a line end', ProjectCreate, { ...project, name: 'shop\n' }],
  ['a name that is too long', ProjectCreate, { ...project, name: 'a'.repeat(64) }],
  ['no name', ProjectCreate, { ...project, name: '' }],
  ['port 0', ProjectCreate, { ...project, container_port: 0 }],
  ['port 65536', ProjectCreate, { ...project, container_port: 65_536 }],
  ['a port as text', ProjectCreate, { ...project, container_port: '8080' }],
  ['a port that is not a whole number', ProjectCreate, { ...project, container_port: 80.5 }],
  ['a text instead of a boolean', ProjectCreate, { ...project, auth_required: 'yes' }],
  ['an environment name with a dash', ProjectCreate, { ...project, env: { 'A-B': 'x' } }],
  ['an environment name with a digit in front', ProjectCreate, { ...project, env: { '1A': 'x' } }],
  ['an environment name with =', ProjectCreate, { ...project, env: { 'A=B': 'x' } }],
  ['an environment name with a line end', ProjectCreate, { ...project, env: { 'A\n': 'x' } }],
  ['an environment value that is not text', ProjectCreate, { ...project, env: { A: 1 } }],
  [
    'an environment value that is too long',
    ProjectCreate,
    { ...project, env: { A: 'x'.repeat(32_769) } },
  ],
  [
    'an unknown dataset mode',
    ProjectCreate,
    { ...project, datasets: [{ dataset_id: 'd', mode: 'write' }] },
  ],
  [
    'a mount path that is relative',
    ProjectCreate,
    { ...project, datasets: [{ dataset_id: 'd', mode: 'dependency', mount_path: 'data' }] },
  ],
  ['a health path without a slash', ProjectCreate, { ...project, health_path: 'healthz' }],
  ['a health path with a space', ProjectCreate, { ...project, health_path: '/a b' }],
  ['a health path with a line end', ProjectCreate, { ...project, health_path: '/a\n' }],
  ['too little memory', ProjectCreate, { ...project, memory_bytes: 1 }],
  ['an unknown replace mode', ProjectCreate, { ...project, replace: 'blue-green' }],
  ['an empty patch', ProjectPatch, {}],
  ['a patch of the name', ProjectPatch, { name: 'other' }],
  ['a short commit', DeploymentCreate, { commit: 'abc1234' }],
  ['a commit that is an option', DeploymentCreate, { commit: `-${sha.slice(1)}` }],
  ['an unknown field of a deployment', DeploymentCreate, { force: true }],
  ['an id with a slash', RollbackCreate, { deployment_id: 'a/b' }],
  ['an address without @', Login, { email: 'a', password: 'x' }],
  ['an empty password', Login, { email: 'a@b', password: '' }],
  ['a registration without a role', NodeRegister, { ...node, role: undefined }],
  ['a registration with an unknown role', NodeRegister, { ...node, role: 'master' }],
  ['a negative storage', NodeRegister, { ...node, max_storage: -1 }],
  ['a report with an unknown status', TaskReport, { status: 'done' }],
  ['a report with port 0', TaskReport, { status: 'completed', host_port: 0 }],
  ['a log line with an unknown stream', TaskLogs, { lines: [{ stream: 'stdin', text: 'x' }] }],
  [
    'too many log lines',
    TaskLogs,
    { lines: Array.from({ length: 1001 }, () => ({ stream: 'stdout', text: 'x' })) },
  ],
];
/** Converts a value to its JSON form, which omits undefined fields. */
const check = (schema: TSchema, value: unknown): boolean =>
  Value.Check(schema, JSON.parse(JSON.stringify(value)));

describe('schemas', () => {
  test.each(ACCEPTED)('accept %s', (_, schema, value) => {
    expect(check(schema, value)).toBe(true);
  });
  test.each(REFUSED)('refuse %s', (_, schema, value) => {
    expect(check(schema, value)).toBe(false);
  });

  test('a patch adds no defaults; PROJECT_DEFAULTS has all defaults, and they are valid', () => {
    expect(Value.Default(ProjectPatch, { branch: 'next' })).toEqual({ branch: 'next' });
    expect(check(ProjectCreate, { ...project, ...PROJECT_DEFAULTS })).toBe(true);
  });
});

const propertiesOf = (schema: TSchema | undefined): object =>
  schema !== undefined && 'properties' in schema ? Object(schema.properties) : {};

describe('tables', () => {
  test('routes are unique, their params match the path, and only writing methods have a body', () => {
    const routes: Route[] = Object.values(ROUTES);
    expect(new Set(routes.map((r) => `${r.method} ${r.path}`)).size).toBe(routes.length);
    for (const route of routes) {
      const inPath = [...route.path.matchAll(/:([a-z_]+)/g)].map((m) => m[1]);
      const declared = Object.keys(propertiesOf(route.params));
      expect(declared, route.path).toEqual(inPath);
      if (route.body !== undefined)
        expect(['POST', 'PUT', 'PATCH'], route.path).toContain(route.method);
    }
  });

  test('all routes require a role or a secret, except a fixed list of public routes', () => {
    const open = Object.entries(ROUTES).filter(([, r]) => r.who === 'public');
    expect(open.map(([name]) => name)).toEqual([
      'authMethods',
      'login',
      'exchange',
      'refresh',
      // The ticket in the request is the proof.
      'openExec',
      'receiveHook',
      'getInstallScript',
      'getPackage',
      'traefikConfig',
      'berthTomlSchema',
      'openapi',
      'healthz',
      'readyz',
      'metrics',
    ]);
    for (const route of Object.values(ROUTES)) {
      expect(route.who === 'agent', route.path).toBe(route.path.startsWith('/api/agent/'));
      expect(route.who === 'gateway', route.path).toBe(route.path.startsWith('/api/internal/'));
    }
  });

  test('errors have a 4xx or 5xx status and a title without a full stop', () => {
    for (const [code, { status, title }] of Object.entries(ERRORS)) {
      expect(code).toMatch(/^[a-z_]+$/);
      expect(status, code).toBeGreaterThanOrEqual(400);
      expect(title, code).toMatch(/^[A-Z].*[^.]$/);
    }
    for (const [code, meaning] of Object.entries(FAILURES))
      expect(`${code}: ${meaning}`).toMatch(/^[a-z_]+: \S.*[^.]$/);
    expect([
      isFailureCode('git_timeout'),
      isFailureCode('toString'),
      isFailureCode('nonsense'),
    ]).toEqual([true, false, false]);
  });

  test('terminal states are settled, and states that allow a cancellation are not', () => {
    expect(DEPLOYMENT_STATES.filter(isSettled)).toEqual([
      'running',
      'retired',
      'failed',
      'cancelled',
      'superseded',
    ]);
    expect(DEPLOYMENT_STATES.filter(isTerminal)).toEqual([
      'retired',
      'failed',
      'cancelled',
      'superseded',
    ]);
    expect(DEPLOYMENT_STATES.filter((s) => can('cancel', s))).toEqual(
      DEPLOYMENT_STATES.filter((s) => !isSettled(s)),
    );
    expect(DEPLOYMENT_STATES.filter((s) => can('rollback_to', s)).toSorted()).toEqual(
      DEPLOYMENT_ACTIONS.rollback_to.toSorted(),
    );
    expect(TASK_STATES.filter(isOpenTask)).toEqual(['pending', 'running']);
  });
});
