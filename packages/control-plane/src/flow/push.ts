/**
 * Decides what happens to the pushes of a project. Pure.
 *
 *   delivery ──▶ waits ──▶ a `look` task reads the tip of the branch ──▶ deployed · skipped
 *                  ▲  │                     │ failed or lost: retried after a pause, up to LOOK_TRIES times
 *                  │  └ no agent can look, or looks keep failing: deployed without a look
 *                  └ deliveries that arrived after the look was requested wait for the next one
 *
 * When settings of the project change meanwhile, Berth judges the waiting deliveries again, and
 * ends an open look that reads another branch or repository.
 *
 * At most one look of a project is open. A look covers all deliveries that waited at its start, so
 * many pushes need few looks.
 */
import { LOOK_CAPABILITY, type LookPayload, type LookResult } from '@berth/wire/look';
import type { FailureCode } from '@berth/wire/errors';
import type { TaskReport } from '@berth/wire/task';
import {
  type DeliveryRecord,
  type PushChange,
  type Pushes,
  REPLACED,
} from '../domain/git/hooks.ts';
import type { Facts, NodeFact } from '../domain/deployments/facts.ts';
import { withConfig } from '../domain/projects/config-file.ts';
import { refusalOf } from '../domain/nodes/placement.ts';
import type { Plan } from '../domain/deployments/plan.ts';
import type { DeploymentRecord, TaskRecord } from '../domain/platform/records.ts';
import { stableJson } from '../domain/platform/stable-json.ts';
import { judgeAgain } from './delivery.ts';
import { createDraft, type Draft } from './plan-draft.ts';
import type { LossReason } from './events.ts';
import { MAX_SUPERSEDED_BUILDS, isBefore, request } from './deployment.ts';
import { failureOf } from './failure.ts';

/**
 * Number of failed `look` tasks in a row after which Berth deploys without reading the tip of the
 * branch.
 */
const LOOK_TRIES = 4;
/** Pauses in ms after the first, second, … failed `look` task. */
const LOOK_PAUSES = [2_000, 10_000, 30_000];
/**
 * Temporary failures: a later `look` task might succeed. After any other failure Berth does not try
 * again.
 */
const PASSING: readonly FailureCode[] = [
  'git_unreachable',
  'git_timeout',
  'git_failed',
  'disk_full',
  'cancelled',
  'task_failed',
];
const MAX_BASES = 10;

/**
 * Creates a `look` task if deliveries wait and no such task is open. Returns null if no change is
 * necessary or possible now.
 */
export function checkPushes(pushes: Pushes | null, facts: Facts): Plan | null {
  const { project, tasks, uptime, limits } = facts;
  if (pushes === null || pushes.waiting.length === 0 || project.deleting_at !== null) return null;
  if (isHalted(project)) return skipStopped({ covered: pushes.waiting }, facts);
  const outdated = judgedAgain(pushes, facts);
  if (outdated !== null) return outdated;
  if (
    tasks.some((t) => t.kind === 'look') ||
    pushes.hook.look_not_before > uptime.at ||
    mustWait(facts)
  )
    return null;
  const node = chooseLooker(pushes.hook.look_failed_on, facts);
  if (node === null)
    return deploy(
      {
        pushes,
        covered: pushes.waiting,
        tip: null,
        unlooked: 'no builder that can check the branch is online',
      },
      facts,
    );
  const draft = createDraft(facts, 'look');
  draft.createTask({
    kind: 'look',
    deployment_id: null,
    node_id: node.id,
    queue_deadline_at: uptime.at + limits.claimMs,
    wall_deadline_at: uptime.at + limits.lookMs,
    payload: {
      project_id: project.id,
      project: project.name,
      ...lookedAt(watched(facts)),
      bases: watched(facts).watch_paths.length === 0 ? [] : basesOf(facts).slice(0, MAX_BASES),
    },
  });
  draft.plan.push = {
    set: { look_upto: pushes.waiting.at(-1)?.seq ?? 0 },
    verdicts: [],
    replaced: null,
  };
  return draft.plan;
}

/**
 * Returns whether the `look` task must wait because a new request would not supersede the build in
 * progress. A task now would only queue a deployment that a later push replaces.
 */
const mustWait = ({ live }: Facts): boolean =>
  live.some(
    (d) =>
      d.status !== 'pending' && isBefore(d.status) && d.builds_given_up >= MAX_SUPERSEDED_BUILDS,
  );

/**
 * Returns an eligible builder. Avoids the builder whose `look` task failed last, and prefers the
 * builder of the last build.
 */
function chooseLooker(
  failedOn: string | null,
  { nodes, lastBuilderId, now, limits }: Facts,
): NodeFact | null {
  const able = nodes.filter(
    (n) =>
      n.role === 'builder' &&
      n.capabilities?.includes(LOOK_CAPABILITY) === true &&
      refusalOf({ ...n, engine: null }, [], now, limits) === null,
  );
  const order = (n: NodeFact): number =>
    2 * Number(n.id === failedOn) - Number(n.id === lastBuilderId);
  return (
    able.toSorted((a, b) => order(a) - order(b) || (a.hostname < b.hostname ? -1 : 1))[0] ?? null
  );
}

const commitOf = (d: DeploymentRecord): string | null => d.commit ?? d.requested_commit;
/** Returns the commits that run or might run soon. */
const basesOf = ({ live }: Facts): string[] => [
  ...new Set(live.map(commitOf).filter((c) => c !== null)),
];

type Looked = Pick<LookPayload, 'git_url' | 'branch' | 'watch_paths'>;
/** Returns the project’s settings; paths in berth.toml of the version that serves win. */
const watched = ({ project, live }: Pick<Facts, 'project' | 'live'>): Looked =>
  withConfig(project, live.find((d) => d.status === 'running') ?? null);
const lookedAt = ({ git_url, branch, watch_paths }: Looked): Looked => ({
  git_url,
  branch,
  watch_paths,
});
/**
 * Returns whether the `look` task reads the repository, branch and paths of the present settings.
 */
const isPresent = ({ payload }: TaskRecord, project: Looked): boolean =>
  'watch_paths' in payload && stableJson(lookedAt(payload)) === stableJson(lookedAt(project));

/**
 * Skips the waiting deliveries that the present settings do not deploy, and ends an open `look`
 * task that does not match these settings. Returns null if neither is necessary.
 */
function judgedAgain({ waiting }: Pushes, facts: Facts): Plan | null {
  const { project, tasks } = facts;
  const { plan, task: end } = createDraft(facts, 'look');
  const skipped = waiting
    .map((d) => ({ id: d.id, why: judgeAgain(d, project) }))
    .filter(({ why }) => why !== null);
  const remaining = waiting.length - skipped.length;
  const looks = tasks.filter(
    (t) => t.kind === 'look' && (remaining === 0 || !isPresent(t, watched(facts))),
  );
  for (const look of looks) end({ id: look.id, attempt: look.attempt, end: 'cancelled' });
  if (skipped.length + looks.length === 0) return null;
  const verdicts = skipped.map(({ id, why }) => ({
    delivery_id: id,
    verdict: 'skipped' as const,
    reason: why,
    deployment_id: null,
  }));
  // If this ended a `look` task, reset the failure count: the failures belong to the previous
  // settings.
  plan.push = { set: looks.length > 0 ? DONE : {}, verdicts, replaced: null };
  return plan;
}

/** Applies the report of a `look` task. `pushes` is null if the hook was deleted meanwhile. */
export function lookReported(
  task: TaskRecord,
  report: TaskReport,
  pushes: Pushes | null,
  facts: Facts,
): Plan {
  const ended = (plan: Plan): Plan => {
    plan.changeTasks.push({ id: task.id, attempt: task.attempt, end: report.status, report });
    return plan;
  };
  const covered = pushes?.waiting.filter((d) => d.seq <= pushes.hook.look_upto) ?? [];
  if (pushes === null || covered.length === 0) return ended(createDraft(facts, 'look').plan);
  const others = facts.tasks.filter((t) => t.id !== task.id);
  const outdated = judgedAgain(pushes, { ...facts, tasks: others });
  // The `look` task does not match the present settings: the remaining deliveries get a new task.
  if (outdated !== null || !isPresent(task, watched(facts)))
    return ended(outdated ?? createDraft(facts, 'look').plan);
  if (report.status === 'failed') {
    const { code, message } = failureOf(report);
    if (code === 'git_unknown_branch')
      return ended(skip({ pushes, covered, tip: null, reason: message, by: null }, facts));
    return ended(
      lookFailed(
        { pushes, covered, why: message, isPassing: PASSING.includes(code), on: task.node_id },
        facts,
      ),
    );
  }
  if (isHalted(facts.project)) return ended(skipStopped({ covered }, facts));
  const tip = report.commit ?? null;
  // checkReport (report.ts) has checked the commit and the result.
  const why = tip === null ? null : whyToSkip(tip, report.result as LookResult, facts);
  return ended(
    why === null
      ? deploy({ pushes, covered, tip, unlooked: null }, facts)
      : skip({ pushes, covered, tip, ...why }, facts),
  );
}

const LOSS_TEXTS: Record<LossReason, string> = {
  queue: 'did not claim the check',
  lease: 'stopped reporting',
  wall: 'did not end the check in time',
  attempts: 'did not end the check in time',
};

/** Handles a `look` task that its node did not claim, renew or end in time. */
export function lookLost(
  task: TaskRecord,
  why: LossReason,
  pushes: Pushes | null,
  facts: Facts,
): Plan {
  const covered = pushes?.waiting.filter((d) => d.seq <= pushes.hook.look_upto) ?? [];
  const name = facts.nodes.find((n) => n.id === task.node_id)?.hostname ?? task.node_id;
  const text = `${name} ${LOSS_TEXTS[why]}`;
  const plan =
    pushes === null || covered.length === 0 || !isPresent(task, watched(facts))
      ? createDraft(facts, 'look').plan
      : lookFailed({ pushes, covered, why: text, isPassing: true, on: task.node_id }, facts);
  const lease =
    why === 'lease' || why === 'attempts' ? { lease_expires_at: task.lease_expires_at } : {};
  plan.changeTasks.push({ id: task.id, attempt: task.attempt, end: 'lost', ...lease });
  return plan;
}

/** Ends the open `look` tasks of a project that is being deleted. */
export function endLooks(facts: Facts): Plan {
  const draft = createDraft(facts, 'look');
  for (const task of facts.tasks)
    if (task.kind === 'look') draft.task({ id: task.id, attempt: task.attempt, end: 'cancelled' });
  return draft.plan;
}

type Failed = {
  pushes: Pushes;
  covered: DeliveryRecord[];
  why: string;
  isPassing: boolean;
  on: string;
};
function lookFailed({ pushes, covered, why, isPassing, on }: Failed, facts: Facts): Plan {
  const tries = pushes.hook.look_tries + 1;
  const pause = LOOK_PAUSES[tries - 1];
  if (!isPassing || tries >= LOOK_TRIES || pause === undefined)
    return deploy({ pushes, covered, tip: null, unlooked: why }, facts);
  const { plan } = createDraft(facts, 'look');
  plan.push = {
    set: { look_tries: tries, look_not_before: facts.uptime.at + pause, look_failed_on: on },
    verdicts: [],
    replaced: null,
  };
  return plan;
}

/** Why a tip is not deployed. `by`: the deployment that already has the tip. */
type Skip = { reason: string; by: DeploymentRecord | null };

/** A push never starts a stopped project; only a person does. */
const IS_STOPPED = 'the project is stopped; deploy it to start it with this commit';

/**
 * Returns why the tip is not deployed, or null to deploy it. Unknown facts count as a reason to
 * deploy.
 */
function whyToSkip(tip: string, result: LookResult, facts: Facts): Skip | null {
  const { live } = facts;
  const newest = live.at(-1);
  const short = tip.slice(0, 12);
  if (newest !== undefined && commitOf(newest) === tip)
    return {
      reason:
        newest.status === 'running'
          ? `commit ${short} is already live as deployment ${newest.generation}`
          : `deployment ${newest.generation} already deploys commit ${short}`,
      by: newest,
    };
  if (result.skip_mark !== null)
    return { reason: `the message of commit ${short} contains ${result.skip_mark}`, by: null };
  const { watch_paths } = watched(facts);
  if (watch_paths.length === 0 || live.length === 0) return null;
  const isSame = (d: DeploymentRecord): boolean =>
    result.changes.find((c) => c.base === commitOf(d))?.changed === false;
  return live.every(isSame)
    ? {
        reason: `nothing under ${watch_paths.join(', ')} changed up to commit ${short}`,
        by: null,
      }
    : null;
}

type Outcome = { pushes: Pushes; covered: DeliveryRecord[]; tip: string | null };

function deploy(
  { pushes, covered, tip, unlooked }: Outcome & { unlooked: string | null },
  facts: Facts,
): Plan {
  if (isHalted(facts.project)) return skipStopped({ covered }, facts);
  // Take the last fresh id, because `request` takes its ids from the start of the list.
  const id = facts.freshIds.at(-1);
  const newest = covered.at(-1);
  if (id === undefined || newest === undefined)
    throw new Error(`a push of project ${facts.project.id} has no delivery or no id`);
  const from =
    tip === null
      ? `branch ${facts.project.branch}`
      : `commit ${tip} of branch ${facts.project.branch}`;
  const note = unlooked === null ? '' : ` (not looked: ${unlooked})`;
  const why = `requested by a push: ${from}${note}`;
  const by = { kind: 'hook', id: newest.id, name: pushes.hook.forge } as const;
  const plan = request(
    { id, commit: tip, note: null, release: null, by, trigger: 'hook', why },
    facts,
  );
  const reason = unlooked === null ? null : `not looked: ${unlooked}`;
  plan.push = {
    ...verdicts(covered, tip, { verdict: 'deployed', reason, deployment_id: id }),
    replaced: replaced(covered, tip, plan.createDeployment, facts),
  };
  return plan;
}

function skip({ covered, tip, reason, by }: Outcome & Skip, facts: Facts): Plan {
  const { plan }: Draft = createDraft(facts, 'look');
  plan.push = {
    ...verdicts(covered, tip, { verdict: 'skipped', reason, deployment_id: by?.id ?? null }),
    replaced: replaced(covered, tip, by, facts),
  };
  return plan;
}

/**
 * Deploy to a project that is scaled to 0 too, so that the new version is ready when somebody
 * scales it up, unless a person stopped it.
 */
const isHalted = ({ stopped_at, stopped_by_person }: Facts['project']): boolean =>
  stopped_at !== null && stopped_by_person;

/**
 * Skips all covered deliveries because the project is stopped. None of them is replaced by a newer
 * push.
 */
function skipStopped({ covered }: Pick<Outcome, 'covered'>, facts: Facts): Plan {
  const { plan }: Draft = createDraft(facts, 'look');
  const verdict = { verdict: 'skipped' as const, reason: IS_STOPPED, deployment_id: null };
  plan.push = {
    set: DONE,
    verdicts: covered.map((d) => ({ delivery_id: d.id, ...verdict })),
    replaced: null,
  };
  return plan;
}

/**
 * Returns the replaced deliveries. Without the result of a `look` task the tip is unknown, and the
 * newest delivery counts as the tip.
 */
function replaced(
  covered: readonly DeliveryRecord[],
  tip: string | null,
  by: Pick<DeploymentRecord, 'id' | 'generation'> | null,
  { live }: Facts,
): PushChange['replaced'] {
  // Exclude commits that have a deployment: they get the commit status of that deployment.
  const others = [tip ?? covered.at(-1)?.commit, ...live.map(commitOf)];
  const commits = [...new Set(covered.map((d) => d.commit))]
    .filter((c) => c !== null)
    .filter((c) => !others.includes(c));
  return by === null || commits.length === 0
    ? null
    : { deployment_id: by.id, generation: by.generation, commits };
}

const DONE = { look_tries: 0, look_not_before: 0, look_failed_on: null };

/**
 * Gives the verdict to the newest delivery and to all deliveries of the tip. All other deliveries
 * get the verdict that a newer push replaced them.
 */
function verdicts(
  covered: readonly DeliveryRecord[],
  tip: string | null,
  verdict: Omit<PushChange['verdicts'][number], 'delivery_id'>,
): Omit<PushChange, 'replaced'> {
  const isOfTip = (d: DeliveryRecord): boolean =>
    d === covered.at(-1) || (tip !== null && d.commit === tip);
  return {
    set: DONE,
    verdicts: covered.map((d) =>
      isOfTip(d)
        ? { delivery_id: d.id, ...verdict }
        : {
            delivery_id: d.id,
            verdict: 'skipped',
            reason: REPLACED,
            deployment_id: verdict.deployment_id,
          },
    ),
  };
}
