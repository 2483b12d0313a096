/**
 * Spans of the control plane: one for each request, and several for each settled deployment. Each
 * span is recorded at its end, so requests and deployments carry no trace state (kit/tracing.ts).
 */
import type { IncomingMessage } from 'node:http';
import { newSpanId, newTraceId, readTraceparent, traceOf } from '@berth/kit/trace-ids';
import type { Tracing } from '@berth/kit/spans';
import type { RouteName } from '@berth/wire/routes';
import type { Telemetry } from '../domain/platform/telemetry.ts';
import type { Server } from './define.ts';
import type { Holds } from './long-poll.ts';

const CREATES: RouteName = 'createDeployment';
/** Routes without a span: operators and monitoring request them every few seconds. */
const QUIET = new Set(['healthz', 'readyz', 'metrics']);

export type RequestTraces = {
  /** Returns the trace id of a request, for its log lines. */
  traceIdOf(request: IncomingMessage): string;
};

export function traceRequests(
  server: Server,
  tracing: Tracing,
  holds: Pick<Holds, 'wasHeld'>,
): RequestTraces {
  const contexts = new WeakMap<
    IncomingMessage,
    { traceId: string; spanId: string; parentId: string | null }
  >();
  function contextOf(request: IncomingMessage) {
    const existingContext = contexts.get(request);
    if (existingContext !== undefined) return existingContext;
    const context = { traceId: newTraceId(), spanId: newSpanId(), parentId: null };
    contexts.set(request, context);
    return context;
  }

  // Continue a trace only for agents and gateways: any other client could add its request to
  // somebody else's trace. This hook runs after plugins/access.ts has checked the secret.
  server.addHook('preParsing', (request, _reply, _payload, done) => {
    const isOurs =
      (request.agent !== null && request.agent.kind !== 'open') || request.gatewaySecret !== null;
    const parent =
      isOurs && !contexts.has(request.raw) ? readTraceparent(request.headers['traceparent']) : null;
    if (parent !== null)
      contexts.set(request.raw, {
        traceId: parent.traceId,
        spanId: newSpanId(),
        parentId: parent.spanId,
      });
    done();
  });

  // A request that creates a deployment belongs to the deployment's trace, whose id is known only
  // now.
  server.addHook('onSend', (request, reply, payload, done) => {
    const route = request.routeOptions.config.routeName;
    if (route === CREATES && reply.statusCode === 201 && typeof payload === 'string') {
      const id: unknown = (JSON.parse(payload) as { id?: unknown }).id;
      const trace = typeof id === 'string' ? traceOf(id) : null;
      if (trace !== null)
        contexts.set(request.raw, {
          traceId: trace.traceId,
          spanId: newSpanId(),
          parentId: trace.rootId,
        });
    }
    done();
  });
  server.addHook('onResponse', (request, reply, done) => {
    done();
    const route = request.routeOptions.config.routeName ?? 'none';
    if (QUIET.has(route) || holds.wasHeld(reply.raw)) return;
    const { traceId, spanId, parentId } = contextOf(request.raw);
    const endMs = Date.now();
    tracing.record({
      name: `${request.method} ${request.routeOptions.url ?? 'no route'}`,
      kind: 'server',
      traceId,
      spanId,
      parentId,
      startMs: endMs - reply.elapsedTime,
      endMs,
      attributes: {
        'http.request.method': request.method,
        'http.route': request.routeOptions.url ?? '',
        'http.response.status_code': reply.statusCode,
        'berth.request_id': request.id,
      },
      error: reply.statusCode >= 500 ? String(reply.statusCode) : null,
    });
  });
  return { traceIdOf: (request) => contextOf(request).traceId };
}

/**
 * Records the root span and the phases of each deployment when it settles, from its data in the
 * database.
 */
export function traceDeployments(telemetry: Telemetry, tracing: Tracing): void {
  telemetry.on((measured) => {
    if (measured.what !== 'settled') return;
    const trace = traceOf(measured.id);
    if (trace === null) return;
    const { traceId, rootId } = trace;
    const attributes = { 'berth.deployment': measured.id, 'berth.project': measured.projectId };
    for (const { name, started_at, ended_at } of measured.phases)
      tracing.record({
        name: `phase ${name}`,
        traceId,
        parentId: rootId,
        startMs: started_at,
        endMs: ended_at ?? measured.at,
        attributes,
      });
    tracing.record({
      name: 'deployment',
      traceId,
      spanId: rootId,
      parentId: null,
      startMs: measured.createdAt,
      endMs: measured.at,
      attributes: {
        ...attributes,
        'berth.outcome': measured.outcome,
        'berth.trigger': measured.trigger ?? '',
      },
      error: measured.outcome === 'failed' ? (measured.code ?? 'failed') : null,
    });
  });
}
