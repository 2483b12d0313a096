/**
 * Deployments through the API: request, repeat, list, cancel, roll back. The tests of the flow
 * cover the rest.
 */
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { deploymentKey } from '../../src/api/idempotency.ts';
import {
  type Api,
  claimsOf,
  createApi,
  createProject,
  deploy,
  register,
  rulesOf,
  sha,
  tick,
  withBuild,
} from './harness.ts';

let api: Api;
let project: string;
beforeAll(async () => {
  api = await createApi();
  project = await createProject(api);
});
afterAll(() => api.close());

const create = (body?: unknown, headers: Record<string, string> = {}) =>
  api.call('createDeployment', {
    params: { id: project },
    ...(body === undefined ? {} : { body }),
    headers,
  });

test('a new deployment is pending and has the URL at which it will be reached', async () => {
  const reply = await create({ commit: sha('a'), note: 'first' });
  expect(reply.json).toMatchObject({
    project_id: project,
    generation: 1,
    status: 'pending',
    commit: sha('a'),
    note: 'first',
    error: null,
    cancel_requested: false,
    host_ip: null,
    host_port: null,
    finished_at: null,
    url: 'http://shop.berth.localhost:8000',
    placement: null,
  });
  const got = await api.call('getDeployment', {
    params: { id: reply.json['id'] as string },
    as: 'viewer',
  });
  expect(got.json).toEqual(reply.json);
});

test('a deployment that waits shows the reason, in lists too', async () => {
  const waits = await createApi();
  onTestFinished(() => waits.close());
  await register(waits, {
    hostname: 'b1',
    role: 'builder',
    engine: { ok: false, version: null, error: 'no socket' },
  });
  const id = await deploy(waits, await createProject(waits));
  await tick(waits, id);
  const { json } = await waits.call('getDeployment', { params: { id } });
  const waiting =
    'no builder node has a working container engine: b1 has a container engine that does not ' +
    'respond';
  expect(json).toMatchObject({ status: 'pending', waiting });
  expect((json['events'] as { message: string }[]).at(-1)?.message).toBe(`${waiting}: no socket`);
  expect((await waits.call('listDeployments')).json['items']).toMatchObject([{ id, waiting }]);
  await register(waits, {
    hostname: 'b1',
    role: 'builder',
    engine: { ok: true, version: '28', error: null },
  });
  await tick(waits, id);
  expect((await waits.call('getDeployment', { params: { id } })).json).toMatchObject({
    status: 'building',
    waiting: null,
  });
});

test.each([
  [{ commit: 'main' }, 'commit:commit_id'],
  [{ commit: sha('a').slice(0, 7) }, 'commit:commit_id'],
  [{ commit: sha('a').toUpperCase() }, 'commit:commit_id'],
  [{ commit: '--upload-pack=x' }, 'commit:commit_id'],
  [{ commit: 5 }, 'commit:type'],
  [{ note: 'x'.repeat(501) }, 'note:max_length'],
  [{ note: 'a\u0000b' }, 'note:no_nul'],
  [{ branch: 'x' }, 'branch:unknown_field'],
])('%j is 422: %s', async (body, rule) => {
  const reply = await create(body);
  expect([reply.status, rulesOf(reply)]).toEqual([422, [rule]]);
});

describe('Idempotency-Key', () => {
  test('a repeated request returns the same deployment', async () => {
    const first = await create({ note: 'x' }, { 'idempotency-key': 'k 1' });
    const again = await create({ note: 'x', commit: null }, { 'idempotency-key': 'k 1' });
    expect([again.status, again.json['id']]).toEqual([201, first.json['id']]);
    expect((await create({ note: 'x' }, { 'idempotency-key': 'k 2' })).json['id']).not.toBe(
      first.json['id'],
    );
    expect((await create({ note: 'x' })).json['id']).not.toBe(first.json['id']);
  });
  test('an absent body equals an empty one', async () => {
    const first = await create(undefined, { 'idempotency-key': 'empty' });
    expect((await create({}, { 'idempotency-key': 'empty' })).json['id']).toBe(first.json['id']);
  });
  test('with another body it gets 422', async () => {
    await create({ note: 'x' }, { 'idempotency-key': 'other' });
    const reply = await create({ note: 'y' }, { 'idempotency-key': 'other' });
    expect([reply.status, reply.json['code']]).toEqual([422, 'idempotency_mismatch']);
  });
  test('many requests at once create one deployment', async () => {
    const replies = await Promise.all(
      Array.from({ length: 10 }, () => create({}, { 'idempotency-key': 'race' })),
    );
    expect(new Set(replies.map((r) => r.json['id'])).size).toBe(1);
    expect(new Set(replies.map((r) => r.status))).toEqual(new Set([201]));
  });
  test('is valid for 24 h and for one project', async () => {
    const first = await create({}, { 'idempotency-key': 'day' });
    const elsewhere = await createProject(api, { name: 'elsewhere', domain_prefix: 'elsewhere' });
    expect(
      (
        await api.call('createDeployment', {
          params: { id: elsewhere },
          headers: { 'idempotency-key': 'day' },
        })
      ).json['id'],
    ).not.toBe(first.json['id']);
    const { sub: user } = claimsOf(api.token('developer'));
    // The tokens of this file have expired by then, so the test calls the same function as the
    // route.
    const ask = () =>
      api.driver.request({
        projectId: project,
        commit: null,
        note: null,
        rollbackOf: null,
        idempotency: deploymentKey({ user, key: 'day', path: `deploy ${project}` }, [
          'deploy',
          null,
          null,
        ]),
      });
    api.pass(23 * 3_600_000);
    expect((await ask()).deployment.id).toBe(first.json['id']);
    api.pass(2 * 3_600_000);
    expect((await ask()).created).toBe(true);
    api.pass(-25 * 3_600_000);
  });
  test('a key that an earlier version stored is valid for as long', async () => {
    const meaning = ['deploy', null, 'before'];
    const { bodyHash } = deploymentKey({ user: '', key: '', path: '' }, meaning);
    const asked = { projectId: project, commit: null, note: 'before', rollbackOf: null };
    const { deployment } = await api.driver.request({
      ...asked,
      idempotency: { key: 'before', bodyHash },
    });
    const reply = await create({ note: 'before' }, { 'idempotency-key': 'before' });
    expect([reply.json['id'], reply.headers['idempotent-replayed']]).toEqual([
      deployment.id,
      'true',
    ]);
    expect((await create({ note: 'other' }, { 'idempotency-key': 'before' })).json['code']).toBe(
      'idempotency_mismatch',
    );
  });
  test.each(['', 'x'.repeat(201), 'ä', 'a\tb'])('%j is not a valid key', async (key) => {
    expect(rulesOf(await create({}, { 'idempotency-key': key }))).toEqual([
      'Idempotency-Key:printable',
    ]);
  });
});

describe('lists', () => {
  test('lists are filtered by project and status, newest first, in pages', async () => {
    const own = await createProject(api, { name: 'listed', domain_prefix: 'listed' });
    const ids = [await deploy(api, own), await deploy(api, own), await deploy(api, own)];
    const all = await api.call('listDeployments', { query: { project_id: own } });
    expect((all.json['items'] as { id: string }[]).map((d) => d.id)).toEqual(ids.toReversed());
    const page = await api.call('listDeployments', { query: { project_id: own, limit: 1 } });
    const next = await api.call('listDeployments', {
      query: { project_id: own, limit: 1, cursor: page.json['next_cursor'] as string },
    });
    expect((next.json['items'] as { id: string }[]).map((d) => d.id)).toEqual([ids[1]]);
    const pending = await api.call('listDeployments', {
      query: { project_id: own, status: 'pending' },
    });
    expect((pending.json['items'] as { id: string }[]).map((d) => d.id)).toEqual([ids[2]]);
    const running = await api.call('listDeployments', {
      query: { project_id: own, status: 'running' },
    });
    expect(running.json).toEqual({ items: [], next_cursor: null });
  });
  test('an unknown status gets 422', async () => {
    expect(rulesOf(await api.call('listDeployments', { query: { status: 'done' } }))).toEqual([
      'status:enum',
    ]);
  });
});

describe('cancel', () => {
  test('ends the deployment; a second one gets an error', async () => {
    const id = await deploy(api, project);
    const reply = await api.call('cancelDeployment', { params: { id } });
    expect(reply.json['status']).toBe('cancelled');
    expect(reply.json['finished_at']).not.toBeNull();
    const again = await api.call('cancelDeployment', { params: { id } });
    expect([again.status, again.json['code']]).toEqual([409, 'wrong_state']);
  });
});

describe('rollback', () => {
  const rollback = (body: unknown) => api.call('rollback', { params: { id: project }, body });
  test('requires an existing deployment of this project with an image', async () => {
    const without = await rollback({});
    expect([without.status, without.json['code']]).toEqual([409, 'no_release']);
    expect(rulesOf(await rollback({ deployment_id: 'a b' }))).toEqual(['deployment_id:id']);
    const unknown = await rollback({ deployment_id: 'nobody' });
    expect(rulesOf(unknown)).toEqual(['deployment_id:exists']);
    // A deployment of another project, which the caller may not see, gets the same answer.
    const other = await deploy(
      api,
      await createProject(api, { name: 'other', domain_prefix: 'other' }),
    );
    const foreign = await rollback({ deployment_id: other });
    const { request_id: one, ...answer } = foreign.json;
    const { request_id: two, ...expected } = unknown.json;
    expect([foreign.status, answer, one === two]).toEqual([unknown.status, expected, false]);
    const logOf = async (deployment_id: string): Promise<unknown[]> => {
      const reply = await api.call('projectLogs', {
        params: { id: project },
        query: { deployment_id },
      });
      return [reply.status, reply.json['detail']];
    };
    expect(await logOf(other)).toEqual(await logOf('nobody'));
    const id = await deploy(api, project);
    await api.call('cancelDeployment', { params: { id } });
    const reply = await rollback({ deployment_id: id });
    expect([reply.status, reply.json['code']]).toEqual([409, 'no_release']);
  });
});

test('placement lists each node with its score or the reason against it', async () => {
  const id = await createProject(api, { name: 'placed', domain_prefix: 'placed' });
  const good = await register(api, { hostname: 'd1', role: 'deploy' });
  const cordoned = await register(api, { hostname: 'd2', role: 'deploy' });
  const builder = await register(api, { hostname: 'b1', role: 'builder' });
  await api.call('cordonNode', { params: { id: cordoned } });
  const reply = await api.call('placement', { query: { project_id: id }, as: 'viewer' });
  expect(reply.json).toMatchObject({ winner: good });
  const items = reply.json['items'] as {
    node_id: string;
    eligible: boolean;
    reason: string | null;
    score: number;
    free_storage_bytes: number;
  }[];
  expect(items.map((i) => [i.node_id, i.eligible])).toEqual(
    expect.arrayContaining([
      [good, true],
      [cordoned, false],
      [builder, false],
    ]),
  );
  expect(items).toHaveLength(3);
  expect(items.find((i) => i.node_id === builder)?.reason).toBe('is a builder');
  expect(items.find((i) => i.node_id === cordoned)?.reason).toBe('is cordoned');
  for (const i of items) expect(i.score).toBeCloseTo(i.free_storage_bytes * 0.0000001);
  expect((await api.call('placement', { query: { project_id: 'nobody' } })).status).toBe(422);
  expect(rulesOf(await api.call('placement', {}))).toEqual(['project_id:required']);
});

test('a deployment has the address of its node', async () => {
  const id = await createProject(api, { name: 'addressed', domain_prefix: 'addressed' });
  const deployment = await deploy(api, id);
  await tick(api, deployment);
  const got = await api.call('getDeployment', { params: { id: deployment } });
  expect(got.json['status']).toBe('building');
  expect((got.json['events'] as { kind: string }[]).length).toBeGreaterThan(0);
});

test('the story of a deployment is in order, and its health names settings that are not deployed', async () => {
  const own = await createApi();
  onTestFinished(() => own.close());
  const { project: shop, deployment, task } = await withBuild(own);
  const deployNode = await register(own, { hostname: 'node-1', role: 'deploy' });
  const work = async (id: string, report: Record<string, unknown>) => {
    const claim = await own.call('agentStart', { params: { id } });
    const headers = { 'x-lease-token': String(claim.json['lease_token']) };
    expect(
      (
        await own.call('agentComplete', {
          params: { id },
          body: { status: 'completed', ...report },
          headers,
        })
      ).status,
    ).toBe(200);
  };
  const image = `registry.test:5000/shop:${sha('c')}`;
  await work(task, { image_tag: image });
  await tick(own, deployment);
  const [next] = (await own.call('agentTasks', { query: { node_id: deployNode } }))
    .json as unknown as { id: string }[];
  await work(next?.id ?? '', { host_port: 32_001 });
  await own.driver.advance(deployment, {
    type: 'route_confirmed',
    host_ip: '10.0.0.7',
    host_port: 32_001,
    entry_points: 2,
  });

  const live = (await own.call('getDeployment', { params: { id: deployment } })).json;
  expect((live['events'] as { message: string }[]).map((e) => e.message)).toEqual([
    'requested from branch main of https://git.example.com/shop.git',
    'build assigned to worker-1',
    'the agent of worker-1 is of an earlier version: it does not read berth.toml, so the settings ' +
      'of the project apply; update it',
    'worker-1 took the build',
    `built and pushed as ${image}`,
    'assigned to node-1 (10.0.0.7)',
    'node-1 took the deployment',
    'the container answers at 10.0.0.7:32001; its route is published',
    'live: 2 of 2 entry points of the reverse proxy serve the new route',
  ]);
  expect(live).toMatchObject({
    status: 'running',
    node_name: 'node-1',
    health: { status: 'healthy', detail: null },
  });

  await own.call('patchProject', { params: { id: shop }, body: { domain_prefix: 'store' } });
  const drifted = (await own.call('getDeployment', { params: { id: deployment } })).json[
    'health'
  ] as Record<string, unknown>;
  expect(drifted).toMatchObject({
    status: 'drifted',
    cause: 'settings_changed',
    detail:
      'the project’s domain_prefix changed since this deployment; deploy the project to apply ' +
      'the change',
  });
  await own.call('patchProject', { params: { id: shop }, body: { domain_prefix: 'shop' } });
  expect(
    (await own.call('getDeployment', { params: { id: deployment } })).json['health'],
  ).toMatchObject({ status: 'healthy' });
});
