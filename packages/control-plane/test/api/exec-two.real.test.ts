/**
 * Exec sessions at two control planes with one real PostgreSQL: client, poll and agent reach
 * different ones.
 */
import { CAN_EXEC, EXEC_ALLOWED, EXEC_CHANNELS, EXEC_HEADER, execFrame } from '@berth/wire/exec';
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createWorld } from './deployed.ts';
import { closeSockets, idOf, openAgent, openClient, type Socket, until } from './exec-sockets.ts';
import { type Api, createApi, createProject, deploy, register, tick } from './harness.ts';

const reason = whyNoPostgres();
const server = reason === undefined ? await startPostgres() : undefined;
afterAll(() => server?.stop());

describe.skipIf(server === undefined)(
  `exec sessions at two control planes${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    const apis: Api[] = [];
    const urls: string[] = [];
    let project = '';
    let node = '';
    const plane = (i: number): Api => {
      const api = apis[i];
      if (api === undefined) throw new Error('no control plane');
      return api;
    };
    beforeAll(async () => {
      const databaseUrl = (await server?.createDatabase('exec')) ?? '';
      for (let i = 0; i < 2; i++) {
        const api = await createApi({ databaseUrl, overrides: { execLimits: { checkMs: 50 } } });
        apis.push(api);
        urls.push(await api.listen());
      }
      const api = plane(0);
      const world = await createWorld(api);
      project = await createProject(api);
      await patch({ allow_exec: true });
      const d = await deploy(api, project);
      await tick(api, d);
      await world.built();
      await tick(api, d);
      await world.work(world.home, { host_port: 32_001, container_id: 'c1' });
      const confirmed = {
        type: 'route_confirmed',
        host_ip: '10.0.0.7',
        host_port: 32_001,
      } as const;
      await api.driver.advance(d, confirmed);
      await world.work(world.home, {});
      node = await register(api, {
        hostname: 'node-1',
        role: 'deploy',
        agent_version: '0.3.0',
        capabilities: [CAN_EXEC, EXEC_ALLOWED],
        containers: [
          {
            id: 'c1',
            name: 'svc-shop',
            state: 'running',
            host_port: 32_001,
            labels: { 'berth.deployment': d, 'berth.project': project, 'berth.node': world.home },
          },
        ],
      });
    }, 120_000);
    afterAll(async () => {
      closeSockets();
      for (const api of apis) await api.close();
    });
    const patch = (body: object) =>
      plane(0).call('patchProject', { params: { id: project }, body, as: 'admin' });

    test('the ticket of one opens a session at the other, and the agent finds it', async () => {
      const body = { command: ['cat'] };
      const params = { id: project };
      const { json } = await plane(0).call('execProject', { params, body, as: 'admin' });
      const polls = [0, 1].map((i) =>
        plane(i).call('agentTasks', { query: { node_id: node, wait: 30 } }),
      );
      const client = (await openClient(urls[1] ?? '', json)) as Socket;
      // The ticket is used up at both.
      expect(await openClient(urls[0] ?? '', json)).toMatchObject({ status: 401 });
      for (const poll of polls) expect((await poll).headers[EXEC_HEADER]).toBe(idOf(json));
      // The balancer leads the agent to the one without the client first.
      expect(await openAgent(urls[0] ?? '', idOf(json))).toEqual({
        status: 409,
        code: 'wrong_state',
      });
      const agent = (await openAgent(urls[1] ?? '', idOf(json))) as Socket;
      client.socket.send(execFrame(EXEC_CHANNELS.stdin, Buffer.from('hello')));
      await until(() => agent.data.length > 0, 'the input');
      // Switched off at one, it ends at the other.
      await patch({ allow_exec: false });
      await client.closed;
      expect(client.texts.at(-1)?.['message']).toContain('does not allow exec');
    });
  },
);
