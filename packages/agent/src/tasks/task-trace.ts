/**
 * Creates the spans of one task: the task itself and its steps. They belong to the trace of its
 * deployment (kit/tracing.ts).
 */
import { newSpanId, newTraceId, traceOf, traceparent } from '@berth/kit/trace-ids';
import type { Tracing } from '@berth/kit/spans';
import type { Task } from '@berth/wire/task';

export type TaskTrace = {
  traceId: string;
  /** Headers for requests to the control plane. */
  headers: { traceparent: string };
  span(name: string): (failed?: boolean) => void;
  /** Ends the span of the task. Call this once. */
  end(outcome: string, code: string | null): void;
};

export function traceTask(task: Task, tracing: Tracing): TaskTrace {
  const deployment = task.deployment_id === null ? null : traceOf(task.deployment_id);
  const traceId = deployment?.traceId ?? newTraceId();
  const spanId = newSpanId();
  const startMs = Date.now();
  const attributes = { 'berth.task': task.id, 'berth.node': task.node_id };
  return {
    traceId,
    headers: { traceparent: traceparent(traceId, spanId) },
    span(name) {
      const from = Date.now();
      return (failed = false) =>
        tracing.record({
          name,
          traceId,
          parentId: spanId,
          startMs: from,
          endMs: Date.now(),
          attributes,
          error: failed ? 'failed' : null,
        });
    },
    end: (outcome, code) =>
      tracing.record({
        name: `task ${task.kind}`,
        traceId,
        spanId,
        parentId: deployment?.rootId ?? null,
        startMs,
        endMs: Date.now(),
        attributes: { ...attributes, 'berth.outcome': outcome },
        error: code,
      }),
  };
}
