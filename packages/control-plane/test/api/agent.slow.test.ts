/** The agent API: the four requests of the contract, and the additions of Berth. */
import { openTasksText, type Task } from '@berth/wire/task';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  type Api,
  createApi,
  createProject,
  deploy,
  NODE,
  register,
  rulesOf,
  sha,
  tick,
  withBuild,
} from './harness.ts';

let api: Api;
beforeAll(async () => {
  api = await createApi();
});
afterAll(() => api.close());

/** For tests that need their own state. Each test closes it. */
let current: Api;
const fresh = async (): Promise<Api> => (current = await createApi());

const lease = (token: string) => ({ headers: { 'x-lease-token': token } });

describe('a registration', () => {
  test('the four fields of the contract are enough; the same name and role keep the id', async () => {
    const body = { hostname: 'plain', role: 'deploy', host_ip: '10.0.0.9', max_storage: 5 };
    const reply = await api.call('agentRegister', { body });
    expect(reply.json).toMatchObject({
      ...body,
      status: 'online',
      schedulable: true,
      free_storage: null,
      agent_version: null,
    });
    const again = await api.call('agentRegister', { body: { ...body, host_ip: '10.0.0.10' } });
    expect(again.json).toMatchObject({ id: reply.json['id'], host_ip: '10.0.0.10' });
    const builder = await api.call('agentRegister', { body: { ...body, role: 'builder' } });
    expect(builder.json['id']).not.toBe(reply.json['id']);
  });
  test('unknown fields of agents are ignored', async () => {
    expect(
      (
        await api.call('agentRegister', {
          body: {
            ...NODE,
            gpu: 2,
            cached: [
              {
                dataset_id: 'd',
                version: 1,
                bytes: 1,
                last_used_at: '2026-01-01T00:00:00Z',
                extra: 1,
              },
            ],
          },
        })
      ).status,
    ).toBe(200);
  });
  test.each([
    [{ hostname: '' }, 'hostname:min_length'],
    [{ hostname: 'a\u0000b' }, 'hostname:no_control'],
    [{ role: 'boss' }, 'role:enum'],
    [{ host_ip: 'http://x' }, 'host_ip:host'],
    [{ host_ip: undefined }, 'host_ip:required'],
    [{ max_storage: '5' }, 'max_storage:type'],
    [{ max_storage: -5 }, 'max_storage:minimum'],
    [
      { containers: [{ name: 'x', labels: {}, host_port: 0, state: 'running' }] },
      'containers[0].host_port:minimum',
    ],
    [
      { cached: [{ dataset_id: 'd', version: 1, bytes: 1, last_used_at: 'yesterday' }] },
      'cached[0].last_used_at:date-time',
    ],
  ])('%j is 422: %s', async (field, rule) => {
    expect(rulesOf(await api.call('agentRegister', { body: { ...NODE, ...field } }))).toEqual([
      rule,
    ]);
  });
  test('accepts up to 8 MiB', async () => {
    const containers = Array.from({ length: 20_000 }, (_, i) => ({
      name: `c-${i}`,
      labels: { a: 'x'.repeat(100) },
      host_port: null,
      state: 'exited',
    }));
    expect(
      (await api.call('agentRegister', { body: { ...NODE, hostname: 'full', containers } })).status,
    ).toBe(200);
    const reply = await api.call('agentRegister', {
      body: { ...NODE, x: 'x'.repeat(8 * 1_048_576) },
    });
    expect([reply.status, reply.json['detail']]).toEqual([413, 'the body is larger than 8 MiB']);
  });
  test('succeeds even if its observations cannot be applied', async () => {
    const other = await createApi({
      stores: (real) => ({
        ...real,
        deployments: { ...real.deployments, servingOn: () => Promise.reject(new Error('broken')) },
      }),
    });
    expect((await other.call('agentRegister', { body: { ...NODE, containers: [] } })).status).toBe(
      200,
    );
    await other.close();
  });
  test('a node is offline after 2 minutes without registration, and online after the next one', async () => {
    const id = await register(api, { hostname: 'sleepy' });
    api.pass(121_000);
    expect((await api.call('getNode', { params: { id } })).json['status']).toBe('offline');
    await register(api, { hostname: 'sleepy' });
    expect((await api.call('getNode', { params: { id } })).json['status']).toBe('online');
  });
});

test('the configuration has the fields of the contract', async () => {
  expect((await api.call('agentConfig')).json).toEqual({
    registry_addr: 'registry.test:5000',
    registry_user: 'berth',
    registry_password: 'push',
    base_domain: 'berth.localhost',
    keep_releases: 10,
  });
});

describe('tasks', () => {
  const poll = (
    node: string,
    query: Record<string, number> = {},
    headers: Record<string, string> = {},
  ) => api.call('agentTasks', { query: { node_id: node, ...query }, headers });

  test('an unknown node gets 404, a missing node_id 422', async () => {
    expect((await poll('nobody')).status).toBe(404);
    expect(rulesOf(await api.call('agentTasks', {}))).toEqual(['node_id:required']);
    expect(rulesOf(await poll('x', { wait: 301 }))).toEqual(['wait:maximum']);
    expect((await poll('nobody', { wait: 300 })).status).toBe(404);
    expect(rulesOf(await poll('x', { wait: -1 }))).toEqual(['wait:minimum']);
  });
  test('without `wait` the answer is immediate, and repeating the request changes nothing', async () => {
    const other = await createApi();
    const node = await register(other);
    expect((await other.call('agentTasks', { query: { node_id: node } })).text).toBe('[]');
    await other.close();
    const { builder, task, deployment } = await withBuild(await fresh());
    const ask = () => current.call('agentTasks', { query: { node_id: builder } });
    const [first, second] = [await ask(), await ask()];
    expect(first.text).toBe(second.text);
    expect(JSON.parse(first.text)).toMatchObject([
      {
        id: task,
        kind: 'build',
        status: 'pending',
        node_id: builder,
        deployment_id: deployment,
        attempt: 0,
        cancel_requested: false,
        payload: { branch: 'main', image_repository: 'registry.test:5000/shop' },
      },
    ]);
    expect(first.text).not.toContain('lease');
    await current.close();
  });
  test('an empty list is held until there is a task', async () => {
    const held = await createApi();
    const node = await register(held);
    const project = await createProject(held);
    const waiting = held.call('agentTasks', { query: { node_id: node, wait: 30 } });
    await tick(held, await deploy(held, project));
    expect(JSON.parse((await waiting).text)).toHaveLength(1);
    await held.close();
  });
  test('after `wait` seconds the empty list is returned', async () => {
    const node = await register(api, { hostname: 'idle' });
    const started = performance.now();
    expect((await poll(node, { wait: 0.3 })).text).toBe('[]');
    expect(performance.now() - started).toBeGreaterThan(280);
  });
  test('with If-None-Match the request is held while the list has this ETag: 200 after a change, else 304', async () => {
    const held = await createApi();
    const { builder, task } = await withBuild(held);
    const ask = (wait: number, etag: string) =>
      held.call('agentTasks', {
        query: { node_id: builder, wait },
        headers: { 'if-none-match': etag },
      });
    const { etag } = (await held.call('agentTasks', { query: { node_id: builder } })).headers as {
      etag: string;
    };
    expect(
      (
        await held.call('agentTasks', {
          query: { node_id: builder, wait: 20 },
          headers: { 'if-none-match': '"other"' },
        })
      ).status,
    ).toBe(200);
    expect(
      (
        await held.call('agentTasks', {
          query: { node_id: builder },
          headers: { 'if-none-match': etag },
        })
      ).status,
    ).toBe(304);
    const still = await ask(0.2, etag);
    expect([still.status, still.text, still.headers['etag']]).toEqual([304, '', etag]);
    const waiting = ask(20, etag);
    await held.call('agentStart', { params: { id: task } });
    // The claim changes the list and notifies the held request.
    const moved = await waiting;
    expect([moved.status, moved.headers['etag'] === etag]).toEqual([200, false]);
    await held.close();
  });
  test('the answer to a registration names the open tasks, so an agent notices what its held request missed', async () => {
    const { builder, task } = await withBuild(await fresh());
    const said = async () => {
      await current.stores.tasks.openByNode();
      return (await current.call('agentRegister', { body: NODE })).json['open_tasks'];
    };
    const listed = async () =>
      openTasksText(
        (await current.call('agentTasks', { query: { node_id: builder } }))
          .json as unknown as readonly Task[],
      );
    expect((await current.call('agentRegister', { body: NODE })).json).not.toHaveProperty(
      'open_tasks',
    );
    const told = [await said()];
    expect(told).toEqual([await listed()]);
    const claim = await current.call('agentStart', { params: { id: task } });
    told.push(await said());
    expect(told[1]).toBe(await listed());
    const report = {
      params: { id: task },
      body: { status: 'failed', result: 'x' },
      ...lease(String(claim.json['lease_token'])),
    };
    expect((await current.call('agentComplete', report)).status).toBe(200);
    told.push(await said());
    expect(told[2]).toBe('');
    expect(new Set(told).size).toBe(3);
    await current.close();
  });
  test('closing the server answers held requests at once', async () => {
    const closing = await createApi();
    const node = await register(closing);
    const waiting = closing.call('agentTasks', { query: { node_id: node, wait: 50 } });
    await closing.call('healthz');
    await closing.close();
    expect((await waiting).text).toBe('[]');
  });
});

describe('the life of a task', () => {
  test('start, renew, logs, complete; a repeated report gets the same answer', async () => {
    const { builder, task, deployment } = await withBuild(await fresh());
    const claim = await current.call('agentStart', { params: { id: task } });
    expect(claim.json['attempt']).toBe(1);
    const token = claim.json['lease_token'] as string;
    expect(token.length).toBeGreaterThan(30);
    expect(Date.parse(claim.json['lease_expires_at'] as string)).toBeGreaterThan(Date.now());

    const renewed = await current.call('agentRenew', { params: { id: task }, ...lease(token) });
    expect(renewed.json['cancel_requested']).toBe(false);

    const lines = [
      { stream: 'stdout', text: 'hello', step: 'clone' },
      { stream: 'stderr', text: 'a\u0000b', at: '2026-01-01T00:00:00Z' },
    ];
    const log = (first: number) =>
      current.call('agentLogs', { params: { id: task }, body: { first, lines }, ...lease(token) });
    expect((await log(0)).json).toEqual({ stored: 2 });
    expect((await log(0)).json).toEqual({ stored: 0 });
    const stored = await current.call('deploymentLogs', { params: { id: deployment } });
    expect(
      (stored.json['lines'] as { text: string; step: string | null }[]).map((l) => [
        l.step,
        l.text,
      ]),
    ).toEqual([
      ['clone', 'hello'],
      [null, 'a\ufffdb'],
    ]);

    const report = {
      status: 'completed',
      result: { seconds: 3 },
      image_tag: `registry.test:5000/shop:${sha('c')}`,
      image_digest: `sha256:${'a'.repeat(64)}`,
      commit: sha('c'),
    };
    const complete = (body: unknown, headers = lease(token)) =>
      current.call('agentComplete', { params: { id: task }, body, ...headers });
    expect((await complete(report)).json).toEqual({ status: 'completed' });
    expect((await complete(report)).json).toEqual({ status: 'completed' });
    const differing = await complete({ ...report, image_tag: 'x:y' });
    expect([differing.status, differing.json['code']]).toEqual([409, 'task_over']);
    const strange = await complete(report, lease('another'));
    expect([strange.status, strange.json['code']]).toEqual([409, 'stale_lease']);
    // The last lines may arrive after the report.
    expect((await log(2)).status).toBe(200);
    const built = await current.call('getDeployment', { params: { id: deployment } });
    expect(built.json).toMatchObject({
      commit: sha('c'),
      image_tag: report.image_tag,
      image_digest: report.image_digest,
    });
    expect(
      JSON.parse((await current.call('agentTasks', { query: { node_id: builder } })).text),
    ).toEqual([]);
    await current.close();
  });

  test('a second claim voids the first lease everywhere', async () => {
    const { task, deployment } = await withBuild(await fresh());
    const first = (await current.call('agentStart', { params: { id: task } })).json[
      'lease_token'
    ] as string;
    const second = await current.call('agentStart', { params: { id: task } });
    expect(second.json['attempt']).toBe(2);
    const stale = [
      await current.call('agentRenew', { params: { id: task }, ...lease(first) }),
      await current.call('agentLogs', {
        params: { id: task },
        body: { lines: [] },
        ...lease(first),
      }),
      await current.call('agentComplete', {
        params: { id: task },
        body: { status: 'failed' },
        ...lease(first),
      }),
      await current.call('agentComplete', { params: { id: task }, body: { status: 'failed' } }),
    ];
    for (const reply of stale)
      expect([reply.status, reply.json['code']]).toEqual([409, 'stale_lease']);
    expect(
      (await current.call('getDeployment', { params: { id: deployment } })).json['status'],
    ).toBe('building');
    await current.close();
  });

  test('facts of a build are shown while it goes on, outlast its lost lease, and only its holder may send them', async () => {
    const { task, deployment } = await withBuild(await fresh());
    const token = (await current.call('agentStart', { params: { id: task } })).json[
      'lease_token'
    ] as string;
    const learned = { commit: sha('c'), commit_message: 'Break the build', commit_author: 'Ada' };
    const send = (by: string, facts: object = learned) =>
      current.call('agentProgress', {
        params: { id: task },
        body: { datasets: [], learned: facts },
        ...lease(by),
      });
    expect((await send('another')).json['code']).toBe('stale_lease');
    expect((await send(token, { commit: 'x' })).status).toBe(422);
    const key = {
      host: 'git.example.com',
      key_type: 'ssh-ed25519',
      fingerprint: `SHA256:${'a'.repeat(43)}`,
    };
    expect((await send(token, { ...learned, host_keys: [key] })).status).toBe(200);
    const shown = () => current.call('getDeployment', { params: { id: deployment } });
    expect((await shown()).json).toMatchObject({ status: 'building', ...learned, progress: null });
    expect(await current.stores.gitHosts.of(key.host)).toMatchObject([
      { fingerprint: key.fingerprint },
    ]);

    const lost = await current.stores.tasks.get(task);
    await current.driver.advance(deployment, {
      type: 'task_lost',
      task: { ...lost, wall_deadline_at: 0 },
      why: 'lease',
    });
    await current.call('cancelDeployment', { params: { id: deployment } });
    expect((await shown()).json).toMatchObject(learned);
    await current.close();
  });

  test('a cancelled task is announced at the next renewal and settles when the agent reports', async () => {
    const { task, deployment } = await withBuild(await fresh());
    const token = (await current.call('agentStart', { params: { id: task } })).json[
      'lease_token'
    ] as string;
    const cancel = await current.call('cancelDeployment', { params: { id: deployment } });
    expect(cancel.json).toMatchObject({ status: 'building', cancel_requested: true });
    expect(
      (await current.call('agentRenew', { params: { id: task }, ...lease(token) })).json[
        'cancel_requested'
      ],
    ).toBe(true);
    await current.call('agentComplete', {
      params: { id: task },
      body: { status: 'failed', result: { error: { code: 'cancelled', message: 'stopped' } } },
      ...lease(token),
    });
    expect(
      (await current.call('getDeployment', { params: { id: deployment } })).json['status'],
    ).toBe('cancelled');
    await current.close();
  });

  test('a contract-only agent reports without a claim', async () => {
    const { task } = await withBuild(await fresh());
    const reply = await current.call('agentComplete', {
      params: { id: task },
      body: { status: 'completed', result: 'ok', image_tag: `registry.test:5000/shop:${sha('c')}` },
    });
    expect(reply.json).toEqual({ status: 'completed' });
    await current.close();
  });

  test('without X-Lease-Token neither renew nor logs is accepted', async () => {
    const { task } = await withBuild(await fresh());
    expect(rulesOf(await current.call('agentRenew', { params: { id: task } }))).toEqual([
      'X-Lease-Token:required',
    ]);
    expect(
      rulesOf(await current.call('agentLogs', { params: { id: task }, body: { lines: [] } })),
    ).toEqual(['X-Lease-Token:required']);
    await current.close();
  });

  test.each([
    [{}, 'status:required'],
    [{ status: 'done' }, 'status:enum'],
    [{ status: 'completed' }, 'image_tag:required'],
    [{ status: 'completed', image_tag: 5 }, 'image_tag:type'],
    // A node would run these: an option of docker, another registry, another project, and no tag.
    ...[
      '--privileged',
      'evil.invalid/x:y',
      'registry.test:5000/vault:1',
      'registry.test:5000/shop/x:1',
      'registry.test:5000/shop:1 --x',
    ].map((image_tag): [object, string] => [
      { status: 'completed', image_tag },
      'image_tag:repository',
    ]),
    ...[
      'registry.test:5000/shop',
      'registry.test:5000/shop:',
      'registry.test:5000/shop:-x',
      `registry.test:5000/shop:${'x'.repeat(129)}`,
    ].map((image_tag): [object, string] => [
      { status: 'completed', image_tag },
      'image_tag:repository',
    ]),
    [{ status: 'completed', image_tag: 'x', image_digest: 'sha256:x' }, 'image_digest:digest'],
    [{ status: 'failed', result: 7 }, 'result:type'],
    [{ status: 'failed', result: { error: { code: 'x' } } }, 'result.error.message:required'],
    [{ status: 'failed', host_port: 70_000 }, 'host_port:maximum'],
  ])('the report %j is 422: %s', async (body, rule) => {
    const { task, deployment } = await withBuild(await fresh());
    const reply = await current.call('agentComplete', { params: { id: task }, body });
    expect([reply.status, rulesOf(reply)]).toEqual([422, [rule]]);
    expect(
      (await current.call('getDeployment', { params: { id: deployment } })).json['status'],
    ).toBe('building');
    await current.close();
  });

  test('an unknown task gets 404', async () => {
    for (const [name, input] of [
      ['agentStart', {}],
      ['agentRenew', lease('x')],
      ['agentLogs', { body: { lines: [] }, ...lease('x') }],
      ['agentComplete', { body: { status: 'failed' } }],
    ] as const) {
      expect((await api.call(name, { params: { id: 'nobody' }, ...input })).status).toBe(404);
    }
  });
});

describe('nodes', () => {
  test('are cordoned and uncordoned', async () => {
    const id = await register(api, { hostname: 'steered' });
    expect((await api.call('cordonNode', { params: { id } })).json['schedulable']).toBe(false);
    expect((await api.call('uncordonNode', { params: { id } })).json['schedulable']).toBe(true);
    expect((await api.call('listNodes')).text).toContain('steered');
    expect((await api.call('cordonNode', { params: { id: 'nobody' } })).status).toBe(404);
  });
  test('DELETE first marks the node as deleting; with force it is removed at once', async () => {
    const id = await register(api, { hostname: 'leaving' });
    const reply = await api.call('deleteNode', { params: { id } });
    expect([reply.status, reply.json['deleting']]).toEqual([202, true]);
    expect((await api.call('uncordonNode', { params: { id } })).json['code']).toBe('being_deleted');
    expect(
      rulesOf(await api.call('deleteNode', { params: { id }, query: { force: 'yes' } })),
    ).toEqual(['force:type']);
    expect((await api.call('deleteNode', { params: { id }, query: { force: true } })).status).toBe(
      202,
    );
    expect((await api.call('getNode', { params: { id } })).status).toBe(404);
  });
});
