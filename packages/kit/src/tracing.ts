/**
 * Traces for OpenTelemetry, off by default. Code records finished spans; `tracing-sdk.ts` sends
 * them and is loaded only when OTEL_EXPORTER_OTLP_ENDPOINT is set, so a process without it pays
 * nothing.
 *
 * The trace of a deployment has the deployment's id as its trace id. So every process joins the
 * same trace without a message to it: contract-only agents need not pass anything on, and a trace
 * survives restarts of the control plane and of agents.
 */
import type { Logger } from './log.ts';

export type SpanRecord = {
  name: string;
  kind?: 'internal' | 'server';
  /** 32 hex digits. */
  traceId: string;
  /** 16 hex digits. Default: a new one. */
  spanId?: string;
  /** Null: the root of its trace. */
  parentId: string | null;
  /** In ms since 1970. */
  startMs: number;
  endMs: number;
  /** Never texts of people or values of settings: ids, codes, names of routes and numbers only. */
  attributes?: Readonly<Record<string, string | number | boolean>>;
  /** Code of the failure; null or absent: none. */
  error?: string | null;
};
/** `record` never throws and never waits. */
export type Tracing = { record(span: SpanRecord): void; close(): Promise<void> };

export type TraceSettings = {
  OTEL_EXPORTER_OTLP_ENDPOINT?: string | undefined;
  OTEL_EXPORTER_OTLP_HEADERS?: Readonly<Record<string, string>> | undefined;
  OTEL_SERVICE_NAME?: string | undefined;
  OTEL_RESOURCE_ATTRIBUTES?: Readonly<Record<string, string>> | undefined;
  OTEL_TRACES_SAMPLER_ARG: number;
};

/** Returns null without OTEL_EXPORTER_OTLP_ENDPOINT: nothing is recorded. */
export async function openTracing(
  settings: TraceSettings,
  service: { name: string; version: string },
  log: Pick<Logger, 'warn'>,
): Promise<Tracing | null> {
  const endpoint = settings.OTEL_EXPORTER_OTLP_ENDPOINT;
  if (endpoint === undefined) return null;
  const { startSdk } = await import('./tracing-sdk.ts');
  return startSdk(endpoint, settings, service, log);
}
