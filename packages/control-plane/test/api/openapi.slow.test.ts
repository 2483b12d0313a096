/**
 * The OpenAPI document in the tools of third parties (API review, defects 1 and 3): validator, code
 * generator, compiler, client.
 */
import { copyFileSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { exec } from '@berth/kit/exec';
import { clientTypes } from '@berth/testbed/openapi-client';
import type { Route } from '@berth/wire/route';
import { ROUTES } from '@berth/wire/routes';
import { Validator } from '@seriousme/openapi-schema-validator';
import { Ajv2020 } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openapiDocument } from '../../src/api/openapi/document.ts';
import { takesIdempotencyKey } from '../../src/api/route-rules.ts';
import { type Api, createApi, PASSWORD } from './harness.ts';

const ROOT = path.resolve(import.meta.dirname, '../../../..');
type Json = { [key: string]: unknown };
type Operation = {
  operationId: string;
  summary: string;
  description?: string;
  tags: string[];
  security: object[];
  parameters?: { name: string; in: string; schema: Json }[];
  requestBody?: { required: boolean; content: Record<string, { schema: Json; example: unknown }> };
  responses: Record<
    string,
    { description: string; content?: Record<string, { schema: Json; example?: unknown }> }
  >;
};

let api: Api;
let document: Json & {
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Json> };
  tags: { name: string }[];
};
beforeAll(async () => {
  api = await createApi();
  document = (await api.call('openapi')).json as typeof document;
}, 60_000);
afterAll(() => api.close());

const operations = (): Operation[] =>
  Object.values(document.paths).flatMap((p) => Object.values(p));

test('a validator from npm accepts it', async () => {
  const result = await new Validator().validate(structuredClone(document));
  expect(result.errors ?? []).toEqual([]);
  expect(result.valid).toBe(true);
});

test('the validator finds the mistake of the API review', async () => {
  const broken = structuredClone(document);
  const operation = broken.paths['/api/auth/me']?.['get'] as unknown as Json;
  operation['parameters'] = [{ name: 'type', in: 'query', schema: 'object' }];
  expect((await new Validator().validate(broken)).valid).toBe(false);
});

describe('a generated client', () => {
  const folder = path.join(ROOT, '.tools', 'openapi-client');
  beforeAll(async () => {
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    writeFileSync(path.join(folder, 'schema.d.ts'), await clientTypes(document));
    copyFileSync(
      path.join(import.meta.dirname, 'openapi-client/main-job.ts'),
      path.join(folder, 'main-job.ts'),
    );
    symlinkSync(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'));
    const compilerOptions = { ...strictOptions, types: [], lib: ['es2024', 'dom'] };
    writeFileSync(
      path.join(folder, 'tsconfig.json'),
      JSON.stringify({ compilerOptions, include: ['main-job.ts'] }),
    );
  }, 60_000);

  test('compiles', { timeout: 60_000 }, async () => {
    const { code, stdout } = await compile(folder);
    expect([code, stdout]).toEqual([0, '']);
  });

  test('would not compile with a field that does not exist', { timeout: 60_000 }, async () => {
    const planted = path.join(folder, 'planted');
    mkdirSync(planted, { recursive: true });
    writeFileSync(
      path.join(planted, 'planted.ts'),
      "import type { paths } from '../schema.d.ts';\nexport type No = " +
        "paths['/api/projects']['post']['responses'][201]['content']['application/json']['no_such_field'];\n",
    );
    writeFileSync(
      path.join(planted, 'tsconfig.json'),
      JSON.stringify({ compilerOptions: { ...strictOptions, types: [] } }),
    );
    const { code, stdout } = await compile(planted);
    expect([code === 0, stdout]).toEqual([false, expect.stringContaining('no_such_field')]);
  });

  test('makes the calls of the main job', async () => {
    const url = await api.listen();
    const { mainJob } = (await import(path.join(folder, 'main-job.ts'))) as {
      mainJob: (baseUrl: string, email: string, password: string) => Promise<Json>;
    };
    const done = await mainJob(url, 'admin@example.com', PASSWORD);
    expect(done).toEqual({
      node: null,
      memory: 268_435_456,
      lines: expect.any(Array) as unknown,
      listed: [done['deployment']],
      cancelled: 'cancelled',
      deployment: expect.any(String) as unknown,
      refusal: 'validation',
    });
  });
});

const strictOptions = {
  strict: true,
  noEmit: true,
  module: 'nodenext',
  moduleResolution: 'nodenext',
  allowImportingTsExtensions: true,
  skipLibCheck: false,
  target: 'es2024',
};

const compile = (folder: string) =>
  exec([process.execPath, path.join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', folder], {
    cwd: folder,
    env: {},
    timeoutMs: 50_000,
  });

describe('every operation', () => {
  test('is in the document, except those of agents and gateways', () => {
    const shown = Object.entries(ROUTES as Record<string, Route>).filter(
      ([, r]) => r.who !== 'agent' && r.who !== 'gateway',
    );
    expect(
      operations()
        .map((o) => o.operationId)
        .sort(),
    ).toEqual(shown.map(([name]) => name).sort());
  });
  test('has a success answer, a summary, a described tag and problem documents', () => {
    const tags = new Set(document.tags.map((t) => t.name));
    for (const o of operations()) {
      // 101: the answer is a WebSocket.
      const isSuccess = Object.keys(o.responses).some((s) => s.startsWith('2') || s === '101');
      expect([o.operationId, isSuccess]).toEqual([o.operationId, true]);
      expect(Object.keys(o.responses['default']?.content ?? {})).toEqual([
        'application/problem+json',
      ]);
      expect([o.operationId, o.tags.every((t) => tags.has(t))]).toEqual([o.operationId, true]);
    }
  });
  test('that requires a role names it, and lists 401 and 403', () => {
    for (const o of operations().filter((op) => op.security.length > 0)) {
      expect(o.description).toMatch(/Requires the role (viewer|developer|admin)/);
      expect(Object.keys(o.responses)).toEqual(expect.arrayContaining(['401', '403']));
    }
  });
  test('with a path parameter lists 404', () => {
    for (const o of operations().filter((op) => op.parameters?.some((p) => p.in === 'path')))
      expect([o.operationId, Object.keys(o.responses)]).toEqual([
        o.operationId,
        expect.arrayContaining(['404']),
      ]);
  });
});

test('each resource has one schema: every answer with a project refers to the same component', () => {
  const schemaOf = (method: string, url: string, status: string) =>
    document.paths[url]?.[method]?.responses[status]?.content?.['application/json']?.schema;
  expect(schemaOf('post', '/api/projects', '201')).toEqual({
    $ref: '#/components/schemas/Project',
  });
  expect(schemaOf('get', '/api/projects/{id}', '200')).toEqual({
    $ref: '#/components/schemas/Project',
  });
  expect(schemaOf('get', '/api/projects', '200')).toEqual({
    $ref: '#/components/schemas/ProjectList',
  });
});

test('null is one of several types of a plain value, and not its own branch', () => {
  const plain = JSON.stringify(document).match(
    /\{"anyOf":\[\{"type":"(string|integer|number|boolean)"[^\]]*\{"type":"null"\}\]\}/g,
  );
  expect(plain).toBeNull();
  expect(document.components.schemas['Deployment']?.['properties']).toMatchObject({
    host_port: { type: ['integer', 'null'] },
  });
});

test('an optional body is not required', () => {
  expect(document.paths['/api/projects/{id}/deployments']?.['post']?.requestBody?.required).toBe(
    false,
  );
  expect(document.paths['/api/projects']?.['post']?.requestBody?.required).toBe(true);
});

test('headers and event streams are declared', () => {
  const headersOf = (method: string, url: string): string[] =>
    (document.paths[url]?.[method]?.parameters ?? [])
      .filter((p) => p.in === 'header')
      .map((p) => p.name);
  expect(headersOf('post', '/api/projects/{id}/deployments')).toContain('Idempotency-Key');
  expect(headersOf('patch', '/api/projects/{id}')).toContain('If-Match');
  expect(headersOf('get', '/api/traefik/config')).toContain('If-None-Match');
  const log = document.paths['/api/deployments/{id}/logs']?.['get'];
  expect(Object.keys(log?.responses['200']?.content ?? {})).toEqual([
    'application/json',
    'text/event-stream',
  ]);
});

test('exactly the routes that create a resource for a person take an Idempotency-Key', () => {
  const creating = Object.entries<Route>(ROUTES).filter(([, route]) => route.status === 201);
  expect(creating.map(([name]) => name).sort()).toEqual([
    'createAdmission',
    'createDataset',
    'createDeployKey',
    'createDeployment',
    'createJob',
    'createJoinToken',
    'createNotification',
    'createProject',
    'createRun',
    'createToken',
    'createUser',
    'execProject',
    'importSecret',
    'redeliver',
    'restartProject',
    'rollback',
    'runInput',
    'runJob',
    'startProject',
    'tunnelProject',
  ]);
  expect(creating.filter(([, route]) => !takesIdempotencyKey(route))).toEqual([]);
  const declared = operations().filter(({ parameters }) =>
    (parameters ?? []).some((p) => p.name === 'Idempotency-Key'),
  );
  expect(declared.map(({ operationId }) => operationId).sort()).toEqual(
    creating.map(([name]) => name).sort(),
  );
});

test('it names PUBLIC_URL as server', () => {
  expect(document['servers']).toEqual([{ url: 'http://berth.localhost:8000' }]);
});

describe('examples', () => {
  test('match their schema', { timeout: 60_000 }, () => {
    const ajv = formats.default(new Ajv2020({ strict: false, allErrors: true }));
    ajv.addSchema({ $id: 'doc', ...document }, 'doc');
    const resolve = (schema: Json): Json =>
      JSON.parse(JSON.stringify(schema).replaceAll('"#/', '"doc#/')) as Json;
    let checked = 0;
    for (const o of operations()) {
      const contents = [
        o.requestBody?.content,
        ...Object.values(o.responses).map((r) => r.content),
      ];
      for (const media of contents.flatMap((c) => Object.values(c ?? {}))) {
        if (!('example' in media)) continue;
        const check = ajv.compile(resolve(media.schema));
        expect([o.operationId, check(media.example) ? [] : check.errors]).toEqual([
          o.operationId,
          [],
        ]);
        checked++;
      }
    }
    expect(checked).toBeGreaterThan(50);
  });

  test('a running deployment has no error and waits for nothing', () => {
    const answer = operations().find((o) => o.operationId === 'getDeployment')?.responses['200'];
    const example = answer?.content?.['application/json']?.example;
    expect(example).toMatchObject({
      status: 'running',
      error: null,
      waiting: null,
      progress: null,
    });
  });
});

describe('/docs', () => {
  test('does not load its scripts over https, because over plain http the page would stay blank', async () => {
    const page = await api.server.inject({ url: '/docs/', headers: { host: 'berth.lan' } });
    expect(page.headers['content-security-policy']).not.toContain('upgrade-insecure-requests');
    expect(page.headers['content-security-policy']).toContain("style-src 'self' 'unsafe-inline';");
    expect(page.headers['content-security-policy']).not.toMatch(/script-src[^;]*unsafe/);
    expect(page.headers['content-security-policy']).toContain("default-src 'self'");
  });
});

test('the document is the same after every start', () => {
  expect(JSON.stringify(openapiDocument('https://a.example'))).toBe(
    JSON.stringify(openapiDocument('https://a.example')),
  );
});
