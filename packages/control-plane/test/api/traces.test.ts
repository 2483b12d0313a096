/** Which requests continue the trace of their caller. */
import { newSpanId, newTraceId, traceparent } from '@berth/kit/trace-ids';
import type { SpanRecord } from '@berth/kit/spans';
import Fastify from 'fastify';
import { expect, test } from 'vitest';
import type { AgentProof } from '../../src/domain/nodes/agent-identity.ts';
import type { Server } from '../../src/api/define.ts';
import { traceRequests } from '../../src/api/traces.ts';

test.each<[string, { agent?: AgentProof; gatewaySecret?: string }, boolean]>([
  ['an agent', { agent: { kind: 'shared', fingerprint: 'a' } }, true],
  ['a gateway', { gatewaySecret: 'a' }, true],
  ['anybody while AGENT_SECRET is not set', { agent: { kind: 'open' } }, false],
  ['a stranger who sends headers of secrets to a public route', {}, false],
])('%s', async (_, found, continues) => {
  const server = Fastify() as unknown as Server;
  const spans: SpanRecord[] = [];
  traceRequests(
    server,
    { record: (span) => void spans.push(span), close: async () => undefined },
    { wasHeld: () => false },
  );
  server.decorateRequest('agent', null);
  server.decorateRequest('gatewaySecret', null);
  // As plugins/access.ts does.
  server.addHook('onRequest', async (request) => void Object.assign(request, found));
  server.get('/', () => 'ok');
  const [traceId, spanId] = [newTraceId(), newSpanId()];
  const headers = {
    'x-agent-secret': 'wrong',
    'x-gateway-secret': 'wrong',
    traceparent: traceparent(traceId, spanId),
  };
  expect((await server.inject({ url: '/', headers })).statusCode).toBe(200);
  await expect.poll(() => spans.length).toBe(1);
  expect([spans[0]?.traceId === traceId, spans[0]?.parentId === spanId]).toEqual([
    continues,
    continues,
  ]);
  await server.close();
});
