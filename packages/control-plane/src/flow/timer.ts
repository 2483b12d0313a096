/**
 * Runs the timer of a deployment's current state. The timer stops while the deployment waits for a
 * task of Berth. Pure.
 */
import type { DeploymentRecord, Timer } from '../domain/platform/records.ts';
import { isPast } from '../domain/platform/uptime.ts';
import type { Draft } from './plan-draft.ts';

type Timed = Pick<DeploymentRecord, 'id' | 'status' | 'state_since' | 'timer'>;

/**
 * Returns the timer of the current state. Ignores a timer of a previous state, which an older
 * version of Berth might have stored.
 */
const present = (d: Timed): Timer =>
  d.timer !== null && d.timer.state_since === d.state_since
    ? d.timer
    : { state_since: d.state_since, ran_ms: 0, running_since: null };

export const startedTimer = (d: Pick<Timed, 'state_since'>, at: number): Timer => ({
  state_since: d.state_since,
  ran_ms: 0,
  running_since: at,
});

/**
 * Starts or continues the timer. Returns whether it ran longer than `limitMs`. After a downtime of
 * the control plane, `graceMs` is added to the limit.
 */
export function hasRunOut(
  draft: Draft,
  d: DeploymentRecord,
  limitMs: number,
  graceMs = draft.facts.limits.leaseMs,
): boolean {
  const { uptime } = draft.facts;
  const timer = present(d);
  if (timer.running_since !== null)
    return isPast(timer.running_since + limitMs - timer.ran_ms, uptime, graceMs);
  draft.set(d, { timer: { ...timer, running_since: uptime.at } });
  return false;
}

/** Stops the timer and stores the elapsed time. */
export function stopTimer(draft: Draft, d: DeploymentRecord): void {
  const timer = present(d);
  if (timer.running_since === null) return;
  const ran_ms = timer.ran_ms + Math.max(0, draft.facts.uptime.at - timer.running_since);
  draft.set(d, { timer: { ...timer, ran_ms, running_since: null } });
}
