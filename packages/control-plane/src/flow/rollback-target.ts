/** Finds the release of a rollback, a restart or a start that names no deployment. Pure. */
import type { Trigger } from '@berth/wire/deployment';
import type { DeploymentRecord } from '../domain/platform/records.ts';

/** A deployment that ran or runs. Lists of them are newest first. */
export type Ran = Pick<DeploymentRecord, 'id' | 'generation' | 'rollback_of' | 'trigger'>;

/** Triggers that deploy the running release again. A rollback deploys an older release instead. */
const COPIES: readonly (Trigger | null)[] = ['restart', 'start', 'data', 'drain'];

/**
 * Returns the release that ran before the one that runs or ran last, or null if there is none. A
 * rollback continues from its target, so each repeated rollback goes one release further back.
 *
 *   Deployments 1 (release A), 2 (B), 3 (C): a rollback from 3 deploys B as 4, a rollback from 4
 *   deploys A as 5, and a rollback from 5 is not possible.
 */
export function nextOlder(ran: readonly Ran[]): Ran | null {
  const newest = ran[0];
  if (newest === undefined) return null;
  const byId = new Map(ran.map((d) => [d.id, d]));
  const previous = (d: Ran): Ran | undefined => byId.get(d.rollback_of ?? '');
  const releaseOf = (d: Ran): string => {
    let origin = d;
    for (let next = previous(d); next !== undefined; next = previous(next)) origin = next;
    return origin.rollback_of ?? origin.id;
  };
  let at = newest;
  for (
    let next = previous(at);
    next !== undefined && COPIES.includes(at.trigger);
    next = previous(at)
  )
    at = next;
  const position = previous(at)?.generation ?? at.generation;
  const release = releaseOf(newest);
  return ran.find((d) => d.generation < position && releaseOf(d) !== release) ?? null;
}
