/**
 * Measurements for Prometheus. The flow and the loops emit them; api/metrics.ts listens. No
 * decision depends on a measurement.
 */
import type { PhaseName } from '@berth/wire/deployment';
import type { FailureCode } from '@berth/wire/errors';
import type { Verdict } from '@berth/wire/hook';
import {
  type DeploymentState,
  isSettled,
  type TaskKind,
  type TaskState,
} from '@berth/wire/vocabulary';
import type { Facts } from '../deployments/facts.ts';
import type { Plan } from '../deployments/plan.ts';
import type { PhaseRecord } from './records.ts';
import type { Overdue } from '../deployments/task-store.ts';

export type Measured =
  /** A deployment went live, or ended without going live. `code`: why it failed. */
  | { what: 'deployment'; outcome: DeploymentState; code: FailureCode | null }
  /** The same deployment with the details for a trace. Times in ms since the epoch. */
  | {
      what: 'settled';
      id: string;
      projectId: string;
      outcome: DeploymentState;
      code: FailureCode | null;
      trigger: string | null;
      createdAt: number;
      at: number;
      phases: readonly PhaseRecord[];
    }
  /**
   * A phase of a settled deployment. `completed`: the next phase began, or the deployment went
   * live.
   */
  | { what: 'phase'; phase: PhaseName; outcome: DeploymentState | 'completed'; seconds: number }
  /** `seconds`: time since an agent started the task; null if no agent did. */
  | { what: 'task'; kind: TaskKind; end: TaskState; seconds: number | null }
  /** `accepted`: Berth still checks the branch. */
  | { what: 'delivery'; verdict: Verdict | 'accepted' }
  | { what: 'commit status'; outcome: 'sent' | 'retried' | 'given up' }
  | { what: 'notification'; outcome: 'sent' | 'retried' | 'given up' }
  | { what: 'task lost'; kind: TaskKind; why: Overdue };

export type Telemetry = {
  emit(measured: Measured): void;
  on(listener: (measured: Measured) => void): void;
};

export function createTelemetry(): Telemetry {
  const listeners: ((measured: Measured) => void)[] = [];
  return {
    emit(measured) {
      for (const listener of listeners) listener(measured);
    },
    on: (listener) => void listeners.push(listener),
  };
}

function phasesOf(phases: readonly PhaseRecord[], status: DeploymentState): Measured[] {
  return phases.map(({ name, started_at, ended_at }, i) => {
    const outcome = status === 'running' || i < phases.length - 1 ? 'completed' : status;
    return {
      what: 'phase',
      phase: name,
      outcome,
      seconds: Math.max(0, (ended_at ?? started_at) - started_at) / 1000,
    };
  });
}

function settledOf(
  id: string,
  set: Plan['changeDeployments'][number]['set'],
  plan: Plan,
  { live }: Pick<Facts, 'live'>,
): Measured[] {
  const deployment = live.find((d) => d.id === id);
  if (deployment === undefined || set.status === undefined) return [];
  const { project_id: projectId, trigger, created_at: createdAt, phases } = deployment;
  const code = set.status === 'failed' ? (set.error?.code ?? null) : null;
  return [
    {
      what: 'settled',
      id,
      projectId,
      outcome: set.status,
      code,
      trigger,
      createdAt,
      at: plan.now,
      phases: set.phases ?? phases ?? [],
    },
  ];
}

/** Returns the measurements of a committed plan. */
export function measuredOf(plan: Plan, facts: Pick<Facts, 'tasks' | 'live'>): Measured[] {
  const outcomes = plan.changeDeployments.flatMap(({ id, from, set }): Measured[] =>
    // A deployment that ran was already counted when it went live.
    set.status === undefined || set.status === from || isSettled(from) || !isSettled(set.status)
      ? []
      : [
          {
            what: 'deployment',
            outcome: set.status,
            code: set.status === 'failed' ? (set.error?.code ?? null) : null,
          },
          ...phasesOf(set.phases ?? [], set.status),
          ...settledOf(id, set, plan, facts),
        ],
  );
  const ends = plan.changeTasks.flatMap((change): Measured[] => {
    const task = facts.tasks.find((t) => t.id === change.id);
    if (task === undefined || !('end' in change)) return [];
    const seconds =
      task.started_at === null ? null : Math.max(0, plan.now - task.started_at) / 1000;
    return [{ what: 'task', kind: task.kind, end: change.end, seconds }];
  });
  const verdicts = (plan.push?.verdicts ?? []).map(
    ({ verdict }): Measured => ({ what: 'delivery', verdict }),
  );
  return [...outcomes, ...ends, ...verdicts];
}
