/**
 * Decides the steps of a drain. Berth deploys each deployment of the node again; the node is
 * cordoned, so the new deployment goes to another node. A deployment that cannot move keeps serving
 * on the node. Of a deployment with several instances, only those on the node move
 * (flow/instances.ts `nodeDrained`). If no other node can take an instance, it keeps serving, and
 * its replacement waits without a time limit. The volumes of a stopped project move without a start
 * of the project (flow/volume-handoff.ts). Pure; loops/drains.ts executes the steps.
 *
 *   remaining ──tries are left, fewer than AT_ONCE move──▶ moving ──the new one runs──▶ moved
 *    ▲                                                       │
 *    └───────────────it failed: the record keeps why─────────┘  after TRIES tries it stays
 */
import { isSettled } from '@berth/wire/vocabulary';
import { DomainError } from '../domain/platform/errors.ts';
import type { DeploymentRecord, DrainRecord, NodeRecord } from '../domain/platform/records.ts';
import type { NodeStore } from '../domain/nodes/node-store.ts';

export const AT_ONCE = 2;
export const TRIES = 3;
/**
 * Maximum number of volume moves to try in one step. Each try reads all facts of its project, and
 * most projects wait for the same reason.
 */
export const TRIED_AT_ONCE = 5;

export type Remaining = {
  running: DeploymentRecord;
  /** A deployment of the same project that is in progress, whoever requested it. */
  inProgress: DeploymentRecord | null;
  /** The deployment created by the last try, in any state. */
  tried: DeploymentRecord | null;
  /** Set if only the volumes of the project are on the node; Berth then deploys nothing. */
  rest: Rest | null;
  /** Set if the deployment has several instances: only those on the node move. */
  instances: MovingInstances | null;
};

/**
 * The instances on the node. `unasked`: how many have no replacement yet. `isMoving`: an instance
 * is starting on the node, or a replacement is starting elsewhere. `problem`: why a replacement
 * waits.
 */
export type MovingInstances = { unasked: number; isMoving: boolean; problem: string | null };

/**
 * Volumes without a serving deployment. `isAlone`: the project is stopped, so Berth can move the
 * volumes. Otherwise a person must deploy the project to move them.
 */
export type Rest = { isAlone: boolean; isMoving: boolean; problem: string | null };

export type DrainStep = {
  /** The new drain record. */
  drain: DrainRecord;
  /**
   * The deployment to deploy again, or whose instances on the node move. `drain` already counts the
   * try.
   */
  move: { running: DeploymentRecord; id: string; ofInstances: boolean } | null;
  /**
   * Deployments of stopped projects whose volumes should move, in this order. `room` is the number
   * of moves that can begin now.
   */
  leave: readonly DeploymentRecord[];
  room: number;
};

export const newDrain = (now: number): DrainRecord => ({
  started_at: now,
  finished_at: null,
  moved: 0,
  tries: {},
});

/**
 * Resets the tries of the deployments that used all of them, of instances, and of the volumes of
 * every stopped project, because a full disk might have room now (flow/volume-handoff.ts). Returns
 * the same record if nothing changes.
 */
export function withFreshTries(drain: DrainRecord, now: number): DrainRecord {
  // Only the move of a whole deployment creates a deployment, so tries of volumes and of instances
  // have none.
  const isOfRest = (t: DrainRecord['tries'][string]): boolean => t.deployment_id === null;
  const earlierTries = Object.entries(drain.tries);
  if (!earlierTries.some(([, t]) => isOfRest(t) || t.count >= TRIES)) return drain;
  const kept = earlierTries.filter(([, t]) => isOfRest(t) || t.count < TRIES);
  return {
    ...drain,
    tries: Object.fromEntries(
      kept.map(([id, t]) => [id, isOfRest(t) ? { ...t, count: 0, at: now } : t]),
    ),
  };
}

/**
 * Changes the drain of a node, even if the drain loop writes at the same time. Throws not_found,
 * busy.
 */
export async function changeDrain(
  nodes: Pick<NodeStore, 'get' | 'setDrain'>,
  id: string,
  next: (node: NodeRecord) => DrainRecord | null,
): Promise<NodeRecord> {
  for (let tries = 0; tries < 10; tries++) {
    const node = await nodes.get(id);
    const drain = next(node);
    if (drain === node.drain) return node;
    const set = await nodes.setDrain(id, drain, node.drain);
    if (set !== null) return set;
  }
  throw new DomainError('busy');
}

/**
 * Returns the moves to try in this step: round robin, starting after the move that was tried last.
 */
export function inTurn(
  waiting: readonly DeploymentRecord[],
  lastProject: string | null,
): DeploymentRecord[] {
  const from = waiting.findIndex((d) => d.project_id === lastProject) + 1;
  return [...waiting.slice(from), ...waiting.slice(0, from)].slice(0, TRIED_AT_ONCE);
}

/** Records why a counted try could not start. */
export const withProblem = (
  drain: DrainRecord,
  projectId: string,
  problem: string,
): DrainRecord => {
  const attempt = drain.tries[projectId];
  return attempt === undefined
    ? drain
    : { ...drain, tries: { ...drain.tries, [projectId]: { ...attempt, problem } } };
};

/**
 * Decides the next step of a drain. `isUsed`: a deployment to the node is in progress, or a
 * container is left there that only a person can remove.
 */
export function drainStep(
  earlierTries: DrainRecord,
  remaining: readonly Remaining[],
  isUsed: boolean,
  now: number,
  freshId: string,
): DrainStep {
  const there = new Set(remaining.map((l) => l.running.project_id));
  const gone = Object.keys(earlierTries.tries).filter((project) => !there.has(project));
  const tries: DrainRecord['tries'] = {};
  for (const l of remaining) {
    const t = earlierTries.tries[l.running.project_id];
    if (l.rest !== null) tries[l.running.project_id] = triesOfRest(l.running, l.rest, t, now);
    else if (t !== undefined)
      tries[l.running.project_id] = { ...t, problem: problemOf(l) ?? problemBefore(l, t) };
  }
  const drain: DrainRecord = {
    ...earlierTries,
    moved: earlierTries.moved + gone.length,
    tries,
    finished_at: remaining.length === 0 && !isUsed ? (earlierTries.finished_at ?? now) : null,
  };
  const room = AT_ONCE - remaining.filter(isMoving).length;
  const free = remaining
    .filter(
      (l) =>
        l.inProgress === null &&
        l.instances?.unasked !== 0 &&
        (tries[l.running.project_id]?.count ?? 0) < TRIES,
    )
    .toSorted(byTries(tries));
  const next = room > 0 ? free.find((l) => l.rest === null) : undefined;
  const leave = free.flatMap((l) =>
    l.rest?.isAlone === true && !l.rest.isMoving ? [l.running] : [],
  );
  if (next === undefined) return { drain, move: null, leave, room };
  const project = next.running.project_id;
  const earlier = tries[project];
  tries[project] = {
    count: (earlier?.count ?? 0) + 1,
    deployment_id: next.instances === null ? freshId : null,
    problem: earlier?.problem ?? null,
    at: now,
  };
  const move = { running: next.running, id: freshId, ofInstances: next.instances !== null };
  return { drain, move, leave, room: room - 1 };
}

const isMoving = ({ inProgress, rest, instances }: Remaining): boolean =>
  inProgress !== null || rest?.isMoving === true || instances?.isMoving === true;

/**
 * Counts the tries of a volume move: each failed move is one entry in `losses` of its deployment.
 */
function triesOfRest(
  { losses }: DeploymentRecord,
  { problem }: Rest,
  earlier: DrainRecord['tries'][string] | undefined,
  now: number,
): DrainRecord['tries'][string] {
  const at = earlier?.at ?? now;
  return { count: losses.filter((loss) => loss.at >= at).length, deployment_id: null, problem, at };
}

/** Compares deployments by their number of tries, fewest first. */
const byTries =
  (tries: DrainRecord['tries']) =>
  (a: Remaining, b: Remaining): number =>
    (tries[a.running.project_id]?.count ?? 0) - (tries[b.running.project_id]?.count ?? 0);

/** Returns the problem that the record has; null if the instances are on their way. */
const problemBefore = (
  { instances }: Remaining,
  { problem }: DrainRecord['tries'][string],
): string | null => (instances?.unasked === 0 ? null : problem);

function problemOf({ tried, inProgress, instances }: Remaining): string | null {
  if (instances !== null) return instances.problem;
  if (tried === null || !isSettled(tried.status) || inProgress?.id === tried.id) return null;
  if (tried.status === 'failed' || tried.status === 'cancelled')
    return tried.error?.message ?? `deployment ${tried.generation} was ${tried.status}`;
  return tried.status === 'superseded' ? `deployment ${tried.generation} was superseded` : null;
}
