/**
 * Looks into repositories, before their projects exist and for a project: through the API and as a
 * builder gets them.
 */
import { GIT_ACCESS } from '@berth/wire/git';
import { LOOK_CAPABILITY } from '@berth/wire/look';
import {
  REPOSITORY_LOOK_CAPABILITY,
  type RepositoryFound,
  type RepositoryLook,
} from '@berth/wire/repository-look';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { DEFAULT_LIMITS } from '../../src/domain/deployments/facts.ts';
import { type Api, createApi, createProject, onceOnly, type Reply, rulesOf } from './harness.ts';

const URL_ = 'https://git.example.com/team/shop.git';
const FOUND: RepositoryFound = {
  default_branch: 'trunk',
  branches: ['trunk', 'next'],
  branches_left_out: 0,
  branch: 'trunk',
  commit: 'a'.repeat(40),
  dockerfiles: [
    { path: 'web/Dockerfile', ports: [3000], targets: [{ name: 'web', ports: [3000] }] },
  ],
  dockerfiles_left_out: 0,
  submodules: true,
  lfs: false,
};

let api: Api;
beforeEach(async () => {
  api = await createApi();
});
afterEach(() => api.close());

async function builder(
  hostname = 'b1',
  capabilities: string[] = [GIT_ACCESS, LOOK_CAPABILITY, REPOSITORY_LOOK_CAPABILITY],
): Promise<string> {
  const body = {
    hostname,
    role: 'builder',
    host_ip: '10.0.0.9',
    max_storage: 1e12,
    agent_version: '1',
    capabilities,
  };
  return (await api.call('agentRegister', { body })).json['id'] as string;
}
const ask = (git_url = URL_, over: Record<string, unknown> = {}): Promise<Reply> =>
  api.call('createRepositoryLook', { body: { git_url, ...over }, as: 'developer' });
const look = async (id: unknown): Promise<RepositoryLook> =>
  (await api.call('getRepositoryLook', { params: { id: String(id) }, as: 'developer' }))
    .json as RepositoryLook;
const tasksOf = async (
  node_id: string,
): Promise<{ id: string; payload: Record<string, unknown> }[]> =>
  JSON.parse((await api.call('agentTasks', { query: { node_id } })).text) as {
    id: string;
    payload: Record<string, unknown>;
  }[];
async function claim(id: string): Promise<{ lease: string; git: unknown }> {
  const { json } = await api.call('agentStart', { params: { id } });
  return { lease: json['lease_token'] as string, git: json['git'] };
}
const report = (id: string, lease: string, body: unknown): Promise<Reply> =>
  api.call('agentComplete', { params: { id }, body, headers: { 'x-lease-token': lease } });
async function lost(): Promise<void> {
  const at = await api.uptime.now();
  const limits = { ...DEFAULT_LIMITS, leaseMs: 30_000 };
  for (const { task, why } of await api.stores.tasks.overdue(
    { uptime: at, now: at.at, silentSince: at.at - 90_000 },
    limits,
  ))
    await api.stores.repositoryLooks.loseTask(task, why, at.at);
}

it('gives a builder the address and no access of any project, and answers what it found', async () => {
  await createProject(api, { git_url: URL_ });
  await api.call('putGitToken', { params: { id: 'shop' }, body: { token: 'canary-0123456789' } });
  const node = await builder();
  const asked = await ask();
  expect(asked).toMatchObject({
    status: 200,
    json: { state: 'waiting', git_url: URL_, branch: null, found: null, error: null },
  });
  const [task] = await tasksOf(node);
  expect(task).toMatchObject({
    id: asked.json['id'],
    kind: 'look',
    payload: { repository: true, git_url: URL_, branch: null },
  });
  const { lease, git } = await claim(task?.id ?? '');
  expect(Object.keys(git as object)).toEqual(['hosts']);
  const input = { params: { id: task?.id ?? '' }, as: 'developer' as const };
  const etag = String((await api.call('getRepositoryLook', input)).headers['etag']);
  const held = api.call('getRepositoryLook', {
    ...input,
    query: { wait: 30 },
    headers: { 'if-none-match': etag },
  });
  const body = { status: 'completed', result: { ...FOUND, of_a_later_version: 1 } };
  expect(await report(task?.id ?? '', lease, body)).toMatchObject({ status: 200 });
  // A report that is sent again gets the same answer; another one is refused.
  expect(await report(task?.id ?? '', lease, body)).toMatchObject({ status: 200 });
  expect((await report(task?.id ?? '', lease, { status: 'failed' })).status).toBe(409);
  expect((await held).json).toMatchObject({ state: 'done', found: FOUND });
  expect((await held).text).not.toContain('later_version');
  expect(await tasksOf(node)).toEqual([]);
});

it('refuses a report that does not say what was found', async () => {
  const node = await builder();
  await ask();
  const [task] = await tasksOf(node);
  const { lease } = await claim(task?.id ?? '');
  const wrong = { ...FOUND, branches: Array.from({ length: 201 }, (_, i) => `b${i}`) };
  for (const result of [null, 'text', {}, wrong])
    expect((await report(task?.id ?? '', lease, { status: 'completed', result })).status).toBe(422);
  expect(await look(task?.id)).toMatchObject({ state: 'waiting' });
});

it('says what failed, and for a repository that may be private what to do', async () => {
  const node = await builder();
  await ask();
  const [task] = await tasksOf(node);
  const { lease } = await claim(task?.id ?? '');
  const error = { code: 'git_credentials', message: 'Git access was refused' };
  await report(task?.id ?? '', lease, { status: 'failed', result: { error } });
  expect(await look(task?.id)).toMatchObject({
    state: 'failed',
    error: {
      code: 'git_credentials',
      message: expect.stringMatching(
        /refused.*create the project, and then its deploy key or git token/,
      ),
    },
  });
  // Somebody repairs the access and asks again.
  expect((await ask()).json['id']).not.toBe(task?.id);
});

it.each<[string, string[] | null, RegExp]>([
  ['no builder', null, /no builder is registered/],
  ['builders of an earlier version', [GIT_ACCESS, LOOK_CAPABILITY], /earlier version/],
])('%s: it says so, and that is no error', async (_what, capabilities, text) => {
  if (capabilities !== null) await builder('b1', capabilities);
  const reply = await ask();
  expect(reply).toMatchObject({
    status: 200,
    json: { id: null, state: 'unavailable', unavailable: expect.stringMatching(text) },
  });
});

it('says that no builder is online', async () => {
  await builder();
  api.pass(10 * 60_000);
  expect((await ask()).json).toMatchObject({
    state: 'unavailable',
    unavailable: 'no builder is online',
  });
});

it.each<[string, unknown, string]>([
  ['a file', 'file:///etc', 'scheme'],
  ['a program', 'ext::sh -c id', 'no_whitespace'],
  ['an option', '--upload-pack=id', 'no_leading_dash'],
  ['a password', 'https://a:b@git.example.com/x.git', 'no_password'],
  ['a host that is not allowed', 'https://169.254.169.254/x.git', 'host_allowed'],
])('refuses %s as a build does', async (_what, git_url, rule) => {
  await api.close();
  api = await createApi({ env: { ALLOWED_GIT_HOSTS: 'git.example.com' } });
  const node = await builder();
  const reply = await ask(String(git_url));
  expect([reply.status, rulesOf(reply).join()]).toEqual([422, expect.stringContaining(rule)]);
  expect(await tasksOf(node)).toEqual([]);
});

it('refuses a branch that git refuses', async () => {
  await builder();
  expect((await ask(URL_, { branch: '-x' })).status).toBe(422);
  expect((await ask(URL_, { branch: 'a..b' })).status).toBe(422);
});

it('is for developers', async () => {
  await builder();
  expect(
    (await api.call('createRepositoryLook', { body: { git_url: URL_ }, as: 'viewer' })).status,
  ).toBe(403);
  const { json } = await ask();
  expect(
    (await api.call('getRepositoryLook', { params: { id: String(json['id']) }, as: 'viewer' }))
      .status,
  ).toBe(403);
});

it('gives the same look to the same request, and has limits for one person and for all', async () => {
  await builder();
  const first = await ask();
  expect((await ask()).json['id']).toBe(first.json['id']);
  expect((await ask(URL_, { branch: 'next' })).json['id']).not.toBe(first.json['id']);
  await ask(`${URL_}/3`);
  expect(await ask(`${URL_}/4`)).toMatchObject({ status: 429 });
  // Other people are not affected, up to the limit of all.
  for (let i = 0; i < 9; i++) {
    const at = await api.uptime.now();
    const payload = { repository: true as const, git_url: `${URL_}/of-others-${i}`, branch: null };
    await api.stores.repositoryLooks.create(
      {
        id: `other-${i}`,
        node_id: 'b',
        queue_deadline_at: at.at,
        wall_deadline_at: at.at,
        payload,
      },
      0,
    );
  }
  const admin = await api.call('createRepositoryLook', {
    body: { git_url: `${URL_}/admin` },
    as: 'admin',
  });
  expect(admin).toMatchObject({ status: 429 });
});

const statusesOf = async (replies: Promise<Reply>[]): Promise<Record<number, number>> => {
  const counts: Record<number, number> = {};
  for (const { status } of await Promise.all(replies)) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
};

it('opens 3 looks for 50 requests of one person at once, and its places become free again', async () => {
  const node = await builder();
  const { create } = api.stores.repositoryLooks;
  const creating: (() => void)[] = [];
  let refused = 0;
  // No look exists until each request was refused or begins to create one.
  const spy = vi.spyOn(api.stores.repositoryLooks, 'create').mockImplementation(async (...args) => {
    await new Promise<void>((resolve) => creating.push(resolve));
    return create(...args);
  });
  const replies = Array.from({ length: 50 }, async (_, i) => {
    const reply = await ask(`${URL_}/tarpit-${i}`);
    if (reply.status === 429) refused += 1;
    return reply;
  });
  await vi.waitFor(() => expect(creating.length + refused).toBe(50), 20_000);
  for (const resume of creating) resume();
  spy.mockRestore();
  expect(await statusesOf(replies)).toEqual({ 200: 3, 429: 47 });
  expect(await tasksOf(node)).toHaveLength(3);
  expect((await ask(`${URL_}/other`)).text).toContain('within a minute');
  api.pass(61_000);
  await lost();
  await builder();
  expect(await statusesOf(['a', 'b', 'c', 'd'].map((name) => ask(`${URL_}/${name}`)))).toEqual({
    200: 3,
    429: 1,
  });
});

it.each<[string, boolean]>([
  ['that find the same look', true],
  ['that no builder can answer', false],
])('counts requests %s', async (_what, hasBuilder) => {
  if (hasBuilder) await builder();
  expect((await ask()).json['state']).toBe(hasBuilder ? 'waiting' : 'unavailable');
  expect(await statusesOf(Array.from({ length: 25 }, () => ask()))).toEqual({ 200: 19, 429: 6 });
  api.pass(61_000);
  expect((await ask()).status).toBe(200);
});

it('counts requests that the limit of all people refuses', async () => {
  await builder();
  const { at } = await api.uptime.now();
  for (let i = 0; i < 12; i++) {
    const payload = { repository: true as const, git_url: `${URL_}/of-others-${i}`, branch: null };
    await api.stores.repositoryLooks.create(
      { id: `other-${i}`, node_id: 'b', queue_deadline_at: at, wall_deadline_at: at, payload },
      0,
    );
  }
  const messages: string[] = [];
  for (let i = 0; i < 21; i++) messages.push((await ask(`${URL_}/${i}`)).text);
  expect(messages.filter((text) => text.includes('many repositories'))).toHaveLength(20);
  expect(messages.at(-1)).toContain('within a minute');
});

it('records the ssh host keys of its own host only', async () => {
  await builder();
  const { json } = await ask('ssh://git@Git.Example.com:2222/team/shop.git');
  const { lease } = await claim(String(json['id']));
  const host_keys = ['git.example.com:2222', 'git.example.com', 'other.example.com'].map(
    (host, i) => ({
      host,
      fingerprint: `SHA256:${String(i).repeat(43)}`,
      key_type: 'ssh-ed25519',
    }),
  );
  const error = { code: 'git_host_unknown', message: 'x' };
  expect(
    (await report(String(json['id']), lease, { status: 'failed', result: { error }, host_keys }))
      .status,
  ).toBe(200);
  expect((await api.stores.gitHosts.all()).map(({ host, state }) => [host, state])).toEqual([
    ['git.example.com:2222', 'presented'],
  ]);
});

it('ends a look that its builder does not claim or end, and asks another builder the next time', async () => {
  const nodes = [await builder('b1'), await builder('b2')];
  const { json } = await ask();
  api.pass(20_000);
  await lost();
  expect(await look(json['id'])).toMatchObject({
    state: 'failed',
    error: { code: 'task_not_claimed' },
  });
  const again = await ask();
  const lists = await Promise.all(nodes.map(tasksOf));
  expect(lists.map((list) => list.map(({ id }) => id))).toEqual([[], [again.json['id']]]);
  const { lease } = await claim(String(again.json['id']));
  api.pass(100_000);
  await lost();
  expect(await look(again.json['id'])).toMatchObject({
    state: 'failed',
    error: { code: 'task_timeout' },
  });
  expect(
    (await report(String(again.json['id']), lease, { status: 'completed', result: FOUND })).status,
  ).toBe(409);
});

onceOnly.test(
  'ends open looks when the control plane stops: an earlier version cannot, and would log an ' +
    'error each second',
  async () => {
    const dir = mkdtempSync(join(tmpdir(), 'berth-looks-'));
    onTestFinished(() => rmSync(dir, { recursive: true }));
    const again = async (): Promise<void> => {
      await api.close();
      api = await createApi({ databaseUrl: `sqlite:${join(dir, 'berth.db')}` });
    };
    await again();
    const node = await builder();
    const done = (await ask(`${URL_}/done`)).json['id'];
    const { lease } = await claim(String(done));
    await report(String(done), lease, { status: 'completed', result: FOUND });
    const waiting = (await ask(`${URL_}/waiting`)).json['id'];
    const begun = (await ask(`${URL_}/begun`)).json['id'];
    await claim(String(begun));
    await again();
    for (const id of [waiting, begun])
      expect(await look(id)).toMatchObject({
        state: 'failed',
        error: { message: expect.stringContaining('the control plane stopped') },
      });
    expect(await look(done)).toMatchObject({ state: 'done' });
    expect(await tasksOf(node)).toEqual([]);
    expect(await api.stores.repositoryLooks.open()).toEqual([]);
  },
);

it('keeps ended looks for minutes only, and answers 404 for another task', async () => {
  const node = await builder();
  const { json } = await ask();
  const { lease } = await claim(String(json['id']));
  await report(String(json['id']), lease, { status: 'completed', result: FOUND });
  api.pass(16 * 60_000);
  const at = (await api.uptime.now()).at;
  expect(await api.stores.repositoryLooks.sweep(at + 16 * 60_000)).toBe(1);
  const gone = await api.call('getRepositoryLook', {
    params: { id: String(json['id']) },
    as: 'developer',
  });
  expect(gone.status).toBe(404);
  expect(node).not.toBe('');
});

describe('a look for a project', () => {
  const TOKEN = 'canary-0123456789';
  const forProject = (
    over: Record<string, unknown> = {},
    as: 'developer' | 'viewer' | 'admin' = 'developer',
  ): Promise<Reply> =>
    api.call('createRepositoryLook', { body: { project_id: 'shop', ...over }, as });
  const idOf = async (role: string): Promise<string> =>
    (await api.stores.users.findByEmail(`${role}@example.com`))?.id ?? '';
  const members = async (list: { user_id: string; role: string }[]): Promise<void> => {
    const reply = await api.call('patchProject', {
      as: 'admin',
      params: { id: 'shop' },
      body: { members: list },
    });
    expect(reply.status, reply.text).toBe(200);
  };
  let node: string;
  beforeEach(async () => {
    await createProject(api, { git_url: URL_ });
    await api.call('putGitToken', { params: { id: 'shop' }, body: { token: TOKEN } });
    await api.call('createDeployKey', { params: { id: 'shop' } });
    node = await builder();
  });

  it('uses the deploy key and the git token of the project, and nobody gets them from the API', async () => {
    const asked = await forProject({ branch: 'next' });
    const { id } = await api.stores.projects.get((await api.stores.projects.idOf('shop')) ?? '');
    expect(asked).toMatchObject({
      status: 200,
      json: { state: 'waiting', git_url: URL_, branch: 'next', project_id: id },
    });
    const { lease, git } = await claim(String(asked.json['id']));
    expect(git).toMatchObject({
      token: { host: 'git.example.com', token: TOKEN },
      deploy_key: { private_key: expect.any(String) },
    });
    expect(JSON.stringify(await tasksOf(node))).not.toContain(TOKEN);
    await report(String(asked.json['id']), lease, { status: 'completed', result: FOUND });
    expect(await look(asked.json['id'])).toMatchObject({
      state: 'done',
      found: FOUND,
      project_id: id,
    });
  });

  it.each([
    ['another host', 'https://attacker.example.net/team/shop.git'],
    ['another repository of the same host', 'https://git.example.com/attacker/shop.git'],
    ['the same repository over ssh', 'ssh://git@git.example.com/team/shop.git'],
    ['another port', 'https://git.example.com:8443/team/shop.git'],
  ])('is refused for %s', async (_what, git_url) => {
    const reply = await forProject({ git_url });
    expect([reply.status, rulesOf(reply)]).toEqual([422, ['git_url:of_project']]);
    expect(await tasksOf(node)).toEqual([]);
    expect((await forProject({ git_url: URL_ })).status).toBe(200);
  });

  it('gets no access if the project has moved to another address before the builder claims it', async () => {
    const { json } = await forProject();
    const moved = await api.call('patchProject', {
      params: { id: 'shop' },
      body: { git_url: 'https://git.example.com/new/shop.git' },
    });
    expect(moved.status).toBe(200);
    expect(Object.keys((await claim(String(json['id']))).git as object)).toEqual(['hosts']);
  });

  it('gets no access if the project is being deleted, and cannot be asked for then', async () => {
    const { json } = await forProject();
    expect((await api.call('deleteProject', { params: { id: 'shop' } })).status).toBe(202);
    const gone = await forProject();
    expect([gone.status, gone.json['code'] ?? rulesOf(gone)]).toEqual([409, 'being_deleted']);
    expect(Object.keys((await claim(String(json['id']))).git as object)).toEqual(['hosts']);
  });

  it('gets no token over another scheme than https', async () => {
    await api.call('patchProject', {
      params: { id: 'shop' },
      body: { git_url: 'ssh://git@git.example.com/team/shop.git' },
    });
    const { json } = await forProject();
    expect(Object.keys((await claim(String(json['id']))).git as object).sort()).toEqual([
      'deploy_key',
      'hosts',
    ]);
  });

  it('never shares its answer with a look for no project or for another one', async () => {
    await createProject(api, { name: 'other', domain_prefix: 'other', git_url: URL_ });
    const ids = [await forProject(), await ask(), await forProject({ project_id: 'other' })].map(
      ({ json }) => json['id'],
    );
    expect(new Set(ids).size).toBe(3);
    expect((await forProject()).json['id']).toBe(ids[0]);
  });

  it('is for those who may edit the project; for others it does not exist', async () => {
    const { json } = await forProject();
    const read = (as: 'developer' | 'admin') =>
      api.call('getRepositoryLook', { params: { id: String(json['id']) }, as });
    expect((await forProject({}, 'viewer')).status).toBe(403);
    await members([{ user_id: await idOf('viewer'), role: 'viewer' }]);
    const hidden = await forProject();
    const unknown = await forProject({ project_id: 'nothing' });
    expect([hidden.status, rulesOf(hidden), hidden.json['detail']]).toEqual([
      422,
      ['project_id:exists'],
      unknown.json['detail'],
    ]);
    const never = await api.call('getRepositoryLook', {
      params: { id: 'nothing' },
      as: 'developer',
    });
    expect([(await read('developer')).status, (await read('developer')).json['detail']]).toEqual([
      404,
      never.json['detail'],
    ]);
    expect((await read('admin')).status).toBe(200);
    await members([{ user_id: await idOf('developer'), role: 'viewer' }]);
    expect([(await forProject()).status, (await read('developer')).status]).toEqual([403, 404]);
    await members([{ user_id: await idOf('developer'), role: 'developer' }]);
    expect([(await forProject()).status, (await read('developer')).status]).toEqual([200, 200]);
  });

  it('ends the held request of somebody who loses the project meanwhile', async () => {
    const { json } = await forProject();
    const input = { params: { id: String(json['id']) }, as: 'developer' as const };
    const etag = String((await api.call('getRepositoryLook', input)).headers['etag']);
    const held = api.call('getRepositoryLook', {
      ...input,
      query: { wait: 30 },
      headers: { 'if-none-match': etag },
    });
    await members([{ user_id: await idOf('viewer'), role: 'viewer' }]);
    const { lease } = await claim(String(json['id']));
    await report(String(json['id']), lease, { status: 'completed', result: FOUND });
    expect((await held).status).toBe(404);
    expect((await held).text).not.toContain('trunk');
  });

  it('says which access to check, and needs an address without a project', async () => {
    const { json } = await forProject();
    const { lease } = await claim(String(json['id']));
    const error = { code: 'git_credentials', message: 'Git access was refused' };
    await report(String(json['id']), lease, { status: 'failed', result: { error } });
    expect((await look(json['id'])).error?.message).toBe(
      'Git access was refused. Check the deploy key or the git token of the project',
    );
    const nothing = await api.call('createRepositoryLook', { body: {}, as: 'developer' });
    expect([nothing.status, rulesOf(nothing)]).toEqual([422, ['git_url:required']]);
  });
});
