/**
 * Traces for OpenTelemetry, off by default. Code records finished spans; `tracing-sdk.ts` sends
 * them. It is loaded only when OTEL_EXPORTER_OTLP_ENDPOINT is set, so other processes have no cost.
 *
 * The trace id of a deployment is derived from the deployment's id. So every process can join the
 * trace without receiving its id: contract-only agents need not pass it on, and a trace survives
 * restarts of the control plane and of agents.
 */
import type { Logger } from './log.ts';
import type { TraceSettings, Tracing } from './spans.ts';

/** Returns null without OTEL_EXPORTER_OTLP_ENDPOINT; no spans are recorded then. */
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
