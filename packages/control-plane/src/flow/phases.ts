/**
 * Measures the phases of a deployment by the control plane's clock: one row for each phase of the
 * last attempt. Pure.
 */
import type { PhaseName } from '@berth/wire/deployment';
import type { DeploymentState } from '@berth/wire/vocabulary';
import type { DeploymentRecord, PhaseRecord, TaskRecord } from '../domain/platform/records.ts';

type Phases = DeploymentRecord['phases'];

const ended = (phases: readonly PhaseRecord[], at: number): PhaseRecord[] =>
  phases.map((p) => (p.ended_at === null ? { ...p, ended_at: at } : p));

/**
 * Ends the open phase and begins `name`. `phases` is null if an older version of Berth created the
 * deployment.
 */
export const begin = (phases: Phases, name: PhaseName, at: number): Phases =>
  phases === null ? null : [...ended(phases, at), { name, started_at: at, ended_at: null }];

export const end = (phases: Phases, at: number): Phases =>
  phases === null ? null : ended(phases, at);

/** Reopens `name` and removes the phases after it, because the work is reassigned. */
function backTo(phases: Phases, name: PhaseName): Phases {
  const i = phases?.findIndex((p) => p.name === name) ?? -1;
  return phases === null || i < 0
    ? phases
    : phases.slice(0, i + 1).map((p, at) => (at === i ? { ...p, ended_at: null } : p));
}

/**
 * Returns the phases after a change of state. flow/deployment.ts sets the phases of the deploy task
 * and the route.
 */
export function phasesAfter(
  { phases, status }: Pick<DeploymentRecord, 'phases' | 'status'>,
  to: DeploymentState,
  now: number,
): Phases {
  if (to === 'building') return begin(phases, 'build', now);
  if (to === 'pending') return backTo(phases, 'queue');
  if (to === 'built')
    return status === 'deploying' ? backTo(phases, 'place') : begin(phases, 'place', now);
  return end(phases, now);
}

/** Moves the start of the build phase to the time at which the builder claimed the task. */
export function built(phases: Phases, { started_at }: Pick<TaskRecord, 'started_at'>): Phases {
  if (phases === null || started_at === null) return phases;
  return phases.map((p) => {
    if (p.name === 'queue') return { ...p, ended_at: started_at };
    return p.name === 'build' ? { ...p, started_at } : p;
  });
}

/**
 * Adds the phases of a deploy task, unless a contract-only agent did not report its start.
 * `answered`: the container answered its probe.
 */
export function started(
  phases: Phases,
  { started_at, progress }: Pick<TaskRecord, 'started_at' | 'progress'>,
  now: number,
  answered = true,
): Phases {
  if (phases === null || started_at === null) return phases;
  const copied = progress?.copied_at ?? null;
  const rows: PhaseRecord[] =
    copied !== null
      ? [
          { name: 'copy', started_at, ended_at: copied },
          { name: 'start', started_at: copied, ended_at: now },
        ]
      : [{ name: !answered && copies(progress) ? 'copy' : 'start', started_at, ended_at: now }];
  return [...ended(phases, now), ...rows];
}

const copies = (progress: TaskRecord['progress']): boolean =>
  progress !== null && progress.datasets.length > 0;
