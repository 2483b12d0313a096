/** The routes do what their flags (etag, locked, streams) and a `wait` in the query say. */
import { mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Route } from '@berth/wire/route';
import { REPOSITORY_LOOK_CAPABILITY } from '@berth/wire/repository-look';
import { type RouteName, ROUTES } from '@berth/wire/routes';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  type Api,
  type Input,
  createApi,
  createProject,
  deploy,
  register,
  type Reply,
} from './harness.ts';
import { newRun } from '../new-run.ts';

type Table = typeof ROUTES;
type With<F extends 'etag' | 'locked' | 'streams'> = {
  [N in RouteName]: Table[N] extends Record<F, true> ? N : never;
}[RouteName];
/**
 * Creates the resource of the request. A new row with a flag does not compile without an entry
 * here.
 */
type Requests<N extends RouteName> = Record<N, () => Promise<Input>>;

let api: Api;
let base: string;
let share: string;
beforeAll(async () => {
  share = await mkdtemp(join(tmpdir(), 'flags-share-'));
  await mkdir(join(share, 'set'));
  api = await createApi({ env: { DATASET_NFS_BASE_PATH: share } });
  base = await api.listen();
});
afterAll(async () => {
  await api.close();
  await rm(share, { recursive: true });
});

let made = 0;
const named = (more: object = {}) => ({ name: `n${(made += 1)}`, ...more });
const project = async (): Promise<string> => {
  const { name } = named();
  return createProject(api, { name, domain_prefix: name, env: { A: '1' } });
};
const secret = async (): Promise<{ id: string; name: string }> => {
  const params = { id: await project(), name: 'B' };
  await api.call('putSecret', { params, body: { value: 'x' } });
  return params;
};
const dataset = async (): Promise<string> => {
  const { name } = named();
  return (await api.stores.datasets.create({ name, nfs_path: name }, Date.now())).id;
};
const user = async (): Promise<string> => {
  const { name } = named();
  return String(
    (await api.call('createUser', { body: { email: `${name}@example.com`, role: 'viewer' } })).json[
      'id'
    ],
  );
};
const deployment = async (): Promise<string> => deploy(api, await project());
const repositoryLook = async (): Promise<string> => {
  const { name } = named();
  await register(api, {
    hostname: name,
    role: 'builder',
    agent_version: '1',
    capabilities: [REPOSITORY_LOOK_CAPABILITY],
  });
  return String(
    (
      await api.call('createRepositoryLook', {
        body: { git_url: `https://git.example.com/${name}.git` },
      })
    ).json['id'],
  );
};
const of = (id: string, more: Input = {}): Input => ({ params: { id }, ...more });

/** A run that waits: no version of its project serves. */
async function run(): Promise<string> {
  const id = `run-${named().name}`;
  await api.stores.runs.create(
    newRun({ id, project_id: await project(), queue_deadline_at: 1e15 }),
    Date.now(),
  );
  return id;
}

const LOCKED: Requests<With<'locked'>> = {
  patchProject: async () => of(await project(), { body: { branch: 'next' } }),
  deleteProject: async () => of(await project()),
  putEnv: async () => ({ params: { id: await project(), name: 'A' }, body: { value: '2' } }),
  deleteEnv: async () => ({ params: { id: await project(), name: 'A' } }),
  putSecret: async () => ({ params: { id: await project(), name: 'B' }, body: { value: 'x' } }),
  deleteSecret: async () => ({ params: await secret() }),
  importSecret: async () => ({ params: { id: await project(), name: 'A' } }),
  putGitToken: async () => of(await project(), { body: { token: 'abc' } }),
  patchDataset: async () => of(await dataset(), { body: named() }),
  deleteDataset: async () => of(await dataset()),
  patchUser: async () => of(await user(), { body: { role: 'developer' } }),
  deleteUser: async () => of(await user()),
};
const TAGGED: Requests<With<'etag'>> = {
  ...LOCKED,
  createProject: async () => {
    const { name } = named();
    return { body: { name, git_url: 'https://git.example.com/x.git', domain_prefix: name } };
  },
  getProject: async () => of(await project()),
  stopProject: async () => of(await project()),
  scaleProject: async () => of(await project(), { body: { web: 2 } }),
  listSecrets: async () => of(await project()),
  getSecret: async () => ({ params: await secret() }),
  getDeployment: async () => of(await deployment()),
  getRun: async () => of(await run()),
  getRepositoryLook: async () => of(await repositoryLook()),
  createDataset: async () => ({ body: named({ nfs_path: 'set' }) }),
  getDataset: async () => of(await dataset()),
  scanDataset: async () => of(await dataset()),
  createUser: async () => ({ body: { email: `${named().name}@example.com`, role: 'viewer' } }),
  getUser: async () => of(await user()),
  traefikConfig: async () => ({}),
  gatewayPolicy: async () => ({}),
  agentTasks: async () => ({ query: { node_id: await register(api, { hostname: named().name }) } }),
};
const STREAMS: Requests<With<'streams'>> = {
  deploymentLogs: async () => of(await deployment()),
  runLogs: async () => of(await run()),
  events: async () => ({}),
  projectLogs: async () => of(await project()),
};

const rows = (flag: (route: Route) => boolean): RouteName[] =>
  (Object.keys(ROUTES) as RouteName[]).filter((name) => flag(ROUTES[name]));
const call = (name: RouteName, given: Input): Promise<Reply> => api.call(name, given);

describe.each(rows((r) => r.etag === true))('%s has an ETag', (name) => {
  test('in its answer', async () => {
    const reply = await call(name, await TAGGED[name as With<'etag'>]());
    expect(reply.status, reply.text).toBe(ROUTES[name].status);
    expect(reply.headers['etag']).toMatch(/^(W\/)?"[^"]+"$/);
  });
});

describe.each(rows((r) => r.locked === true))('%s takes If-Match', (name) => {
  test('and refuses a stale one', async () => {
    const given = await LOCKED[name as With<'locked'>]();
    const reply = await call(name, { ...given, headers: { 'if-match': '"stale"' } });
    expect([reply.status, reply.json['code']]).toEqual([412, 'changed_meanwhile']);
    expect((await call(name, given)).status).toBe(ROUTES[name].status);
  });
});

const isHeld = (route: Route): boolean => {
  const query: { properties?: object } = route.query ?? {};
  return 'wait' in (query.properties ?? {});
};
describe.each(rows(isHeld))('%s can be held', (name) => {
  test('while it has the ETag in If-None-Match', async () => {
    expect((ROUTES[name] as Route).etag).toBe(true);
    const given = await TAGGED[name as With<'etag'>]();
    const etag = String((await call(name, given)).headers['etag']);
    expect((await call(name, { ...given, headers: { 'if-none-match': etag } })).status).toBe(304);
  });
});

describe.each(rows((r) => r.streams === true))('%s streams', (name) => {
  test('to a caller that prefers it', async () => {
    const given = await STREAMS[name as With<'streams'>]();
    const path = ROUTES[name].path.replace(':id', String(given.params?.['id']));
    const headers = { accept: 'text/event-stream', authorization: `Bearer ${api.token('admin')}` };
    const type = await new Promise((resolve, reject) => {
      const sent = request(`${base}${path}`, { agent: false, headers }, (response) => {
        resolve(response.headers['content-type']);
        response.destroy();
      });
      sent.on('error', reject).end();
    });
    expect(type).toBe('text/event-stream; charset=utf-8');
  });
});

test('no route sets an ETag, reads If-Match or streams without the flag in its row', async () => {
  const folder = join(import.meta.dirname, '../../src/api/routes');
  for (const file of await readdir(folder)) {
    const text = await readFile(join(folder, file), 'utf8');
    expect([
      file,
      text.match(/header\('etag'|'if-match'|wantsEventStream|text\/event-stream/),
    ]).toEqual([file, null]);
  }
});
