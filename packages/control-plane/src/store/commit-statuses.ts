/**
 * The outbox of commit statuses. A plan adds a status in the transaction that changes the
 * deployment, and a loop sends it.
 */
import { type FailureCode, isFailureCode } from '@berth/wire/errors';
import type { Plan } from '../domain/deployments/plan.ts';
import {
  type CommitState,
  MAX_WAITING_STATUSES,
  replacedText,
  STATUS_KEPT_MS,
  STATUS_LIFETIME_MS,
  type StatusClaim,
  type StatusRecord,
  type StatusStore,
  statusOf,
} from '../domain/git/commit-statuses.ts';
import type { PushChange } from '../domain/git/hooks.ts';
import type { Database } from './engine/database.ts';
import type { Db, NewRow, Row, Tx } from './engine/tables.ts';
import { writeEvents } from './events.ts';
import { writeStoryLine } from './story.ts';

type StatusRow = Row<'commit_statuses'>;
/**
 * A deployment can replace the pushes of several commits. Each of these commits needs its own row
 * beside the rows of the deployment.
 */
const stateOfReplaced = (commit: string): StatusRow['state'] => `failure of ${commit}`;
const stateOf = ({ state }: StatusRow): CommitState =>
  state === 'pending' || state === 'success' ? state : 'failure';
const recordOf = (row: StatusRow): StatusRecord => ({ ...row, state: stateOf(row) });
const SWEPT_AT_ONCE = 500;

export const createStatusStore = (db: Database): StatusStore => ({
  claim: (at, most) => claimStatuses(db, at, most),
  sent: (claim, now) => end(db, claim, { done_at: now, error: null }),
  retry: (claim, nextAt, error) => retryStatus(db, claim, nextAt, error),
  giveUp: (claim, error, now) => giveUpStatus(db, claim, error, now),
  repeatNewest: (overtaken, uptime) => repeatNewestStatus(db, overtaken, uptime),
  drop: (seq) => dropStatuses(db, seq),
  ofDeployment: (deploymentId) => statusOfDeployment(db, deploymentId),
  countWaiting: () => countWaitingStatuses(db),
  sweep: (now) => sweepStatuses(db, now),
});

async function claimStatuses(
  db: Database,
  { uptime, until }: { uptime: number; until: number },
  most: number,
): Promise<StatusRecord[]> {
  // Selects the newest due status of each commit for which no status is being sent.
  const due = await db.kysely
    .selectFrom('commit_statuses as s')
    .select(['seq', 'project_id', 'commit'])
    .where('done_at', 'is', null)
    .where('next_at', '<=', uptime)
    .where(({ not, exists, selectFrom }) =>
      not(
        exists(
          selectFrom('commit_statuses as o')
            .select('o.seq')
            .whereRef('o.project_id', '=', 's.project_id')
            .whereRef('o.commit', '=', 's.commit')
            .where('o.done_at', 'is', null)
            .where((eb) =>
              eb.or([eb('o.seq', '>', eb.ref('s.seq')), eb('o.claimed_until', '>', uptime)]),
            ),
        ),
      ),
    )
    .orderBy('seq')
    .limit(most)
    .execute();
  const claimed: StatusRecord[] = [];
  const isFree = (row: { claimed_until: number | null }): boolean =>
    (row.claimed_until ?? 0) <= uptime;
  for (const newest of due) {
    const row = await db.write(async (tx) => {
      // Takes a lock, because a second control plane could claim a status of this commit at the
      // same time.
      await db.capabilities.lockName(tx, `statuses:${newest.project_id}`);
      const present = await tx
        .selectFrom('commit_statuses')
        .select(['seq', 'claimed_until'])
        .where('project_id', '=', newest.project_id)
        .where('commit', '=', newest.commit)
        .where('done_at', 'is', null)
        .orderBy('seq')
        .execute();
      if (present.at(-1)?.seq !== newest.seq || !present.every(isFree)) return undefined;
      const older = present.slice(0, -1).map((one) => one.seq);
      if (older.length > 0)
        await tx.deleteFrom('commit_statuses').where('seq', 'in', older).execute();
      return tx
        .updateTable('commit_statuses')
        .set({ claimed_until: until })
        .where('seq', '=', newest.seq)
        .returningAll()
        .executeTakeFirst();
    });
    if (row !== undefined) claimed.push(recordOf(row));
  }
  return claimed;
}

function retryStatus(
  db: Database,
  claim: StatusClaim,
  nextAt: number,
  error: string,
): Promise<boolean> {
  return end(db, claim, { next_at: nextAt, error, tries: claim.tries + 1 });
}

function giveUpStatus(
  db: Database,
  claim: StatusClaim,
  error: string,
  now: number,
): Promise<boolean> {
  return db.write(async (tx) => {
    const row = await held(tx, claim)
      .set({ done_at: now, claimed_until: null, error })
      .returningAll()
      .executeTakeFirst();
    if (row === undefined) return false;
    const line = {
      deployment_id: row.deployment_id,
      kind: 'status_not_sent',
      message: `commit status ${row.state} not sent: ${error}`,
    };
    await writeStoryLine(tx, line, now);
    await writeEvents(db, tx, [
      { ...line, at: now, kind: `deployment.${line.kind}`, project_id: row.project_id },
    ]);
    return true;
  });
}

function repeatNewestStatus(
  db: Database,
  { seq, project_id, commit }: Pick<StatusRecord, 'seq' | 'project_id' | 'commit'>,
  uptime: number,
): Promise<void> {
  return db.write(async (tx) => {
    const newest = await tx
      .selectFrom('commit_statuses')
      .select(['seq', 'give_up_at'])
      .where('project_id', '=', project_id)
      .where('commit', '=', commit)
      .orderBy('seq', 'desc')
      .limit(1)
      .executeTakeFirst();
    if (newest === undefined || newest.seq === seq) return;
    // Sends the newest status again: the forge might have received it before an older status that
    // was sent late. A process that is sending the newest status now loses its claim.
    const again = { done_at: null, claimed_until: null, error: null, tries: 0, next_at: uptime };
    const give_up_at = Math.max(newest.give_up_at, uptime + STATUS_LIFETIME_MS);
    await tx
      .updateTable('commit_statuses')
      .set({ ...again, give_up_at })
      .where('seq', '=', newest.seq)
      .execute();
  });
}

async function dropStatuses(db: Database, seq: number): Promise<void> {
  await db.writeOne((kysely) =>
    kysely.deleteFrom('commit_statuses').where('seq', '=', seq).execute(),
  );
}

async function statusOfDeployment(
  db: Database,
  deploymentId: string,
): Promise<StatusRecord | null> {
  const row = await db.kysely
    .selectFrom('commit_statuses')
    .selectAll()
    .where('deployment_id', '=', deploymentId)
    .where('state', 'in', ['pending', 'success', 'failure'])
    .orderBy('seq', 'desc')
    .limit(1)
    .executeTakeFirst();
  return row === undefined ? null : recordOf(row);
}

function countWaitingStatuses(db: Database): Promise<{ count: number; oldest_at: number | null }> {
  return db.kysely
    .selectFrom('commit_statuses')
    .select((eb) => [eb.fn.countAll<number>().as('count'), eb.fn.min('created_at').as('oldest_at')])
    .where('done_at', 'is', null)
    .executeTakeFirstOrThrow();
}

async function sweepStatuses(db: Database, now: number): Promise<number> {
  const old = await db.kysely
    .selectFrom('commit_statuses')
    .select('seq')
    .where('done_at', '<', now - STATUS_KEPT_MS)
    .orderBy('done_at')
    .limit(SWEPT_AT_ONCE)
    .execute();
  const seqs = old.map((row) => row.seq);
  if (seqs.length > 0)
    await db.writeOne((kysely) =>
      kysely.deleteFrom('commit_statuses').where('seq', 'in', seqs).execute(),
    );
  return seqs.length;
}

const held = (db: Db, { seq, claimed_until }: StatusClaim) =>
  db
    .updateTable('commit_statuses')
    .where('seq', '=', seq)
    .where('claimed_until', '=', claimed_until)
    .where('done_at', 'is', null);

async function end(
  db: Database,
  claim: StatusClaim,
  set: Partial<NewRow<'commit_statuses'>>,
): Promise<boolean> {
  const row = await db.writeOne((kysely) =>
    held(kysely, claim)
      .set({ ...set, claimed_until: null })
      .returning('seq')
      .executeTakeFirst(),
  );
  return row !== undefined;
}

type Replaced = NonNullable<PushChange['replaced']>;

/**
 * Adds the statuses of the commits that a plan affects, if their project has a token to send them
 * with.
 */
export async function writeStatuses(tx: Tx, plan: Plan): Promise<void> {
  const ids = [
    ...(plan.createDeployment === null ? [] : [plan.createDeployment.id]),
    ...plan.changeDeployments
      .filter(({ set, from }) => set.status !== undefined && set.status !== from)
      .map(({ id }) => id),
  ];
  const replaced = plan.push?.replaced ?? null;
  if (ids.length === 0 && replaced === null) return;
  const token = await tx
    .selectFrom('git_tokens')
    .select('project_id')
    .where('project_id', '=', plan.project.id)
    .executeTakeFirst();
  if (token === undefined) return;
  if (ids.length > 0) await writeOwn(tx, plan, ids);
  if (replaced !== null) await writeReplaced(tx, plan, replaced);
  await limitWaiting(tx, plan.project.id);
}

/** Adds the statuses of the deployments that the plan creates or changes. */
async function writeOwn(tx: Tx, plan: Plan, ids: string[]): Promise<void> {
  const deployments = await tx
    .selectFrom('deployments')
    .select(['id', 'generation', 'status', 'commit', 'requested_commit', 'error_code'])
    .where('id', 'in', ids)
    .orderBy('generation')
    .execute();
  for (const { id, generation, status, error_code, ...d } of deployments) {
    const commit = d.commit ?? d.requested_commit;
    const why = plan.storyLines.findLast((line) => line.deployment_id === id)?.message ?? null;
    const code: FailureCode | null =
      error_code !== null && isFailureCode(error_code) ? error_code : null;
    const newStatus = statusOf({ generation, status, code, why });
    if (commit !== null && newStatus !== null)
      await add(tx, plan, { ...newStatus, deployment_id: id, commit });
  }
}

/**
 * Adds a status for each replaced commit that has none. A commit that has a deployment already has
 * the status of that deployment.
 */
async function writeReplaced(
  tx: Tx,
  plan: Plan,
  { deployment_id, generation, commits }: Replaced,
): Promise<void> {
  const commitsWithStatus = await tx
    .selectFrom('commit_statuses')
    .select('commit')
    .distinct()
    .where('project_id', '=', plan.project.id)
    .where('commit', 'in', commits)
    .execute();
  const description = replacedText(generation);
  for (const commit of commits)
    if (!commitsWithStatus.some((row) => row.commit === commit))
      await add(tx, plan, { state: stateOfReplaced(commit), description, deployment_id, commit });
}

type NewStatus = Pick<StatusRow, 'state' | 'description' | 'deployment_id' | 'commit'>;
async function add(tx: Tx, plan: Plan, status: NewStatus): Promise<void> {
  await tx
    .insertInto('commit_statuses')
    .values({
      ...status,
      project_id: plan.project.id,
      tries: 0,
      next_at: plan.uptime,
      give_up_at: plan.uptime + STATUS_LIFETIME_MS,
      created_at: plan.now,
    })
    .onConflict((oc) => oc.columns(['deployment_id', 'state']).doNothing())
    .execute();
}

async function limitWaiting(tx: Tx, projectId: string): Promise<void> {
  const surplus = await tx
    .selectFrom('commit_statuses')
    .select('seq')
    .where('project_id', '=', projectId)
    .where('done_at', 'is', null)
    .orderBy('seq', 'desc')
    .offset(MAX_WAITING_STATUSES)
    .limit(1)
    .executeTakeFirst();
  if (surplus === undefined) return;
  await tx
    .deleteFrom('commit_statuses')
    .where('project_id', '=', projectId)
    .where('done_at', 'is', null)
    .where('seq', '<=', surplus.seq)
    .execute();
}
