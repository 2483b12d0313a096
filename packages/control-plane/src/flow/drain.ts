/**
 * Emptying a node: what runs there is deployed once more, and since the node is cordoned that is elsewhere. What cannot be moved
 * stays where it is, serving. Pure; carried out by loops/drains.ts.
 *
 *   left ──a try is free, fewer than AT_ONCE move──▶ moving ──the new one runs──▶ moved
 *    ▲                                                 │
 *    └───────────────it failed: why is kept────────────┘  after TRIES it stays left
 */
import { isSettled } from '@berth/wire/vocabulary';
import type { DeploymentRecord, DrainRecord } from '../domain/records.ts';

export const AT_ONCE = 2;
export const TRIES = 3;

export type Left = {
  running: DeploymentRecord;
  /** Another one of its project that is under way, whoever asked for it. */
  underWay: DeploymentRecord | null;
  /** The one that its last try made, whatever became of it. */
  tried: DeploymentRecord | null;
};

export type DrainStep = {
  /** As it stands now. */
  drain: DrainRecord;
  /** To be deployed once more; its try is counted in `drain` already. */
  move: { running: DeploymentRecord; id: string } | null;
};

export const newDrain = (now: number): DrainRecord => ({ started_at: now, finished_at: null, moved: 0, tries: {} });

/** What was given up on is tried anew. */
export const retried = (drain: DrainRecord): DrainRecord => ({
  ...drain,
  tries: Object.fromEntries(Object.entries(drain.tries).filter(([, t]) => t.count < TRIES)),
});

/** The try that was counted could not be made. */
export const notAsked = (drain: DrainRecord, projectId: string, problem: string): DrainRecord => {
  const made = drain.tries[projectId];
  return made === undefined ? drain : { ...drain, tries: { ...drain.tries, [projectId]: { ...made, problem } } };
};

/** `arriving`: something is still being deployed to the node. */
export function drainStep(before: DrainRecord, left: readonly Left[], arriving: boolean, now: number, freshId: string): DrainStep {
  const there = new Set(left.map((l) => l.running.project_id));
  const gone = Object.keys(before.tries).filter((project) => !there.has(project));
  const tries: DrainRecord['tries'] = {};
  for (const l of left) {
    const t = before.tries[l.running.project_id];
    if (t !== undefined) tries[l.running.project_id] = { ...t, problem: problemOf(l) ?? t.problem };
  }
  const drain: DrainRecord = {
    ...before,
    moved: before.moved + gone.length,
    tries,
    finished_at: left.length === 0 && !arriving ? now : null,
  };
  const free = left.filter((l) => l.underWay === null && (tries[l.running.project_id]?.count ?? 0) < TRIES);
  const next = left.length - left.filter((l) => l.underWay === null).length < AT_ONCE ? free.toSorted(byTries(tries))[0] : undefined;
  if (next === undefined) return { drain, move: null };
  const project = next.running.project_id;
  const earlier = tries[project];
  tries[project] = { count: (earlier?.count ?? 0) + 1, deployment_id: freshId, problem: earlier?.problem ?? null, at: now };
  return { drain, move: { running: next.running, id: freshId } };
}

/** Those that were never tried go first. */
const byTries =
  (tries: DrainRecord['tries']) =>
  (a: Left, b: Left): number =>
    (tries[a.running.project_id]?.count ?? 0) - (tries[b.running.project_id]?.count ?? 0);

function problemOf({ tried, underWay }: Left): string | null {
  if (tried === null || !isSettled(tried.status) || underWay?.id === tried.id) return null;
  if (tried.status === 'failed' || tried.status === 'cancelled')
    return tried.error?.message ?? `deployment ${tried.generation} was ${tried.status}`;
  return tried.status === 'superseded' ? `deployment ${tried.generation} was superseded` : null;
}
