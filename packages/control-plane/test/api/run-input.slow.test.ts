/** The standard input of runs through the API. The test plays the client and the agent. */
import { EXEC_CHANNELS, EXEC_HEADER, execFrame } from '@berth/wire/exec';
import type { Run } from '@berth/wire/run';
import type { RunPayload } from '@berth/wire/run-payload';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { runs } from '../../src/loops/runs.ts';
import { createWorld, type World } from './deployed.ts';
import { closeSockets, idOf, openAgent, openClient, type Socket, until } from './exec-sockets.ts';
import { type Api, createApi, createProject, register } from './harness.ts';
import { loopParts } from './loop-parts.ts';
import { claimRun, createdRun } from './run-agent.ts';

let api: Api;
let base: string;
let world: World;
let project: string;
const CAN = { agent_version: '0.3.0', capabilities: ['runs', 'run-input'] };

beforeEach(async () => {
  api = await createApi({ overrides: { execLimits: { checkMs: 20, idleMs: 100 } } });
  base = await api.listen();
  world = await createWorld(api);
  await agent(CAN);
  project = await createProject(api);
  await world.live(project);
}, 60_000);
afterEach(async () => {
  closeSockets();
  await api.close();
});

const agent = (can: object) => register(api, { hostname: 'node-1', role: 'deploy', ...can });
const create = (stdin: boolean) =>
  api.call('createRun', { params: { id: project }, body: { command: ['cat'], stdin } });
const round = () => runs(loopParts(api))(new AbortController().signal);
const input = (id: string, as?: 'admin' | 'viewer') =>
  api.call('runInput', { params: { id }, ...(as === undefined ? {} : { as }) });
const get = async (id: string): Promise<Run> =>
  (await api.call('getRun', { params: { id } })).json as unknown as Run;

/** Starts a run, and claims its task as the agent does. */
async function claimed(stdin = true): Promise<{ id: string; payload: RunPayload }> {
  const id = await createdRun(create(stdin));
  await round();
  const { task } = await claimRun(api, world.home);
  return { id, payload: task.payload };
}

it('passes bytes from the person of a running run to its agent, without ALLOW_EXEC', async () => {
  const { id, payload } = await claimed();
  expect(payload.stdin).toBe(true);
  const { json, status } = await input(id);
  expect(status).toBe(201);
  const client = (await openClient(base, json)) as Socket;
  const named = async () =>
    (await api.call('agentTasks', { query: { node_id: world.home } })).headers[EXEC_HEADER];
  await until(async () => (await named()) === idOf(json), 'its name in the answer to a poll');
  const node = (await openAgent(base, idOf(json))) as Socket;
  await until(() => node.texts.length > 0, 'the order');
  expect(node.texts).toEqual([{ type: 'start', kind: 'input', run: id }]);
  node.socket.send('{"type":"ready"}');
  client.socket.send(execFrame(EXEC_CHANNELS.stdin, Buffer.from('one')));
  client.socket.send('{"type":"eof"}');
  await until(() => node.texts.length > 1, 'the end of the input');
  expect(node.data).toEqual([[EXEC_CHANNELS.stdin, 'one']]);
  node.socket.send('{"type":"exit","code":0}');
  await client.closed;
  expect(client.texts).toEqual([{ type: 'ready' }, { type: 'exit', code: 0 }]);
  const audit = async () =>
    (await api.call('audit', { query: { action: 'runInputEnd' }, as: 'admin' })).json[
      'items'
    ] as Record<string, unknown>[];
  await until(async () => (await audit()).length > 0, 'the audit entry');
  expect((await audit())[0]?.['detail']).toMatch(
    new RegExp(`^exit 0; 3 bytes in, 0 bytes out, \\d+ s; shop, run ${id} on node-1$`),
  );
});

it('a command that reads slowly keeps its input, and a lost agent ends it', async () => {
  const { id } = await claimed();
  const { json } = await input(id);
  const client = (await openClient(base, json)) as Socket;
  const node = (await openAgent(base, idOf(json))) as Socket;
  client.socket.send(execFrame(EXEC_CHANNELS.stdin, Buffer.from('a')));
  await until(() => node.data.length === 1, 'the first byte');
  // Five times the idle limit of exec sessions.
  await new Promise((resolve) => setTimeout(resolve, 500));
  client.socket.send(execFrame(EXEC_CHANNELS.stdin, Buffer.from('b')));
  await until(() => node.data.length === 2, 'the second byte');
  node.socket.terminate();
  await client.closed;
  expect(client.texts.at(-1)?.['message']).toContain('the agent of the node left');
});

describe('refused', () => {
  it('before an agent has the run, after its end, and for a run without input', async () => {
    const { json } = await create(true);
    const early = await input(String(json['id']));
    expect(early).toMatchObject({ status: 409, json: { code: 'wrong_state' } });
    expect(early.json['detail']).toContain('it is pending');
    await api.call('cancelRun', { params: { id: String(json['id']) } });
    expect((await input(String(json['id']))).json['detail']).toContain('it is cancelled');
    const { id, payload } = await claimed(false);
    expect(payload).not.toHaveProperty('stdin');
    expect((await input(id)).json['detail']).toContain('without `stdin`');
  });

  it('for other people', async () => {
    const { id } = await claimed();
    const { created_by } = await get(id);
    const other = created_by === 'admin@example.com' ? 'viewer' : 'admin';
    expect(await input(id, other)).toMatchObject({ status: 403, json: { code: 'forbidden' } });
    expect(await input(id, 'viewer')).toMatchObject({ status: 403, json: { code: 'forbidden' } });
  });

  it('with agents that cannot pass it on', async () => {
    await agent({ agent_version: '0.3.0', capabilities: ['runs'] });
    const reply = await create(true);
    expect(reply).toMatchObject({ status: 409, json: { code: 'agent_cannot' } });
    expect(reply.json['detail']).toContain('upgrade the agents');
    expect(await create(false)).toMatchObject({ status: 201 });
  });

  it('never hands it to an older agent that is there too', async () => {
    const { json } = await create(true);
    await agent({ agent_version: '0.3.0', capabilities: ['runs'] });
    await round();
    expect((await get(String(json['id']))).reason).toContain('pass on standard input');
  });
});
