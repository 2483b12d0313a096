/**
 * A span for each request that Fastify serves. /verify has none: Traefik's own span shows its
 * duration, and it is the hot path.
 */
import { newTraceId, readTraceparent } from '@berth/kit/trace-ids';
import type { Tracing } from '@berth/kit/spans';
import type { FastifyInstance, FastifyRequest } from 'fastify';

const QUIET = new Set(['/healthz', '/readyz', '/metrics']);

/**
 * Call before the routes are added. Only Traefik reaches the gateway, so its `traceparent` is
 * trusted.
 */
export function traceRequests(server: FastifyInstance, tracing: Tracing): void {
  const contexts = new WeakMap<FastifyRequest, { traceId: string; parentId: string | null }>();
  server.addHook('onRequest', async (request) => {
    const parent = readTraceparent(request.headers['traceparent']);
    const traceId = parent?.traceId ?? newTraceId();
    contexts.set(request, { traceId, parentId: parent?.spanId ?? null });
    request.log = request.log.child({ trace_id: traceId });
  });
  server.addHook('onResponse', async (request, reply) => {
    const route = request.routeOptions.url ?? 'no route';
    const context = contexts.get(request);
    if (QUIET.has(route) || context === undefined) return;
    const endMs = Date.now();
    tracing.record({
      name: `${request.method} ${route}`,
      kind: 'server',
      ...context,
      startMs: endMs - reply.elapsedTime,
      endMs,
      attributes: {
        'http.request.method': request.method,
        'http.route': route,
        'http.response.status_code': reply.statusCode,
        'berth.request_id': request.id,
      },
      error: reply.statusCode >= 500 ? String(reply.statusCode) : null,
    });
  });
}
