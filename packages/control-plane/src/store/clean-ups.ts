/**
 * Clean-ups of the registry and their tasks. The tasks belong to no project, so no plan creates or
 * ends them.
 *
 * waiting ──start──▶ running ──report──▶ done, failed          fail: from waiting and running
 *
 * Two rules keep a push and a clean-up apart. Both read and write under the lock WINDOW, so they
 * also hold with several control planes.
 * - `start` does nothing while a build task is open.
 * - commit-plan.ts creates no build task while a clean-up is running or holds builds
 *   (`areBuildsHeld`).
 */
import { failPoint } from '@berth/kit/fail-point';
import {
  type CleanPayload,
  type CleanResult,
  isCleanResult,
  MAX_IMAGES_A_CLEAN_UP,
  MAX_MISSING,
  type RepositoryImages,
} from '@berth/wire/clean-up';
import type { TaskReport } from '@berth/wire/task';
import type { TaskState } from '@berth/wire/vocabulary';
import {
  type CleanUpRecord,
  type CleanUpStore,
  type ImageUse,
  imagesOf,
  lossOf,
  MOST_MISSING,
  repositoryPath,
  type StartOfCleanUp,
} from '../domain/deployments/clean-up.ts';
import type { Overdue } from '../domain/deployments/task-store.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { TaskRecord } from '../domain/platform/records.ts';
import type { Database } from './engine/database.ts';
import type { Row, Tx } from './engine/tables.ts';
import { writeEvents } from './events.ts';
import { newTaskColumns, taskOf } from './rows/task.ts';
import { LIVE_STATES } from './states.ts';
import {
  changeOverdue,
  endReported,
  isClean,
  lostAt,
  repeatedReport,
  taskRow,
} from './task-row.ts';

const WINDOW = 'registry window';
/** Number of clean-ups and of their tasks to keep. */
const KEPT = 100;
const LONGEST_ERROR = 1_000;
/** Maximum number of kept images that one clean-up checks. */
const MAX_CHECKED = 2_000;
const DIGESTS_A_STATEMENT = 200;
const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const recordOf = ({ holds_builds, ...row }: Row<'clean_ups'>): CleanUpRecord => ({
  ...row,
  holds_builds: holds_builds === 1,
});

export function createCleanUpStore(db: Database): CleanUpStore {
  return {
    request: (input, now) => requestCleanUp(db, input, now),
    open: () => openCleanUp(db),
    last: () => lastCleanUp(db),
    list: () => listCleanUps(db),
    holdBuilds: (id) => holdBuilds(db, id),
    setWaiting: (id, waiting) => setCleanUpWaiting(db, id, waiting),
    start: (input, now) => startCleanUp(db, input, now),
    fail: (id, error, now) => failCleanUp(db, id, error, now),
    endTask: (taskId, leaseToken, report, now) => endCleanTask(db, taskId, leaseToken, report, now),
    loseTask: (task, why, now, offerUntil) => loseCleanTask(db, task, why, now, offerUntil),
  };
}

async function endCleanUp(
  db: Database,
  tx: Tx,
  id: string,
  set: Partial<Row<'clean_ups'>> & { state: 'done' | 'failed' },
  now: number,
): Promise<void> {
  const ended = await tx
    .updateTable('clean_ups')
    .set({ ...set, waiting: null, holds_builds: 0, finished_at: now })
    .where('id', '=', id)
    .where('finished_at', 'is', null)
    .returning('id')
    .executeTakeFirst();
  if (ended === undefined) return;
  const message =
    set.state === 'done'
      ? `clean-up of the registry: ${set.removed ?? 0} images removed`
      : `clean-up of the registry failed: ${set.error_code ?? ''}`;
  await writeEvents(db, tx, [{ at: now, kind: `clean_up.${set.state}`, message }]);
}

/**
 * Marks the images for deletion, and creates the task. Keeps an image that became needed after
 * `found` was read.
 */
async function readOpenCleanUp(
  tx: Tx,
  input: StartOfCleanUp,
  found: Found,
  now: number,
): Promise<void> {
  const needed = new Set(await imagesNeededNow(tx, found.lastOrdinal));
  const repositories: RepositoryImages[] = [];
  let [images, left, checked] = [0, 0, 0];
  for (const one of found.repositories) {
    const removable = one.remove.filter((digest) => !needed.has(`${one.repository} ${digest}`));
    const remove = removable.slice(0, MAX_IMAGES_A_CLEAN_UP - images);
    images += remove.length;
    left += removable.length - remove.length;
    // Kept images are checked too, up to MAX_CHECKED. Beyond this limit they are listed only where
    // images are deleted, to protect them from deletion.
    if (remove.length === 0 && checked + one.keep.length > MAX_CHECKED) continue;
    checked += one.keep.length;
    repositories.push({ ...one, remove });
    for (const digests of slices(remove))
      await tx
        .updateTable('deployments')
        .set((eb) => ({
          image_removed_at: eb.fn.coalesce('image_removed_at', eb.val(now)),
          image_deleting: 1,
          image_missing: null,
        }))
        .where('image_digest', 'in', digests)
        .where('project_id', 'in', found.projectsOf.get(one.repository) ?? [''])
        .execute();
  }
  const payload: CleanPayload = { clean_up_id: input.id, repositories };
  const { taskId, nodeId, queue_deadline_at, wall_deadline_at } = input;
  const task = {
    id: taskId,
    kind: 'clean' as const,
    deployment_id: null,
    node_id: nodeId,
    queue_deadline_at,
    wall_deadline_at,
    payload,
  };
  await tx
    .insertInto('tasks')
    .values(newTaskColumns(task, null, now))
    .execute();
  await tx
    .updateTable('clean_ups')
    .set({
      state: 'running',
      holds_builds: 1,
      waiting: null,
      task_id: taskId,
      node_id: nodeId,
      images,
      images_left: left,
      started_at: now,
    })
    .where('id', '=', input.id)
    .execute();
}

function requestCleanUp(
  db: Database,
  { id, by }: { id: string; by: string | null },
  now: number,
): Promise<CleanUpRecord> {
  return db.write(async (tx) => {
    await db.capabilities.lockName(tx, WINDOW);
    const open = await openRow(tx);
    if (open !== undefined) return recordOf(open);
    await trim(tx);
    const row = await tx
      .insertInto('clean_ups')
      .values({
        id,
        state: 'waiting',
        requested_by: by,
        holds_builds: by === null ? 0 : 1,
        images: 0,
        images_left: 0,
        requested_at: now,
      })
      .returningAll()
      .executeTakeFirstOrThrow();
    return recordOf(row);
  });
}

async function openCleanUp(db: Database): Promise<CleanUpRecord | null> {
  const row = await openRow(db.kysely);
  return row === undefined ? null : recordOf(row);
}

async function lastCleanUp(db: Database): Promise<CleanUpRecord | null> {
  const row = await db.kysely
    .selectFrom('clean_ups')
    .selectAll()
    .where('finished_at', 'is not', null)
    .orderBy('requested_at', 'desc')
    .limit(1)
    .executeTakeFirst();
  return row === undefined ? null : recordOf(row);
}

async function listCleanUps(db: Database): Promise<CleanUpRecord[]> {
  const rows = await db.kysely
    .selectFrom('clean_ups')
    .selectAll()
    .orderBy('requested_at', 'desc')
    .limit(KEPT)
    .execute();
  return rows.map(recordOf);
}

async function holdBuilds(db: Database, id: string): Promise<void> {
  await db.write(async (tx) => {
    await db.capabilities.lockName(tx, WINDOW);
    await tx
      .updateTable('clean_ups')
      .set({ holds_builds: 1 })
      .where('id', '=', id)
      .where('finished_at', 'is', null)
      .execute();
  });
}

async function setCleanUpWaiting(db: Database, id: string, waiting: string): Promise<void> {
  await db.writeOne((kysely) =>
    kysely
      .updateTable('clean_ups')
      .set({ waiting })
      .where('id', '=', id)
      .where('state', '=', 'waiting')
      .execute(),
  );
}

async function startCleanUp(
  db: Database,
  input: StartOfCleanUp,
  now: number,
): Promise<'started' | 'builds' | 'changed'> {
  const images = await imagesOfAll(db, input.keepReleases);
  const result = await db.write(async (tx) => {
    await db.capabilities.lockName(tx, WINDOW);
    const row = await tx
      .selectFrom('clean_ups')
      .select('state')
      .where('id', '=', input.id)
      .executeTakeFirst();
    if (row?.state !== 'waiting') return 'changed' as const;
    const build = await tx
      .selectFrom('tasks')
      .select('id')
      .where('kind', '=', 'build')
      .where('finished_at', 'is', null)
      .limit(1)
      .executeTakeFirst();
    if (build !== undefined) return 'builds' as const;
    await readOpenCleanUp(tx, input, images, now);
    await failPoint('clean-up.start.before');
    return 'started' as const;
  });
  if (result === 'started') await failPoint('clean-up.start.after');
  return result;
}

async function failCleanUp(
  db: Database,
  id: string,
  { code, message }: { code: string; message: string },
  now: number,
): Promise<void> {
  await db.write(async (tx) => {
    await db.capabilities.lockName(tx, WINDOW);
    await endCleanUp(
      db,
      tx,
      id,
      { state: 'failed', error_code: code, error_message: message.slice(0, LONGEST_ERROR) },
      now,
    );
  });
}

async function endCleanTask(
  db: Database,
  taskId: string,
  leaseToken: string | null,
  report: TaskReport,
  now: number,
): Promise<{ status: TaskState }> {
  const done = await db.write(async (tx) => {
    await db.capabilities.lockName(tx, WINDOW);
    const task = await endReported(tx, isClean, { id: taskId, leaseToken, report }, now);
    if (task === undefined) return null;
    const payload = JSON.parse(task.payload) as CleanPayload;
    await endCleanUp(db, tx, payload.clean_up_id, await applied(tx, payload, report, now), now);
    await failPoint('clean-up.report.before');
    return task.status;
  });
  await failPoint('clean-up.report.after');
  return {
    status: done ?? repeatedReport(taskOf(await taskRow(db.kysely, taskId)), leaseToken, report),
  };
}

function loseCleanTask(
  db: Database,
  task: TaskRecord,
  why: 'queue' | 'lease' | 'wall' | 'attempts',
  now: number,
  offerUntil: number,
): Promise<boolean> {
  return db.write(async (tx) => {
    await db.capabilities.lockName(tx, WINDOW);
    const again = why === 'lease';
    const set = again
      ? {
          status: 'pending' as const,
          lease_token: null,
          lease_expires_at: null,
          queue_deadline_at: offerUntil,
        }
      : lostAt(now);
    const lost = await changeOverdue(tx, isClean, { task, why, set });
    if (lost === undefined) return false;
    if (again) return true;
    const { clean_up_id } = JSON.parse(lost.payload) as CleanPayload;
    const { code, message } = LOST[why];
    await endCleanUp(
      db,
      tx,
      clean_up_id,
      { state: 'failed', error_code: code, error_message: message },
      now,
    );
    return true;
  });
}

const LOST: Record<Overdue, { code: string; message: string }> = {
  queue: {
    code: 'task_not_claimed',
    message: 'the agent of the registry’s machine did not take the clean-up in time',
  },
  lease: { code: 'node_lost', message: 'the agent of the registry’s machine stopped reporting' },
  wall: { code: 'task_timeout', message: 'the clean-up exceeded its time limit' },
  attempts: {
    code: 'too_many_attempts',
    message: 'the clean-up was started too many times without finishing',
  },
};

/**
 * Returns whether new builds must wait for a clean-up, and takes the lock WINDOW. Call it before a
 * build task is created.
 */
export async function areBuildsHeld(db: Database, tx: Tx): Promise<boolean> {
  await db.capabilities.lockName(tx, WINDOW);
  return holdsBuilds(tx);
}

/** Returns whether new builds must wait for a clean-up, without taking the lock. */
export const holdsBuilds = async (tx: Tx): Promise<boolean> => {
  const row = await openRow(tx);
  return row !== undefined && row.holds_builds === 1;
};

/**
 * Throws no_release if the image of the release (the deployment to roll back to) was removed.
 * Accepts a running release without an image, so that it can still move to a different node.
 */
export async function refuseRemovedImage(db: Database, tx: Tx, releaseId: string): Promise<void> {
  await db.capabilities.lockName(tx, WINDOW);
  const row = await tx
    .selectFrom('deployments')
    .select(['status', 'image_removed_at'])
    .where('id', '=', releaseId)
    .executeTakeFirst();
  if (row !== undefined && row.status !== 'running' && row.image_removed_at !== null)
    throw new DomainError('no_release', IMAGE_REMOVED);
}
const IMAGE_REMOVED = 'its image was removed from the registry while this request ran';

/**
 * Records the digests of a project that is being removed, so that the next clean-up deletes its
 * images.
 */
export async function noteOrphans(tx: Tx, projectId: string, now: number): Promise<void> {
  const rows = await tx
    .selectFrom('deployments')
    .select(['image_tag', 'image_digest'])
    .where('project_id', '=', projectId)
    .where('image_digest', 'is not', null)
    .where((eb) =>
      eb.or([
        eb('image_removed_at', 'is', null),
        eb('image_deleting', '=', 1),
        eb('image_missing', '=', 1),
      ]),
    )
    .execute();
  const images = new Map(
    rows.flatMap(({ image_tag, image_digest }) =>
      image_tag === null || image_digest === null
        ? []
        : [
            [
              `${repositoryPath(image_tag)} ${image_digest}`,
              { repository: repositoryPath(image_tag), digest: image_digest, noted_at: now },
            ],
          ],
    ),
  );
  for (const values of slices([...images.values()]))
    await tx
      .insertInto('orphan_images')
      .values(values)
      .onConflict((oc) => oc.columns(['repository', 'digest']).doNothing())
      .execute();
}

const openRow = (tx: Database['kysely'] | Tx): Promise<Row<'clean_ups'> | undefined> =>
  tx
    .selectFrom('clean_ups')
    .selectAll()
    .where('finished_at', 'is', null)
    .orderBy('requested_at')
    .limit(1)
    .executeTakeFirst();

function* slices<T>(all: readonly T[]): Generator<T[]> {
  for (let at = 0; at < all.length; at += DIGESTS_A_STATEMENT)
    yield all.slice(at, at + DIGESTS_A_STATEMENT);
}

/** Removes old rows wherever rows are added, so that their number is bounded. */
async function trim(tx: Tx): Promise<void> {
  const last = await tx
    .selectFrom('clean_ups')
    .select('requested_at')
    .orderBy('requested_at', 'desc')
    .offset(KEPT)
    .limit(1)
    .executeTakeFirst();
  if (last !== undefined)
    await tx.deleteFrom('clean_ups').where('requested_at', '<=', last.requested_at).execute();
  const task = await tx
    .selectFrom('tasks')
    .select('seq')
    .where(isClean)
    .orderBy('seq', 'desc')
    .offset(KEPT)
    .limit(1)
    .executeTakeFirst();
  if (task !== undefined)
    await tx
      .deleteFrom('tasks')
      .where(isClean)
      .where('seq', '<=', task.seq)
      .where('finished_at', 'is not', null)
      .execute();
}

type Found = {
  repositories: RepositoryImages[];
  projectsOf: Map<string, string[]>;
  lastOrdinal: number;
};

/**
 * Reads one project at a time and yields in between, because there can be a hundred thousand
 * deployments.
 */
async function imagesOfAll(db: Database, keepReleases: number): Promise<Found> {
  const images: Found = {
    repositories: [],
    projectsOf: new Map(),
    lastOrdinal: await lastOrdinal(db.kysely),
  };
  const byName = new Map<string, RepositoryImages>();
  const projects = await db.kysely.selectFrom('projects').select('id').orderBy('id').execute();
  for (const { id } of projects) {
    const rows = await db.kysely
      .selectFrom('deployments')
      .select([
        'generation',
        'status',
        'image_tag',
        'image_digest',
        'image_removed_at',
        'image_deleting',
        'image_missing',
      ])
      .where('project_id', '=', id)
      .where('image_tag', 'is not', null)
      .where((eb) =>
        eb.or([
          eb('image_removed_at', 'is', null),
          eb('image_deleting', '=', 1),
          eb('image_missing', '=', 1),
          eb('status', 'in', [...LIVE_STATES]),
        ]),
      )
      .execute();
    const uses = rows.map(
      ({ image_deleting, image_missing, ...row }): ImageUse => ({
        ...row,
        image_deleting: image_deleting === 1,
        image_missing: image_missing === 1,
      }),
    );
    for (const one of imagesOf(uses, keepReleases)) {
      images.projectsOf.set(one.repository, [...(images.projectsOf.get(one.repository) ?? []), id]);
      byName.set(one.repository, merged(byName.get(one.repository), one));
    }
    await nextTurn();
  }
  const orphans = await db.kysely
    .selectFrom('orphan_images')
    .select(['repository', 'digest'])
    .orderBy('noted_at')
    .limit(10 * MAX_IMAGES_A_CLEAN_UP)
    .execute();
  for (const [repository, rows] of Map.groupBy(orphans, (o) => o.repository))
    byName.set(
      repository,
      merged(byName.get(repository), {
        repository,
        remove: rows.map((o) => o.digest),
        keep: [],
        keep_tags: [],
      }),
    );
  images.repositories = [...byName.values()];
  return images;
}

/**
 * Keeps an image if any project needs it: two projects might have had the same repository, one
 * after the other.
 */
function merged(one: RepositoryImages | undefined, other: RepositoryImages): RepositoryImages {
  if (one === undefined) return other;
  const keep = [...new Set([...one.keep, ...other.keep])];
  const remove = [...new Set([...one.remove, ...other.remove])].filter(
    (digest) => !keep.includes(digest),
  );
  return {
    repository: one.repository,
    remove,
    keep,
    keep_tags: [...new Set([...one.keep_tags, ...other.keep_tags])],
  };
}

async function lastOrdinal(tx: Database['kysely']): Promise<number> {
  const row = await tx
    .selectFrom('deployments')
    .select((eb) => eb.fn.max('ordinal').as('last'))
    .executeTakeFirst();
  return row?.last ?? 0;
}

/**
 * Returns the images of deployments that have not ended, and of deployments requested after
 * `since`.
 */
async function imagesNeededNow(tx: Tx, since: number): Promise<string[]> {
  const rows = await tx
    .selectFrom('deployments')
    .select(['image_tag', 'image_digest'])
    .where('image_digest', 'is not', null)
    .where((eb) => eb.or([eb('status', 'in', [...LIVE_STATES]), eb('ordinal', '>', since)]))
    .execute();
  return rows.flatMap(({ image_tag, image_digest }) =>
    image_tag === null ? [] : [`${repositoryPath(image_tag)} ${image_digest}`],
  );
}

const NOTHING_DELETED: ReadonlySet<string> = new Set([
  'registry_delete_disabled',
  'registry_other',
]);

/** Applies the report to the images, and returns the final state of the clean-up. */
async function applied(
  tx: Tx,
  payload: CleanPayload,
  report: TaskReport,
  now: number,
): Promise<Partial<Row<'clean_ups'>> & { state: 'done' | 'failed' }> {
  const { result } = report;
  if (report.status === 'completed' && isCleanResult(result)) {
    const kept = payload.repositories.reduce((sum, { keep }) => sum + keep.length, 0);
    const loss = lossOf(result, kept);
    // Images that were marked for deletion stay marked: the registry did not have them either.
    if (loss !== null)
      return {
        state: 'failed',
        missing: result.missing.length,
        error_code: MOST_MISSING,
        error_message: loss,
      };
    // A registry without its disk has no image and deletes none. Absent images are believed only if
    // the registry deleted, or still has, at least one image.
    const isShown = result.removed > 0 || kept > result.missing.length;
    for (const { repository, remove } of isShown ? payload.repositories : [])
      for (const digests of slices(remove)) {
        await tx
          .updateTable('deployments')
          .set({ image_deleting: null })
          .where('image_digest', 'in', digests)
          .where('image_deleting', '=', 1)
          .execute();
        await tx
          .deleteFrom('orphan_images')
          .where('repository', '=', repository)
          .where('digest', 'in', digests)
          .execute();
      }
    await markFound(tx, payload, result.missing);
    // The registry lost these images, or the database is older than the registry. A rollback to
    // them would fail. The next clean-up checks them again.
    for (const { repository, digest } of result.missing)
      await tx
        .updateTable('deployments')
        .set({ image_removed_at: now, image_missing: 1 })
        .where('image_digest', '=', digest)
        .where('image_tag', 'like', `%/${repository}:%`)
        .where('image_removed_at', 'is', null)
        .where('status', 'in', ['retired', 'failed', 'cancelled', 'superseded'])
        .execute();
    const { removed, missing, bytes_before, bytes_after } = result;
    return { state: 'done', removed, missing: missing.length, bytes_before, bytes_after };
  }
  const error = errorIn(report);
  // This clean-up deleted no image, so remove the marks that it set: a rollback to these images is
  // possible. Marks of older clean-ups stay, because those might have deleted the image.
  const marked = await tx
    .selectFrom('clean_ups')
    .select('started_at')
    .where('id', '=', payload.clean_up_id)
    .executeTakeFirst();
  if (marked !== undefined && NOTHING_DELETED.has(error.code))
    for (const { remove } of payload.repositories)
      for (const digests of slices(remove))
        await tx
          .updateTable('deployments')
          .set({ image_removed_at: null, image_deleting: null })
          .where('image_digest', 'in', digests)
          .where('image_deleting', '=', 1)
          .where('image_removed_at', '=', marked.started_at)
          .execute();
  return {
    state: 'failed',
    error_code: error.code,
    error_message: error.message.slice(0, LONGEST_ERROR),
  };
}

/** Removes the missing mark of images that the registry has again. */
async function markFound(
  tx: Tx,
  { repositories }: CleanPayload,
  missing: CleanResult['missing'],
): Promise<void> {
  // The list is full: the agent stopped before it had checked all images.
  if (missing.length >= MAX_MISSING) return;
  const lacking = new Set(missing.map((one) => `${one.repository} ${one.digest}`));
  for (const { repository, keep } of repositories)
    for (const digests of slices(keep.filter((digest) => !lacking.has(`${repository} ${digest}`))))
      await tx
        .updateTable('deployments')
        .set({ image_removed_at: null, image_missing: null })
        .where('image_digest', 'in', digests)
        .where('image_tag', 'like', `%/${repository}:%`)
        .where('image_missing', '=', 1)
        .execute();
}

/** Removes all marks of an image that a build pushed: the registry has the image again. */
export async function imagePushed(
  tx: Tx,
  projectId: string,
  { image_tag, image_digest }: PushedImage,
): Promise<void> {
  await tx
    .updateTable('deployments')
    .set({ image_removed_at: null, image_deleting: null, image_missing: null })
    .where('project_id', '=', projectId)
    .where('image_digest', '=', image_digest)
    .where('image_tag', 'like', `%/${repositoryPath(image_tag)}:%`)
    .where('image_removed_at', 'is not', null)
    .execute();
}
export type PushedImage = { image_tag: string; image_digest: string };

function errorIn({ result }: TaskReport): { code: string; message: string } {
  const error = typeof result === 'object' && result !== null ? result.error : undefined;
  return (
    error ?? { code: 'task_failed', message: 'the agent reported no result that Berth understands' }
  );
}
