/** Spans that a process records for OpenTelemetry, and the settings. tracing.ts begins the recording. */

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
