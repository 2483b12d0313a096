/**
 * Sends spans by OTLP over HTTP. Only tracing.ts imports this module, and only when traces are on.
 * At most QUEUE spans wait; later spans are dropped. A collector that is down or slow has no other
 * effect.
 */
import { ROOT_CONTEXT, SpanKind, SpanStatusCode, TraceFlags, trace } from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { resourceFromAttributes } from '@opentelemetry/resources';
import {
  BatchSpanProcessor,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import type { Logger } from './log.ts';
import type { TraceSettings, Tracing } from './spans.ts';
import { newSpanId } from './trace-ids.ts';

const QUEUE = 2_048;
const SEND_EVERY_MS = 1_000;
const TIMEOUT_MS = 5_000;
const CLOSING_MS = 2_000;
const WARN_EVERY_MS = 60_000;
/** Maximum length of a value in characters. Longer values are cut. */
const MAX_VALUE = 200;

export function startSdk(
  endpoint: string,
  settings: TraceSettings,
  service: { name: string; version: string },
  log: Pick<Logger, 'warn'>,
): Tracing {
  const headers = { ...settings.OTEL_EXPORTER_OTLP_HEADERS };
  const inner = new OTLPTraceExporter({
    url: `${endpoint}/v1/traces`,
    headers,
    timeoutMillis: TIMEOUT_MS,
  });
  let warnedAt = Number.NEGATIVE_INFINITY;
  const exporter: SpanExporter = {
    export: (spans, done) =>
      inner.export(spans, (result) => {
        if (result.error !== undefined && performance.now() - warnedAt > WARN_EVERY_MS) {
          warnedAt = performance.now();
          log.warn(
            { err: { message: result.error.message }, spans: spans.length },
            'sending traces failed; they are dropped',
          );
        }
        done(result);
      }),
    shutdown: () => inner.shutdown(),
    forceFlush: () => inner.forceFlush?.() ?? Promise.resolve(),
  };
  /** Ids of the next span. */
  let next = { traceId: '', spanId: '' };
  const provider = new TracerProvider({
    resource: resourceFromAttributes({
      'service.version': service.version,
      ...settings.OTEL_RESOURCE_ATTRIBUTES,
      'service.name': settings.OTEL_SERVICE_NAME ?? service.name,
    }),
    // Sample by the trace id alone, so that all processes keep or drop the same traces.
    sampler: new TraceIdRatioBasedSampler(settings.OTEL_TRACES_SAMPLER_ARG),
    spanLimits: { attributeValueLengthLimit: MAX_VALUE, attributeCountLimit: 20 },
    idGenerator: { generateTraceId: () => next.traceId, generateSpanId: () => next.spanId },
    spanProcessors: [
      new BatchSpanProcessor({
        exporter,
        maxQueueSize: QUEUE,
        maxExportBatchSize: 512,
        scheduledDelayMillis: SEND_EVERY_MS,
        exportTimeoutMillis: TIMEOUT_MS,
      }),
    ],
  });
  const tracer = provider.getTracer('berth', service.version);
  return {
    record({
      name,
      kind = 'internal',
      traceId,
      spanId = newSpanId(),
      parentId,
      startMs,
      endMs,
      attributes = {},
      error,
    }) {
      next = { traceId, spanId };
      const context =
        parentId === null
          ? ROOT_CONTEXT
          : trace.setSpanContext(ROOT_CONTEXT, {
              traceId,
              spanId: parentId,
              traceFlags: TraceFlags.SAMPLED,
              isRemote: true,
            });
      const options = {
        startTime: startMs,
        attributes,
        kind: kind === 'server' ? SpanKind.SERVER : SpanKind.INTERNAL,
      };
      const span = tracer.startSpan(name, options, context);
      if (error !== undefined && error !== null)
        span.setStatus({ code: SpanStatusCode.ERROR, message: error });
      span.end(Math.max(startMs, endMs));
    },
    async close() {
      const late = new Promise<void>((resolve) => void setTimeout(resolve, CLOSING_MS).unref());
      // A collector that does not answer must not delay the end of the process.
      await Promise.race([provider.shutdown().catch(() => undefined), late]);
    },
  };
}
