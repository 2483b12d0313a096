/**
 * Values reach agents with a claim, or in the env of an agent that knows no better. They are
 * nowhere in the database.
 */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Api, createApi, createProject, deploy, register, sha, tick } from './harness.ts';

const CANARY = 'canary-91c0aa47de';
const OTHER = 'canary-second-5e1f';
let api: Api;
beforeEach(async () => {
  api = await createApi();
});
afterEach(() => api.close());

type Task = { id: string; payload: { env: Record<string, string>; secrets?: unknown } };
const ABLE = { capabilities: ['secrets', 'secret_files'] };
const put = (id: string, name: string, value: string, more: object = {}) =>
  api.call('putSecret', { params: { id, name }, body: { value, ...more } });
const tasksOf = async (node: string): Promise<Task[]> =>
  (await api.call('agentTasks', { query: { node_id: node } })).json as unknown as Task[];
const start = (task: string) => api.call('agentStart', { params: { id: task } });
const story = async (id: string): Promise<string> =>
  JSON.stringify((await api.call('getDeployment', { params: { id } })).json['events']);

/** A deployment whose deploy task is pending on `node`. */
async function assigned(
  project: string,
  builder: string,
  node: string,
): Promise<{ id: string; task: string }> {
  const id = await deploy(api, project);
  await tick(api, id);
  const [build] = await tasksOf(builder);
  const claim = await start(build?.id ?? '');
  const headers = { 'x-lease-token': String(claim.json['lease_token']) };
  await api.call('agentComplete', {
    params: { id: build?.id ?? '' },
    body: { status: 'completed', image_tag: `registry.test:5000/shop:${sha('c')}` },
    headers,
  });
  await tick(api, id);
  const [task] = (await tasksOf(node)).filter(({ payload }) => 'env' in payload);
  return { id, task: task?.id ?? '' };
}
const berth = async (): Promise<{ project: string; builder: string; node: string }> => ({
  project: await createProject(api, { env: { PLAIN: 'yes' } }),
  builder: await register(api, ABLE),
  node: await register(api, { hostname: 'node-1', role: 'deploy', ...ABLE }),
});
/** The stored payload of every task of the deployment. */
const stored = async (task: string): Promise<string> =>
  JSON.stringify(await api.stores.tasks.get(task));

describe('an agent with the capability', () => {
  test('gets the values in the answer to its claim, and nowhere else', async () => {
    const { project, builder, node } = await berth();
    await put(project, 'TOKEN', CANARY);
    await put(project, 'CERT', OTHER, { as: 'file' });
    await put(project, 'NPM', 'build-only-value', { scope: 'build' });
    const { id, task } = await assigned(project, builder, node);
    const [listed] = await tasksOf(node);
    expect(listed?.payload).toMatchObject({
      env: { PLAIN: 'yes' },
      secrets: [
        { name: 'CERT', as: 'file' },
        { name: 'TOKEN', as: 'env' },
      ],
    });
    const claim = await start(task);
    expect(claim.json).toMatchObject({
      secrets: [
        { name: 'CERT', value: OTHER, as: 'file' },
        { name: 'TOKEN', value: CANARY, as: 'env' },
      ],
      secrets_digest: expect.stringMatching(/^[0-9a-f]{32}$/),
    });
    for (const text of [
      JSON.stringify(listed),
      await stored(task),
      JSON.stringify(await api.stores.deployments.get(id)),
      await story(id),
    ])
      for (const value of [CANARY, OTHER]) expect(text).not.toContain(value);
    expect((await api.stores.deployments.get(id)).secrets?.map(({ name }) => name)).toEqual([
      'CERT',
      'TOKEN',
    ]);
  });

  test('gets build secrets with the claim of a build, and those alone', async () => {
    const { project, builder } = await berth();
    await put(project, 'TOKEN', CANARY);
    await put(project, 'NPM', OTHER, { scope: 'build' });
    const id = await deploy(api, project);
    await tick(api, id);
    const [build] = await tasksOf(builder);
    expect((await start(build?.id ?? '')).json['secrets']).toEqual([
      { name: 'NPM', value: OTHER, as: 'env' },
    ]);
    expect(await stored(build?.id ?? '')).not.toContain(OTHER);
  });

  test('has another digest after another value, and the same one after a second claim', async () => {
    const { project, builder, node } = await berth();
    await put(project, 'TOKEN', CANARY);
    const { task } = await assigned(project, builder, node);
    const digests = [await start(task), await start(task)].map(
      (claim) => claim.json['secrets_digest'],
    );
    await put(project, 'TOKEN', OTHER);
    const third = await start(task);
    expect(digests[0]).toBe(digests[1]);
    expect(third.json['secrets_digest']).not.toBe(digests[0]);
    expect(third.json['secrets']).toEqual([{ name: 'TOKEN', value: OTHER, as: 'env' }]);
  });

  test('without secrets gets the answer of before', async () => {
    const { project, builder, node } = await berth();
    const { task } = await assigned(project, builder, node);
    expect(Object.keys((await start(task)).json).sort()).toEqual([
      'attempt',
      'lease_expires_at',
      'lease_seconds',
      'lease_token',
    ]);
  });
});

test.each([
  ['a contract-only agent', { agent_version: undefined }],
  ['an agent of the previous version', {}],
])(
  '%s gets env secrets in the env of its payload; the stored payload has none',
  async (_, version) => {
    const project = await createProject(api, { env: { PLAIN: 'yes' } });
    const builder = await register(api);
    const node = await register(api, { hostname: 'node-1', role: 'deploy', ...version });
    await put(project, 'TOKEN', CANARY);
    const { id, task } = await assigned(project, builder, node);
    const [listed] = await tasksOf(node);
    expect(listed?.payload.env).toEqual({ PLAIN: 'yes', TOKEN: CANARY });
    expect(await stored(task)).not.toContain(CANARY);
    expect((await start(task)).text).not.toContain(CANARY);
    expect((await api.stores.deployments.get(id)).secrets?.map(({ name }) => name)).toEqual([
      'TOKEN',
    ]);
    // Only the agent of the node reads the task.
    for (const name of ['getDeployment', 'deploymentLogs'] as const)
      expect((await api.call(name, { params: { id }, as: 'admin' })).text).not.toContain(CANARY);
  },
);

test('an agent that was replaced by an earlier version is not offered a task whose build or file secrets it would leave out', async () => {
  const { project, builder, node } = await berth();
  await put(project, 'NPM', CANARY, { scope: 'build' });
  await put(project, 'CERT', CANARY, { as: 'file' });
  const { task } = await assigned(project, builder, node);
  await register(api, { hostname: 'node-1', role: 'deploy', capabilities: [] });
  expect(await tasksOf(node)).toEqual([]);
  expect((await api.stores.tasks.get(task)).status).toBe('pending');
  const next = await deploy(api, project);
  await tick(api, next);
  await register(api, { capabilities: [] });
  expect((await tasksOf(builder)).filter(({ payload }) => 'secrets' in payload)).toEqual([]);
});

describe('while a deployment starts', () => {
  test('a deleted secret is left out, and the story says so once', async () => {
    const { project, builder, node } = await berth();
    await put(project, 'TOKEN', CANARY);
    await put(project, 'GONE', OTHER);
    const { id, task } = await assigned(project, builder, node);
    await api.call('deleteSecret', { params: { id: project, name: 'GONE' } });
    expect((await start(task)).json['secrets']).toEqual([
      { name: 'TOKEN', value: CANARY, as: 'env' },
    ]);
    await start(task);
    expect(
      (await story(id)).split(
        'the project no longer has the secret GONE; the deployment starts without it',
      ).length,
    ).toBe(2);
  });

  test('a secret that became a build secret is left out', async () => {
    const { project, builder, node } = await berth();
    await put(project, 'TOKEN', CANARY);
    const { task } = await assigned(project, builder, node);
    await put(project, 'TOKEN', CANARY, { scope: 'build' });
    expect((await start(task)).json['secrets']).toEqual([]);
  });

  test('the deletion of the project ends the task: a claim gets no value', async () => {
    const { project, builder, node } = await berth();
    await put(project, 'TOKEN', CANARY);
    const { task } = await assigned(project, builder, node);
    await api.call('deleteProject', { params: { id: project } });
    const claim = await start(task);
    expect(claim.status).toBe(409);
    expect(claim.text).not.toContain(CANARY);
  });

  test('a key that SECRETS_KEY lacks: the claim is 503 and uses up no attempt; the other tasks go on', async () => {
    const { project, builder, node } = await berth();
    await put(project, 'TOKEN', CANARY);
    const { task } = await assigned(project, builder, node);
    const record = await api.stores.projectKeys.get(project);
    if (record === null) throw new Error('no key');
    const foreign = { ...record, wrapped: record.wrapped.replace(/.{4}$/, 'AAAA') };
    await api.stores.projectKeys.rewrap(foreign, record.wrapped);
    const claim = await start(task);
    expect([claim.status, claim.json['code']]).toEqual([503, 'secrets_locked']);
    expect((await api.stores.tasks.get(task)).attempt).toBe(0);
    await api.stores.projectKeys.rewrap(record, foreign.wrapped);
    expect((await start(task)).json['attempt']).toBe(1);
  });
});
