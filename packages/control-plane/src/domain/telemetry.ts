/** What happens and is counted for Prometheus. The flow and the loops tell it; api/metrics.ts listens. Nothing is decided by it. */
import type { FailureCode } from '@berth/wire/errors';
import { type DeploymentState, isSettled, type TaskKind, type TaskState } from '@berth/wire/vocabulary';
import type { Facts } from './facts.ts';
import type { Plan } from './plan.ts';
import type { Overdue } from './stores.ts';

export type Measured =
  /** A deployment went live or ended without. `code`: why it failed. */
  | { what: 'deployment'; outcome: DeploymentState; code: FailureCode | null }
  /** `seconds`: since an agent began it; null: none ever did. */
  | { what: 'task'; kind: TaskKind; end: TaskState; seconds: number | null }
  | { what: 'task lost'; kind: TaskKind; why: Overdue };

export type Telemetry = { tell(measured: Measured): void; on(listener: (measured: Measured) => void): void };

export function createTelemetry(): Telemetry {
  const listeners: ((measured: Measured) => void)[] = [];
  return {
    tell(measured) {
      for (const listener of listeners) listener(measured);
    },
    on: (listener) => void listeners.push(listener),
  };
}

/** What a plan that was committed means for the counters. */
export function measuredOf(plan: Plan, facts: Pick<Facts, 'tasks'>): Measured[] {
  const outcomes = plan.deployments.flatMap(({ from, set }): Measured[] =>
    // What ran and ends was counted when it went live.
    set.status === undefined || set.status === from || isSettled(from) || !isSettled(set.status)
      ? []
      : [{ what: 'deployment', outcome: set.status, code: set.status === 'failed' ? (set.error?.code ?? null) : null }],
  );
  const ends = plan.tasks.flatMap((change): Measured[] => {
    const task = facts.tasks.find((t) => t.id === change.id);
    if (task === undefined || !('end' in change)) return [];
    const seconds = task.started_at === null ? null : Math.max(0, plan.now - task.started_at) / 1000;
    return [{ what: 'task', kind: task.kind, end: change.end, seconds }];
  });
  return [...outcomes, ...ends];
}
