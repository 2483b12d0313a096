/** Types of spans and of their settings (OpenTelemetry). tracing.ts starts the recording. */

export type SpanRecord = {
  name: string;
  kind?: 'internal' | 'server';
  /** Trace id of 32 hex digits. */
  traceId: string;
  /** Span id of 16 hex digits. Default: a new id. */
  spanId?: string;
  /** Null for the root span of a trace. */
  parentId: string | null;
  /** Start of the span, in ms since 1970. */
  startMs: number;
  endMs: number;
  /** Only ids, codes, route names and numbers; never texts of people or values of settings. */
  attributes?: Readonly<Record<string, string | number | boolean>>;
  /** Code of the failure; null or absent after a success. */
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
