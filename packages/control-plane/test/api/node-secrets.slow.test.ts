/**
 * The secret of a node: which agent gets it, what it authorizes, and what happens when it is lost.
 */
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import {
  AGENT_SECRET,
  type Api,
  createApi,
  createProject,
  deploy,
  type Input,
  NODE,
  onceOnly,
  type Reply,
  tick,
} from './harness.ts';

const DAY = 86_400_000;
const CAN = { ...NODE, capabilities: ['node_secret'] };
const secret = (text: string): Input => ({ as: null, headers: { 'x-agent-secret': text } });

async function start(env: Record<string, string> = {}): Promise<Api> {
  const api = await createApi({ env });
  onTestFinished(() => api.close());
  return api;
}
const enter = (api: Api, body: object, by = AGENT_SECRET): Promise<Reply> =>
  api.call('agentRegister', { body, ...secret(by) });
const outcome = ({ status, json }: Reply) => [status, json['code']];
const REFUSED = [401, 'agent_secret'];

/** Registers a node whose agent has received its secret and used it. */
async function joined(api: Api, given: object = {}): Promise<{ id: string; own: string }> {
  const first = await enter(api, { ...CAN, ...given });
  const own = String(first.json['node_secret']);
  expect((await enter(api, { ...CAN, ...given }, own)).status).toBe(200);
  return { id: String(first.json['id']), own };
}

describe('the secret of a node', () => {
  test('is issued once to an agent that requests it; AGENT_SECRET then no longer works for this node', async () => {
    const api = await start();
    const { id, own } = await joined(api);
    expect(own).toMatch(new RegExp(`^berthnode_${id}_[\\w-]{43}$`));
    expect((await enter(api, CAN, own)).json['node_secret']).toBeUndefined();
    for (const boot_id of ['b1', 'b2'])
      expect(outcome(await enter(api, { ...CAN, boot_id, host_ip: '6.6.6.6' }))).toEqual(REFUSED);
    expect(outcome(await api.call('agentTasks', { query: { node_id: id } }))).toEqual(REFUSED);
    expect((await api.call('agentTasks', { query: { node_id: id }, ...secret(own) })).status).toBe(
      200,
    );
    expect((await api.call('agentConfig', secret(own))).status).toBe(200);
    expect((await api.call('getNode', { params: { id } })).json).toMatchObject({
      has_secret: true,
      host_ip: NODE.host_ip,
    });
  });

  test('is never shown and stored as a hash', async () => {
    const api = await start();
    const { id, own } = await joined(api);
    for (const name of ['getNode', 'listNodes', 'audit', 'metrics', 'readyz'] as const)
      expect((await api.call(name, { params: { id } })).text).not.toContain(own);
    expect(JSON.stringify(await api.stores.nodes.get(id))).not.toContain(own);
  });

  test('an agent that does not request one continues with AGENT_SECRET, from any address', async () => {
    const api = await start();
    const first = await enter(api, NODE);
    expect(first.json).toMatchObject({ has_secret: false });
    expect(first.json['node_secret']).toBeUndefined();
    const moved = await enter(api, { ...NODE, host_ip: '10.0.0.99' });
    expect(moved.json).toMatchObject({ id: first.json['id'], host_ip: '10.0.0.99' });
    expect(
      (await api.call('agentTasks', { query: { node_id: String(first.json['id']) } })).status,
    ).toBe(200);
  });

  test('if the answer was lost, the same process gets another secret, and no other process does', async () => {
    const api = await start();
    const lost = String((await enter(api, CAN)).json['node_secret']);
    expect(outcome(await enter(api, { ...CAN, boot_id: 'b2' }))).toEqual(REFUSED);
    const again = String((await enter(api, CAN)).json['node_secret']);
    expect(again).not.toBe(lost);
    expect(outcome(await enter(api, CAN, lost))).toEqual(REFUSED);
    expect((await enter(api, CAN, again)).status).toBe(200);
    expect(outcome(await enter(api, CAN))).toEqual(REFUSED);
  });

  test('a poll with the secret also proves that the agent received it', async () => {
    const api = await start();
    const first = await enter(api, CAN);
    const own = String(first.json['node_secret']);
    await api.call('agentTasks', { query: { node_id: String(first.json['id']) }, ...secret(own) });
    expect(outcome(await enter(api, CAN))).toEqual(REFUSED);
  });

  test('after a reset the old one is refused, and the next registration with AGENT_SECRET gets another one', async () => {
    const api = await start();
    const { id, own } = await joined(api);
    const held = api.call('agentTasks', { query: { node_id: id, wait: 30 }, ...secret(own) });
    const reset = await api.call('resetNodeSecret', { params: { id } });
    expect(reset.json).toMatchObject({ id, has_secret: false });
    expect(outcome(await held)).toEqual(REFUSED);
    expect(outcome(await enter(api, CAN, own))).toEqual(REFUSED);
    expect(outcome(await api.call('agentConfig', secret(own)))).toEqual(REFUSED);
    const next = await enter(api, { ...CAN, boot_id: 'b9' });
    expect(next.json).toMatchObject({ id, has_secret: true });
    expect(
      (await enter(api, { ...CAN, boot_id: 'b9' }, String(next.json['node_secret']))).status,
    ).toBe(200);
    expect((await api.call('resetNodeSecret', { params: { id }, as: 'developer' })).status).toBe(
      403,
    );
    expect((await api.call('resetNodeSecret', { params: { id: 'nobody' } })).status).toBe(404);
  });

  test('a node that was silent for long is deleted with its secret; it joins again with AGENT_SECRET or a token', async () => {
    const api = await start();
    const { id, own } = await joined(api);
    const forgotten = async (days: number, keepDays: number): Promise<string[]> => {
      const at = Date.now() + days * DAY;
      const pass = await api.stores.retention.begin(
        { deployments: 1, ms: keepDays * DAY, logBytes: 1 },
        () => at,
      );
      for (;;) {
        const step = await pass.next();
        if (step.done === true) return step.value.nodes;
      }
    };
    // The secret is kept long enough even if KEEP_DEPLOYMENT_DAYS is short: the agent may have no
    // other credential.
    expect(await forgotten(89, 1)).toEqual([]);
    expect(await forgotten(91, 120)).toEqual([]);
    expect(await forgotten(91, 90)).toEqual(['builder:worker-1']);
    expect(outcome(await enter(api, CAN, own))).toEqual(REFUSED);
    expect(
      outcome(await api.call('agentTasks', { query: { node_id: id }, ...secret(own) })),
    ).toEqual(REFUSED);
    const next = await enter(api, CAN);
    expect(next.json).toMatchObject({ has_secret: true });
    expect(next.json['id']).not.toBe(id);
  });

  test('keeps the identity of the node with another address and name; both changes are recorded', async () => {
    const api = await start();
    const { id, own } = await joined(api);
    const renamed = await enter(
      api,
      { ...CAN, hostname: 'worker-new', host_ip: '10.0.0.8', boot_id: 'b2' },
      own,
    );
    expect(renamed.json).toMatchObject({ id, hostname: 'worker-new', host_ip: '10.0.0.8' });
    expect((await api.call('listNodes')).json['items']).toHaveLength(1);
    const recorded = async (): Promise<string[]> => {
      const { items } = (await api.call('audit')).json as {
        items: { action: string; target: string; via: string }[];
      };
      const ofNode = items.filter((e) => e.target === id && e.via === 'agent');
      return ofNode.map((e) => e.action).sort();
    };
    // The entries are written after the answer.
    await expect
      .poll(recorded, { timeout: 10_000 })
      .toEqual(['node.moved', 'node.registered', 'node.renamed', 'node.secret_given']);
    expect((await api.call('metrics')).text).toMatch(/berth_node_changes_total\{kind="moved"\} 1/);
    // The old name can be used again.
    expect((await enter(api, { ...NODE, boot_id: 'other' })).json['id']).not.toBe(id);
  });

  test('a name that another node has cannot be taken; the renamed node continues under its old name', async () => {
    const api = await start();
    const { id, own } = await joined(api);
    await enter(api, { ...NODE, hostname: 'taken' });
    expect((await enter(api, { ...CAN, hostname: 'taken' }, own)).json).toMatchObject({
      id,
      hostname: NODE.hostname,
    });
    expect((await api.call('metrics')).text).toMatch(
      /berth_node_changes_total\{kind="name_taken"\} 1/,
    );
  });

  test('is valid only for its role and its own tasks', async () => {
    const api = await start();
    const builder = await joined(api);
    const other = await joined(api, { hostname: 'worker-2', role: 'deploy', boot_id: 'c1' });
    expect(outcome(await enter(api, { ...CAN, role: 'deploy' }, builder.own))).toEqual(REFUSED);
    await tick(api, await deploy(api, await createProject(api)));
    const [task] = (
      await api.call('agentTasks', { query: { node_id: builder.id }, ...secret(builder.own) })
    ).json as unknown as {
      id: string;
    }[];
    const params = { id: task?.id ?? '' };
    const lease = { 'x-lease-token': 'x' };
    const asked = [
      ['agentStart', {}],
      ['agentRenew', {}],
      ['agentLogs', { body: { lines: [] } }],
      ['agentProgress', { body: { datasets: [] } }],
      ['agentConfigFile', { body: { file: 'berth.toml', text: '' } }],
      ['agentComplete', { body: { status: 'failed', result: {} } }],
    ] as const;
    for (const by of [other.own, AGENT_SECRET])
      for (const [name, more] of asked) {
        const reply = await api.call(name, {
          params,
          ...more,
          as: null,
          headers: { ...lease, 'x-agent-secret': by },
        });
        expect([name, ...outcome(reply)]).toEqual([name, ...REFUSED]);
      }
    expect(
      outcome(
        await api.call('agentTasks', { query: { node_id: builder.id }, ...secret(other.own) }),
      ),
    ).toEqual(REFUSED);
    const claim = await api.call('agentStart', { params, ...secret(builder.own) });
    expect(claim.json).toMatchObject({ attempt: 1 });
  });

  test('is not issued without AGENT_SECRET, because every agent is accepted', async () => {
    const api = await createApi({ env: { AGENT_SECRET: undefined } });
    onTestFinished(() => api.close());
    const first = await api.call('agentRegister', { body: CAN, as: null });
    expect(first.json['node_secret']).toBeUndefined();
    expect(
      (await api.call('agentRegister', { body: { ...CAN, boot_id: 'b2' }, as: null })).status,
    ).toBe(200);
  });

  test('is refused if the node was deleted; with AGENT_SECRET the agent registers as a new node', async () => {
    const api = await start();
    const { id, own } = await joined(api);
    await api.call('deleteNode', { params: { id }, query: { force: true } });
    expect(outcome(await enter(api, CAN, own))).toEqual(REFUSED);
    const back = await enter(api, CAN);
    expect(back.json).toMatchObject({ has_secret: true });
    expect(back.json['id']).not.toBe(id);
  });
});

onceOnly.describe('wrong secrets', () => {
  test('many from one address get 429 with Retry-After; right secrets from there and from other addresses work', async () => {
    const api = await start();
    const { id, own } = await joined(api);
    const wrong = [
      'guess',
      `${own.slice(0, -1)}${own.endsWith('A') ? 'B' : 'A'}`,
      `berthjoin_${id}_${'A'.repeat(43)}`,
    ];
    const statuses: number[] = [];
    for (let i = 0; i < 300; i++) statuses.push((await enter(api, CAN, wrong[i % 3])).status);
    expect(statuses.filter((s) => s === 401)).toHaveLength(100);
    expect(statuses.filter((s) => s === 429)).toHaveLength(200);
    const limited = await enter(api, CAN, 'guess');
    expect(limited.json['code']).toBe('too_many_attempts');
    expect(Number(limited.headers['retry-after'])).toBeGreaterThan(0);
    expect((await enter(api, CAN, own)).status).toBe(200);
    expect((await api.call('agentConfig')).status).toBe(200);
    api.pass(60_001);
    expect((await enter(api, CAN, 'guess')).status).toBe(401);
  });
});

describe('two machines under one name', () => {
  const a = { ...NODE, boot_id: 'a', host_ip: '10.0.0.1' };
  const b = { ...NODE, boot_id: 'b', host_ip: '10.0.0.2' };

  test('the first one stays, the other one gets 409, and both are shown', async () => {
    const api = await start();
    const id = String((await enter(api, a)).json['id']);
    for (const [body, status] of [
      [b, 409],
      [a, 200],
      [a, 200],
      [b, 409],
      [a, 200],
      [b, 409],
    ] as const) {
      api.pass(10_000);
      const reply = await enter(api, body);
      expect(reply.status).toBe(status);
      if (status === 409) expect(reply.json['code']).toBe('node_doubled');
    }
    expect((await api.call('getNode', { params: { id } })).json).toMatchObject({
      host_ip: '10.0.0.1',
      doubled: { host_ip: '10.0.0.2', why: 'boot' },
    });
    expect((await api.call('readyz')).json['notes']).toContain(
      '1 node name: a second machine tries to register and is refused: berth status names them',
    );
    // When the first machine is silent, the second one gets the name with a new node. The first one
    // keeps its node and all that is on it.
    api.pass(121_000);
    const second = (await enter(api, b)).json;
    expect(second).toMatchObject({ hostname: 'worker-1', host_ip: '10.0.0.2', doubled: null });
    expect(second['id']).not.toBe(id);
    const away = { id, hostname: 'worker-1~10.0.0.1', host_ip: '10.0.0.1' };
    expect((await api.call('getNode', { params: { id } })).json).toMatchObject({
      ...away,
      status: 'offline',
    });
    expect((await api.call('getNode', { params: { id: 'worker-1~10.0.0.1' } })).json).toMatchObject(
      away,
    );
    expect((await enter(api, a)).json).toMatchObject({ ...away, status: 'online', doubled: null });
    const audit = (await api.call('audit')).json['items'] as { action: string; target: string }[];
    expect(audit).toContainEqual(expect.objectContaining({ action: 'node.renamed', target: id }));
  });

  test('/readyz, which is public, reads doubled nodes only once in some seconds', async () => {
    const api = await start();
    const looks = vi.spyOn(api.stores.nodes, 'listDoubled');
    for (let i = 0; i < 20; i++) await api.call('readyz');
    await Promise.all(Array.from({ length: 20 }, () => api.call('readyz')));
    expect(looks.mock.calls.length).toBeLessThanOrEqual(2);
  });

  test('a copied disk with the secret of the node is refused too', async () => {
    const api = await start();
    const { own } = await joined(api, { ...a });
    const can = { capabilities: ['node_secret'] };
    const statuses: number[] = [];
    for (const body of [b, a, a, b])
      statuses.push((await enter(api, { ...body, ...can }, own)).status);
    expect(statuses).toEqual([200, 200, 200, 409]);
  });

  test('an agent that restarts within seconds is accepted each time', async () => {
    const api = await start();
    const { own } = await joined(api);
    for (const boot_id of ['r1', 'r2', 'r3', 'r4']) {
      api.pass(1_000);
      expect((await enter(api, { ...CAN, boot_id }, own)).json).toMatchObject({ doubled: null });
      expect((await enter(api, { ...CAN, boot_id }, own)).status).toBe(200);
    }
    for (const boot_id of ['s1', 's2', 's3'])
      expect((await enter(api, { ...NODE, hostname: 'plain', boot_id })).status).toBe(200);
  });

  test('a machine without the secret of the node is shown too', async () => {
    const api = await start();
    const { id, own } = await joined(api);
    await enter(api, { ...b, capabilities: ['node_secret'] });
    expect((await api.call('getNode', { params: { id } })).json).toMatchObject({
      doubled: { host_ip: '10.0.0.2', why: 'secret' },
    });
    // An earlier second machine that is gone does not hide it.
    const twin = { ...CAN, boot_id: 'twin', host_ip: '10.0.0.3' };
    for (const body of [twin, CAN, CAN, twin]) await enter(api, body, own);
    await enter(api, { ...b, capabilities: ['node_secret'] });
    expect((await api.call('getNode', { params: { id } })).json).toMatchObject({
      doubled: { host_ip: '10.0.0.3', why: 'boot' },
    });
    api.pass(60_000);
    await enter(api, { ...b, capabilities: ['node_secret'] });
    expect((await api.call('getNode', { params: { id } })).json).toMatchObject({
      doubled: { host_ip: '10.0.0.2', why: 'secret' },
    });
    await api.call('resetNodeSecret', { params: { id } });
    expect((await enter(api, { ...b, capabilities: ['node_secret'] })).json).toMatchObject({
      id,
      doubled: null,
    });
  });
});
