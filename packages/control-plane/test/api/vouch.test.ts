/** Whose address gets the connections that are kept for known clients (kit/connections.ts). */
import Fastify from 'fastify';
import { expect, test } from 'vitest';
import { installAccess } from '../../src/api/plugins/access.ts';
import type { Server } from '../../src/api/define.ts';

test.each([
  ['agentConfig', 1],
  ['gatewayPolicy', 1],
  ['listProjects', 0],
  ['listUsers', 0],
] as const)('%s', async (routeName, count) => {
  const vouched: string[] = [];
  const server = Fastify() as unknown as Server;
  const callers = { user: async () => ({ role: 'viewer' }), gateway: () => 'secret' };
  const agents = {
    identify(request: { agent: unknown }) {
      request.agent = { kind: 'shared', fingerprint: 'a' };
    },
  };
  const seen = {
    presence: { seen: () => undefined },
    secretUse: { gatewaySent: () => undefined },
    vouch: (address: string) => void vouched.push(address),
  };
  installAccess(server, callers as never, agents as never, seen as never);
  server.get('/', { config: { routeName } }, () => 'ok');
  await server.inject({ url: '/' });
  expect(vouched).toHaveLength(count);
  await server.close();
});
