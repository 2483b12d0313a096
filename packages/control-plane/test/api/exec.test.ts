/** Exec sessions through the API. The test plays the client and the agent. */
import {
  type AgentOrder,
  CAN_EXEC,
  EXEC_ALLOWED,
  EXEC_CHANNELS,
  EXEC_HEADER,
  EXEC_PROTOCOL,
  execFrame,
} from '@berth/wire/exec';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createWorld, type World } from './deployed.ts';
import {
  closeSockets,
  idOf,
  open,
  openAgent,
  openClient,
  type Socket,
  until,
} from './exec-sockets.ts';
import type { ExecLimits } from '../../src/api/exec/sessions.ts';
import {
  type Api,
  claimsOf,
  createApi,
  createProject,
  deploy,
  register,
  rulesOf,
  tick,
} from './harness.ts';

let api: Api;
let base: string;
let world: World;
let project: string;
const COMMAND = { command: ['psql', '-c', 'select 1'] };
const CAPABLE = { agent_version: '0.3.0', capabilities: [CAN_EXEC, EXEC_ALLOWED] };

/** Starts a control plane with a project that serves from the container c1. */
async function begin(execLimits: Partial<ExecLimits>): Promise<void> {
  api = await createApi({ overrides: { execLimits } });
  base = await api.listen();
  world = await createWorld(api);
  project = await createProject(api);
  expect((await patch({ allow_exec: true })).status).toBe(200);
  const d = await deploy(api, project);
  await tick(api, d);
  await world.built();
  await tick(api, d);
  await world.work(world.home, { host_port: 32_001, container_id: 'c1' });
  const confirmed = { type: 'route_confirmed', host_ip: '10.0.0.7', host_port: 32_001 } as const;
  await api.driver.advance(d, confirmed);
  await world.work(world.home, {});
  await observed(CAPABLE);
}
beforeEach(() => begin({ checkMs: 20 }), 60_000);
afterEach(async () => {
  closeSockets();
  await api.close();
});

/** The node reports the container of the running version. */
async function observed(agent: object): Promise<void> {
  const d = await running();
  await register(api, {
    hostname: 'node-1',
    role: 'deploy',
    containers: [
      {
        id: 'c1',
        name: 'svc-shop',
        state: 'running',
        host_port: 32_001,
        labels: { 'berth.deployment': d, 'berth.project': project, 'berth.node': world.home },
      },
    ],
    ...agent,
  });
}
const running = async (): Promise<string> =>
  String((await api.call('getProject', { params: { id: project } })).json['running_deployment_id']);
const exec = (over: object = {}, as: 'admin' | 'developer' | 'viewer' = 'admin') =>
  api.call('execProject', { params: { id: project }, body: { ...COMMAND, ...over }, as });
const patch = (body: object) =>
  api.call('patchProject', { params: { id: project }, body, as: 'admin' });

const clientOf = (ticket: Record<string, unknown>, headers: Record<string, string> = {}) =>
  openClient(base, ticket, headers);
const agentOf = (id: string) => openAgent(base, id);
/** Opens both ends. */
async function session(over: object = {}): Promise<{ client: Socket; agent: Socket; id: string }> {
  const { json } = await exec(over);
  const client = (await clientOf(json)) as Socket;
  const agent = (await agentOf(idOf(json))) as Socket;
  await until(() => agent.texts.length > 0, 'the order');
  return { client, agent, id: idOf(json) };
}
const auditOf = async (action: string) =>
  (await api.call('audit', { query: { action } })).json['items'] as Record<string, unknown>[];

describe('a session', () => {
  it('calls the agent by its poll, and passes bytes, sizes and the exit code between both ends', async () => {
    const { json, status } = await exec({ tty: true, rows: 24, cols: 80 });
    expect(status).toBe(201);
    expect(json['url']).toBe(`ws://berth.localhost:8000/api/exec/${idOf(json)}`);
    const poll = api.call('agentTasks', { query: { node_id: world.home, wait: 20 } });
    const client = (await clientOf(json)) as Socket;
    expect((await poll).headers[EXEC_HEADER]).toBe(idOf(json));

    // Input that is there before the agent is not lost.
    client.socket.send(execFrame(EXEC_CHANNELS.stdin, Buffer.from('early')));
    const agent = (await agentOf(idOf(json))) as Socket;
    await until(() => agent.data.length > 0, 'the input');
    expect(agent.texts[0]).toEqual({
      type: 'start',
      kind: 'exec',
      container: 'c1',
      ...COMMAND,
      tty: true,
      rows: 24,
      cols: 80,
    } satisfies AgentOrder);
    expect(agent.data).toEqual([[EXEC_CHANNELS.stdin, 'early']]);

    client.socket.send('{"type":"resize","rows":50,"cols":120}');
    client.socket.send('{"type":"eof"}');
    // A client cannot give orders to the agent.
    client.socket.send('{"type":"start","container":"other"}');
    agent.socket.send('{"type":"ready"}');
    agent.socket.send(execFrame(EXEC_CHANNELS.stdout, Buffer.from('one')));
    agent.socket.send(execFrame(EXEC_CHANNELS.stderr, Buffer.from('two')));
    agent.socket.send('{"type":"exit","code":3}');
    await Promise.all([client.closed, agent.closed]);
    expect(client.data).toEqual([
      [EXEC_CHANNELS.stdout, 'one'],
      [EXEC_CHANNELS.stderr, 'two'],
    ]);
    expect(client.texts).toEqual([{ type: 'ready' }, { type: 'exit', code: 3 }]);
    expect(agent.texts.slice(1)).toEqual([
      { type: 'resize', rows: 50, cols: 120 },
      { type: 'eof' },
    ]);
    await until(async () => (await auditOf('execEnd')).length > 0, 'the audit entry');
    const [end] = await auditOf('execEnd');
    expect(end).toMatchObject({ user: 'admin@example.com', target: project, outcome: 'done' });
    expect(end?.['detail']).toMatch(
      /^exit 3; 5 bytes in, 6 bytes out, \d+ s; shop, web 1 on node-1: \["psql","-c","select 1"\]$/,
    );
    const [begin] = await auditOf('execProject');
    expect(begin?.['detail']).toBe('shop, web 1 on node-1: ["psql","-c","select 1"]');
    expect(JSON.stringify(await auditOf('execEnd'))).not.toContain('early');
    // The next poll names no session.
    const next = await api.call('agentTasks', { query: { node_id: world.home } });
    expect(next.headers[EXEC_HEADER]).toBeUndefined();
  });

  it.each([256, -1, 1e300, '0', null])('the exit code %j of an agent is none', async (code) => {
    const { client, agent } = await session();
    agent.socket.send(JSON.stringify({ type: 'exit', code }));
    await client.closed;
    expect(client.texts).toEqual([
      { type: 'error', message: 'the agent reported no valid exit code' },
    ]);
  });

  it('ends with a sentence when its agent leaves, and the agent sees that its client left', async () => {
    const one = await session();
    one.agent.socket.terminate();
    await one.client.closed;
    expect(one.client.texts).toEqual([
      { type: 'error', message: expect.stringContaining('the agent of the node left') as string },
    ]);
    const two = await session();
    two.client.socket.terminate();
    await two.agent.closed;
    await until(async () => (await auditOf('execEnd')).length === 2, 'the audit entries');
    const [left, failed] = await auditOf('execEnd');
    expect(left?.['detail']).toContain('the client left');
    expect(failed).toMatchObject({ outcome: 'failed' });
  });

  it('ends when the control plane stops, when the project is switched off, and with the session of its user', async () => {
    const switchedOff = await session();
    await patch({ allow_exec: false });
    await switchedOff.client.closed;
    expect(switchedOff.client.texts[0]?.['message']).toContain('does not allow exec');
    await patch({ allow_exec: true });

    const signedOut = await session();
    await api.stores.apiSessions.end(claimsOf(api.token('admin')).sid);
    await signedOut.client.closed;
    expect(signedOut.client.texts[0]?.['message']).toContain('you are signed out');
    await api.signIn('admin');

    const stopped = await session();
    await api.close();
    await stopped.client.closed;
    expect(stopped.client.texts[0]?.['message']).toContain('the control plane stops');
    await begin({});
  });
});

describe('limits', () => {
  it('ends a session without bytes, and one whose agent does not come', async () => {
    await api.close();
    await begin({ idleMs: 200, agentMs: 150, checkMs: 20 });
    const idle = await session();
    await idle.client.closed;
    expect(idle.client.texts[0]?.['message']).toContain('without a byte');
    const alone = (await clientOf((await exec()).json)) as Socket;
    await alone.closed;
    expect(alone.texts[0]?.['message']).toContain('the agent of node-1 did not connect');
  });

  it('refuses more sessions of one person than the limit', async () => {
    await api.close();
    await begin({ mostOfUser: 1 });
    await session();
    expect(await exec()).toMatchObject({ status: 429, json: { code: 'too_many_requests' } });
  });
});

describe('a ticket', () => {
  it('opens one session, within 30 s, for its user and from a page of Berth only', async () => {
    const { json } = await exec();
    expect(await clientOf({ ...json, ticket: 'wrong' })).toEqual({
      status: 401,
      code: 'unauthenticated',
    });
    const evil = { origin: 'https://evil.example.com' };
    expect(await clientOf(json, evil)).toEqual({ status: 403, code: 'forbidden' });
    const project = { origin: 'http://shop.berth.localhost:8000' };
    expect(await clientOf(json, project)).toEqual({ status: 403, code: 'forbidden' });
    const other = { authorization: `Bearer ${api.token('developer')}` };
    expect(await clientOf(json, other)).toEqual({ status: 403, code: 'forbidden' });
    const own = {
      authorization: `Bearer ${api.token('admin')}`,
      origin: 'http://berth.localhost:8000',
    };
    expect(await clientOf(json, own)).toHaveProperty('socket');
    expect(await clientOf(json)).toEqual({ status: 401, code: 'unauthenticated' });

    const late = (await exec()).json;
    api.pass(30_001);
    expect(await clientOf(late)).toEqual({ status: 401, code: 'unauthenticated' });
  });

  it('is worth nothing after the project is switched off', async () => {
    const { json } = await exec();
    await patch({ allow_exec: false });
    expect(await clientOf(json)).toEqual({ status: 409, code: 'exec_off' });
  });

  it('needs a WebSocket', async () => {
    const { json } = await exec();
    const plain = await api.call('openExec', { params: { id: idOf(json) } });
    expect(plain).toMatchObject({ status: 426, json: { code: 'upgrade_required' } });
  });
});

describe('rights', () => {
  it('are those of an admin, or of a developer if the project says so', async () => {
    expect(await exec({}, 'viewer')).toMatchObject({ status: 403 });
    expect(await exec({}, 'developer')).toMatchObject({ status: 403, json: { code: 'forbidden' } });
    const refused = await auditOf('execProject');
    expect(refused[0]).toMatchObject({ user: 'developer@example.com', outcome: 'refused' });
    await patch({ exec_role: 'developer' });
    expect(await exec({}, 'developer')).toMatchObject({ status: 201 });
    expect(await exec({}, 'viewer')).toMatchObject({ status: 403 });
    const given = { params: { id: project }, body: { allow_exec: true }, as: 'developer' } as const;
    expect(await api.call('patchProject', given)).toMatchObject({ status: 403 });
  });

  it('need the project, the node and an agent that knows sessions', async () => {
    await patch({ allow_exec: false });
    expect(await exec()).toMatchObject({ status: 409, json: { code: 'exec_off' } });
    await patch({ allow_exec: true });
    await observed({ agent_version: '0.3.0', capabilities: [CAN_EXEC] });
    const off = await exec();
    expect(off).toMatchObject({ status: 409, json: { code: 'exec_off' } });
    expect(off.json['detail']).toContain('ALLOW_EXEC=true');
    // A contract-only agent reports neither.
    await observed({});
    expect(await exec()).toMatchObject({ status: 409, json: { code: 'agent_cannot' } });
  });

  it('name the field of a wrong process, and the next step without a container', async () => {
    expect(rulesOf(await exec({ process: 'worker' }))).toEqual(['process:process']);
    expect(rulesOf(await exec({ command: [] }))).toHaveLength(1);
    const none = await exec({ instance: 2 });
    expect(none).toMatchObject({ status: 409, json: { code: 'wrong_state' } });
    expect(none.json['detail']).toContain('berth ps shop');
  });

  it('of another node do not open a session', async () => {
    const { json } = await exec();
    expect(await agentOf(idOf(json))).toEqual({ status: 404, code: 'not_found' });
    await clientOf(json);
    const wrong = open(base, `/api/agent/exec/${idOf(json)}`, [EXEC_PROTOCOL], {
      'x-agent-secret': 'x',
    });
    expect(await wrong).toEqual({ status: 401, code: 'agent_secret' });
  });
});
