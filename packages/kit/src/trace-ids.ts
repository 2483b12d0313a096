/**
 * Ids of traces and spans, and the header that carries them. Loads no library, so every process can
 * use it.
 */
import { randomBytes } from 'node:crypto';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** Returns the trace of a deployment, or null if the id is not a UUID, such as an id of a test. */
export const traceOf = (deploymentId: string): { traceId: string; rootId: string } | null => {
  if (!UUID.test(deploymentId)) return null;
  const traceId = deploymentId.replaceAll('-', '');
  return { traceId, rootId: traceId.slice(16) };
};

export const newTraceId = (): string => randomBytes(16).toString('hex');
export const newSpanId = (): string => randomBytes(8).toString('hex');

/** Header of W3C Trace Context. */
export const traceparent = (traceId: string, spanId: string): string =>
  `00-${traceId}-${spanId}-01`;
export function readTraceparent(
  header: string | string[] | undefined,
): { traceId: string; spanId: string } | null {
  const [, traceId = '', spanId = ''] =
    /^00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$/.exec(String(header)) ?? [];
  return traceId === '' || /^0+$/.test(traceId) || /^0+$/.test(spanId) ? null : { traceId, spanId };
}
