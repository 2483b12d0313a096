/**
 * Computes the backoff for removals, starts and stops of a container. Each attempt is a task, and a
 * node reports twice a minute. Pure.
 */
import type { DeploymentRecord } from '../domain/platform/records.ts';
import type { Draft } from './plan-draft.ts';

const FIRST_MS = 30_000;
/**
 * Longest backoff in ms. Removals can wait longer than starts and stops, because a leftover
 * container harms no running version.
 */
const LONGEST_MS = { remove: 3_600_000, start: 300_000, stop: 300_000 };

type Retried = Pick<DeploymentRecord, 'retry'>;

export const mayTry = (draft: Draft, d: Retried): boolean =>
  d.retry === null || d.retry.not_before <= draft.facts.uptime.at;

export function tryLater(draft: Draft, d: DeploymentRecord, what: keyof typeof LONGEST_MS): void {
  const tries = (d.retry?.tries ?? 0) + 1;
  // The first retry has no delay: it follows the node's next report.
  const wait =
    tries === 1 ? 0 : Math.min(LONGEST_MS[what], FIRST_MS * 2 ** Math.min(tries - 1, 20));
  draft.set(d, { retry: { tries, not_before: draft.facts.uptime.at + wait } });
}

export function endRetries(draft: Draft, d: DeploymentRecord): void {
  if (d.retry !== null) draft.set(d, { retry: null });
}
