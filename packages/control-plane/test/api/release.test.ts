/** What a release carries, what the project decides at once, and which deployment can be brought back. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Api, createApi, createProject, deploy, PROJECT, register, rulesOf, sha, tick } from './harness.ts';

let api: Api;
let builder: string;
let home: string;
beforeEach(async () => {
  api = await createApi({ env: { AUTH_SERVICE_URL: 'http://127.0.0.1:9' } });
  builder = await register(api);
  home = await register(api, { hostname: 'node-1', role: 'deploy' });
});
afterEach(() => api.close());

/** The one open task of the node, claimed and reported as its agent would. */
async function work(node: string, report: Record<string, unknown>): Promise<Record<string, unknown>> {
  const [task] = (await api.call('agentTasks', { query: { node_id: node } })).json as unknown as { id: string; payload: never }[];
  if (task === undefined) throw new Error(`${node} has no task`);
  const claim = await api.call('agentStart', { params: { id: task.id } });
  const headers = { 'x-lease-token': String(claim.json['lease_token']) };
  const body = { status: 'completed', ...report };
  expect((await api.call('agentComplete', { params: { id: task.id }, body, headers })).status).toBe(200);
  return task.payload;
}
const built = (report: Record<string, unknown> = {}) => work(builder, { image_tag: `registry.test:5000/shop:${sha('c')}`, ...report });
async function confirmed(id: string): Promise<void> {
  await api.driver.advance(id, { type: 'route_confirmed', host_ip: '10.0.0.7', host_port: 32_001 });
}
/** Builds and deploys until it is live; gives its id. */
async function live(project: string): Promise<string> {
  const id = await deploy(api, project);
  await tick(api, id);
  await built();
  await tick(api, id);
  await work(home, { host_port: 32_001 });
  await confirmed(id);
  const [retire] = (await api.call('agentTasks', { query: { node_id: home } })).json as unknown as unknown[];
  if (retire !== undefined) await work(home, {});
  return id;
}
const health = async (id: string): Promise<unknown> => (await api.call('getDeployment', { params: { id } })).json['health'];
const patch = (id: string, body: Record<string, unknown>) => api.call('patchProject', { params: { id }, body });
const rollback = (id: string, deployment_id: string) => api.call('rollback', { params: { id }, body: { deployment_id } });

describe('a login that is switched on', () => {
  const config = (): Record<string, { middlewares?: string[] }> =>
    (JSON.parse(api.source.current().bytes) as { http: { routers: Record<string, { middlewares?: string[] }> } }).http.routers;

  test('holds for what runs before PATCH is answered', async () => {
    const project = await createProject(api);
    await live(project);
    await api.source.refresh();
    expect(config()['shop']?.middlewares).not.toContain('shop-auth');
    expect((await patch(project, { auth_required: true })).status).toBe(200);
    expect(config()['shop']?.middlewares).toContain('shop-auth');
    expect((await patch(project, { auth_required: false })).status).toBe(200);
    expect(config()['shop']?.middlewares).not.toContain('shop-auth');
  });

  test('without AUTH_SERVICE_URL it is refused, and what runs stays published', async () => {
    const bare = await createApi();
    const body = { ...PROJECT, auth_required: true };
    const created = await bare.call('createProject', { body });
    expect([created.status, rulesOf(created)]).toEqual([422, ['auth_required:auth_service']]);
    const id = await createProject(bare);
    const reply = await bare.call('patchProject', { params: { id }, body: { auth_required: true } });
    expect([reply.status, rulesOf(reply)]).toEqual([422, ['auth_required:auth_service']]);
    expect((await bare.call('getProject', { params: { id } })).json).toMatchObject({ auth_required: false });
    expect((await bare.call('patchProject', { params: { id }, body: { auth_required: false } })).status).toBe(200);
    await bare.close();
  });
});

describe('drift', () => {
  test('the order of the names in env is none', async () => {
    const project = await createProject(api, { env: { A: '1', B: '2' } });
    const id = await live(project);
    await patch(project, { env: { B: '2', A: '1' } });
    expect(await health(id)).toMatchObject({ status: 'healthy' });
    await patch(project, { env: { A: '1', B: '3' } });
    expect(await health(id)).toMatchObject({ status: 'drifted', detail: expect.stringContaining('the project’s env changed since') });
  });
  test('what takes effect at once is none', async () => {
    const project = await createProject(api);
    const id = await live(project);
    await patch(project, { auth_required: true, on_dataset_change: 'ignore' });
    expect(await health(id)).toMatchObject({ status: 'healthy' });
  });
});

describe('only a deployment that ran can be brought back', () => {
  test('one that failed its probe is refused, one that was live is not', async () => {
    const project = await createProject(api);
    const first = await live(project);
    const id = await deploy(api, project);
    await tick(api, id);
    await built();
    const waits = await rollback(project, id);
    expect([waits.status, waits.json['code']]).toEqual([409, 'no_release']);
    await tick(api, id);
    await work(home, { status: 'failed', result: { error: { code: 'probe_timeout', message: 'no answer' } } });
    const failed = await rollback(project, id);
    expect([failed.status, failed.json['code']]).toEqual([409, 'no_release']);
    expect(failed.json['detail']).toBe('deployment 2 is failed: only a deployment that ran can be brought back');
    expect((await rollback(project, first)).status).toBe(201);
  });
});
