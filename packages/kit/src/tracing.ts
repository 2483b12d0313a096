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
import type { TraceSettings, Tracing } from './spans.ts';

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
