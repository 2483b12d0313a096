/**
 * A project that is replaced stop-first (`recreate`: a dataset is mounted readwrite) never runs in two versions at once, on
 * whatever nodes. On one node its agent sees to it; here it is decided between nodes:
 *
 *   it stays where it runs, if that node is not refused (placement) ──▶ nothing to do
 *   else: a node of which nobody knows what it runs ──▶ wait; it may still be writing there
 *         another node runs something of it         ──▶ stop that, keep it, wait until it was seen to stand still
 *         nothing runs elsewhere                    ──▶ go on
 *   the new version fails, and what served was stopped for it ──▶ start that again, once nothing else can be writing
 *
 * What is known of a node: its open tasks, how those before ended (Facts.endedWork), and its agent's list of containers if that
 * is newer. An agent that knows the contract alone reports no containers and cannot be told to stop any: what it was given stays
 * where it is until its node is deleted. Pure.
 */
import { LABELS } from '@berth/wire/vocabulary';
import type { ObservedContainer } from '@berth/wire/node';
import { isOnline } from '../domain/placement.ts';
import type { NodeFact } from '../domain/facts.ts';
import type { DeploymentRecord, TaskRecord } from '../domain/records.ts';
import { type Draft, knowsMoreThanContract } from './draft.ts';
import { mayTry } from './retry.ts';
import { createRetireTask } from './tasks.ts';

/** What serves and was told to stop for a newer version. Berth starts it again when that version fails. */
export const isStoppedFirst = (d: Pick<DeploymentRecord, 'status' | 'stopped_first'>): boolean =>
  d.status === 'running' && d.stopped_first !== null;

const IS_STOPPED = 'stopped first: it stands still until the newer version serves or has failed';

type Standing =
  | { is: 'clear' }
  /** A task is open there, whose end will be heard of. */
  | { is: 'busy'; why: string }
  | { is: 'unknown'; why: string }
  | { is: 'runs'; containers: ObservedContainer[] };

/** How many nodes one plan tells to stop. */
const STOPS_A_PLAN = 8;

const STANDS_STILL: readonly string[] = ['created', 'exited', 'dead'];

/** A node that says right now, by a report, that it has no container of these deployments any more. */
export type Said = { node_id: string; gone: readonly string[] };

function standingOn(draft: Draft, node: NodeFact, said: Said | null = null): Standing {
  const gone = said?.node_id === node.id ? said.gone : null;
  const { project, live, endedWork, limits } = draft.facts;
  const work = endedWork.find((w) => w.node_id === node.id);
  const runs = ofProject(node, project.id).filter(
    (c) => !STANDS_STILL.includes(c.state) && gone?.includes(c.labels[LABELS.deployment] ?? '') !== true,
  );
  const serves = live.find((o) => o.status === 'running' && o.node_id === node.id);
  const busy = hasOpenWork(draft, node.id);
  if (work === undefined && runs.length === 0 && serves === undefined && !busy && !losesWork(draft, node.id)) return { is: 'clear' };
  if (!knowsMoreThanContract(node))
    return {
      is: 'unknown',
      why: `${node.hostname} was given it before, and its agent can neither say nor stop what runs there: delete the node to go on`,
    };
  if (busy) return { is: 'busy', why: `${node.hostname} is still at work on it` };
  if (losesWork(draft, node.id)) return { is: 'unknown', why: mayWrite(node) };
  const observed = observedAt(draft, node);
  const unsure = work?.unreported_at ?? null;
  // Told that its task is not its own any more, it clears up: a lease's time is given for that.
  const cleared = unsure === null || (observed > unsure + limits.leaseMs && polledAt(draft, node) > unsure);
  if (!cleared || (work !== undefined && observed <= work.ended_at && gone === null)) return { is: 'unknown', why: mayWrite(node) };
  // One that merely ended would be brought back by its engine or its agent, after a restart say: only what was told to stop stays so.
  const ended = ofProject(node, project.id).filter(
    (c) =>
      serves !== undefined &&
      c.labels[LABELS.deployment] === serves.id &&
      STANDS_STILL.includes(c.state) &&
      serves.stopped_first !== 'stopped',
  );
  const containers = [...runs, ...ended];
  if (containers.length === 0) return { is: 'clear' };
  return isOnline(node, draft.facts.now, limits) ? { is: 'runs', containers } : { is: 'unknown', why: mayWrite(node) };
}

/** By the uptime clock, like the end of work. A later time than the present one is the machine's clock, as an earlier version wrote it. */
const observedAt = ({ facts }: Draft, { observed_at }: NodeFact): number =>
  observed_at === null || observed_at > facts.uptime.at ? Number.NEGATIVE_INFINITY : observed_at;

/** The machine's clock as the uptime clock: exact while it runs evenly; a time in the future is of before it was set back. */
const polledAt = ({ facts }: Draft, { last_polled_at }: NodeFact): number =>
  last_polled_at === null || last_polled_at > facts.now ? Number.NEGATIVE_INFINITY : facts.uptime.at - (facts.now - last_polled_at);

const mayWrite = (node: NodeFact): string =>
  `${node.hostname} has not said yet that nothing of it runs there: it may still be writing there (it goes on when the node is back, or is deleted by force)`;

const ofProject = (node: NodeFact, projectId: string): ObservedContainer[] =>
  node.containers.filter((c) => c.labels[LABELS.project] === projectId);

/** Also work that this very plan makes. */
const hasOpenWork = ({ facts, plan }: Draft, nodeId: string): boolean =>
  plan.createTasks.some((t) => t.node_id === nodeId) ||
  facts.tasks.some((t) => t.node_id === nodeId && t.kind !== 'build' && !plan.tasks.some((c) => c.id === t.id && 'end' in c));

/** Work that this very plan takes away from an agent that has begun it. */
const losesWork = ({ facts, plan }: Draft, nodeId: string): boolean =>
  facts.tasks.some(
    (t) =>
      t.node_id === nodeId &&
      t.kind !== 'build' &&
      t.attempt > 0 &&
      plan.tasks.some((c) => c.id === t.id && 'end' in c && c.report === undefined),
  );

const starts = (task: TaskRecord): boolean => task.kind === 'retire' && 'start' in task.payload && typeof task.payload.start === 'string';

/** `ownWork`: a task that Berth gave out must end first, so the queue's deadline stands still. */
export type NotYet = { ownWork: boolean; why: string };

/**
 * Why the new version must not be started on `target` yet; null: nothing else runs. What runs on other nodes is told to stop,
 * unless a node is among them that cannot be asked: then what serves goes on serving.
 */
export function whyNotYet(draft: Draft, d: DeploymentRecord, target: NodeFact): NotYet | null {
  if (draft.facts.tasks.some((t) => t.node_id === target.id && starts(t)))
    return { ownWork: true, why: `what served is being started again on ${target.hostname}` };
  const others = draft.facts.nodes
    .filter((node) => node.role === 'deploy' && node.id !== target.id)
    .map((node) => ({ node, standing: standingOn(draft, node) }));
  for (const { standing } of others) if (standing.is === 'unknown') return { ownWork: false, why: standing.why };
  for (const { standing } of others) if (standing.is === 'busy') return { ownWork: true, why: standing.why };
  const running = others.flatMap(({ node, standing }) => (standing.is === 'runs' ? [{ node, containers: standing.containers }] : []));
  if (running.length === 0) return null;
  // The others have their turn when these have stopped.
  const first = running.slice(0, STOPS_A_PLAN);
  for (const { node, containers } of first) stop(draft, d, node, containers);
  const names = first.map(({ node }) => node.hostname).join(', ');
  const rest = running.length - first.length;
  const where = rest === 0 ? names : `${names} and ${rest} more`;
  return { ownWork: true, why: `what runs of it on ${where} is stopped first: two versions must never write at once` };
}

function stop(draft: Draft, d: DeploymentRecord, node: NodeFact, containers: readonly ObservedContainer[]): void {
  const reason = `deployment ${d.generation} starts on another node`;
  const ids = [...new Set(containers.flatMap((c) => c.labels[LABELS.deployment] ?? []))];
  createRetireTask(draft, node, {
    of: d,
    remove: [],
    keep: null,
    drain: false,
    stop: ids.map((deployment_id) => ({ deployment_id, reason })),
  });
  const old = draft.facts.live.find((o) => o.status === 'running' && o.node_id === node.id && ids.includes(o.id));
  if (old === undefined || isStoppedFirst(old)) return;
  draft.set(old, { stopped_first: 'asked', waiting: `stopped first: deployment ${d.generation} asked for it` });
  draft.say(old, 'stopped_first', `told to stop before ${reason}: two versions must never write at once`);
}

/** Its node has done as it was told. */
export function wasStopped(draft: Draft, nodeId: string, ids: readonly string[]): void {
  const old = draft.facts.live.find((o) => o.node_id === nodeId && isStoppedFirst(o) && ids.includes(o.id));
  if (old !== undefined) draft.set(old, { stopped_first: 'stopped', waiting: IS_STOPPED });
}

/**
 * What served and was stopped for a version that did not come: started again as soon as nothing else can be writing. Asked for
 * whenever one may have become possible: a deployment left (`leaving`), a task ended, its node reported.
 */
export function startAgain(draft: Draft, { leaving = null, said = null }: { leaving?: string | null; said?: Said | null } = {}): void {
  const { live, nodes } = draft.facts;
  // As this plan leaves them.
  const old = live.find((o) => isStoppedFirst({ ...o, ...draft.plan.deployments.find((c) => c.id === o.id)?.set }));
  const home = draft.node(old?.node_id ?? null);
  if (old === undefined || home === undefined || !knowsMoreThanContract(home) || hasOpenWork(draft, home.id)) return;
  // It takes over, or this comes again when it leaves.
  if (live.some((o) => o.id !== leaving && (o.status === 'built' || o.status === 'deploying'))) return;
  const seen = ofProject(home, draft.facts.project.id).find((c) => c.labels[LABELS.deployment] === old.id);
  const fresh = observedAt(draft, home) > (draft.facts.endedWork.find((w) => w.node_id === home.id)?.ended_at ?? 0);
  // It never stopped, or there is nothing left to start.
  if (fresh && (seen === undefined || !STANDS_STILL.includes(seen.state))) return draft.set(old, { stopped_first: null, waiting: null });
  for (const node of nodes) {
    if (node.role !== 'deploy' || node.id === home.id) continue;
    const standing = standingOn(draft, node, said);
    if (standing.is === 'clear') continue;
    const why = standing.is === 'runs' ? `something of it still runs on ${node.hostname}` : standing.why;
    const waiting = `stopped first, and not started again yet: ${why}`;
    if (old.waiting === waiting) return;
    draft.set(old, { waiting });
    return draft.say(old, 'stopped_first', `it stays stopped on ${home.hostname} for now: ${why}`);
  }
  if (!mayTry(draft, old)) return;
  createRetireTask(draft, home, { of: old, remove: [], keep: null, drain: false, start: old.id });
  draft.say(old, 'started_again', `the version that it was stopped for did not come: it is started again on ${home.hostname}`);
}
