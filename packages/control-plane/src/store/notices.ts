/**
 * The outbox: deliveries of notifications. A notification has at most one unfinished delivery:
 * changes that happen meanwhile stay in `problem_changes` and become one digest.
 */
import { defined } from '@berth/kit/defined';
import {
  COLLECT_MS,
  concerns,
  DIGEST_ITEMS,
  type HeldNotice,
  KEPT_NOTICES,
  type Message,
  messageOf,
  NOTICE_KEPT_MS,
  NOTICE_LIFETIME_MS,
  type NoticeClaim,
  type NoticeItem,
  type NoticeRecord,
  type NotificationRecord,
  PACE,
  PACE_MS,
  SINGLE_MOST,
  TESTS_A_MINUTE,
} from '../domain/notifications/notifications.ts';
import { seenBy } from '../domain/notifications/problem-texts.ts';
import type { Seen } from '../domain/notifications/problems.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { Page, Paged } from '../domain/platform/page.ts';
import type { Database } from './engine/database.ts';
import type { NewRow, Tx } from './engine/tables.ts';
import type { NewId } from './ids.ts';
import { keyAfter, paged } from './pages.ts';
import { noNotification, noticeOf, notificationOf } from './rows/notification.ts';

const SWEPT_AT_ONCE = 500;

/** Maximum number of changes that one delivery covers. */
const READ_AT_ONCE = 5_000;

const MINUTE_MS = 60_000;

/** Columns of a delivery that is due and has not failed at the current target. */
export const FRESH = { next_at: 0, tries: 0, error: null } as const;

/** Writes the outcome of an attempt, and whether the notification is failing. */
function endTry(
  db: Database,
  claim: NoticeClaim,
  set: Partial<NewRow<'notices'>>,
  fares: Partial<NewRow<'notifications'>> | 'failed',
  now: number,
): Promise<NoticeRecord | null> {
  return db.write(async (tx) => {
    await db.capabilities.lockName(tx, `notification:${claim.notification_id}`);
    const present = await tx
      .selectFrom('notifications')
      .select('target')
      .where('id', '=', claim.notification_id)
      .executeTakeFirst();
    const isOfEarlier = present !== undefined && present.target !== claim.target;
    // Tries again if the target was changed during the attempt. A test is never tried again.
    const isAgain = isOfEarlier && fares === 'failed' && claim.give_up_at > 0;
    const { received } = set;
    const again = { ...FRESH, ...defined({ received }) };
    const row = await tx
      .updateTable('notices')
      .set({ ...(isAgain ? again : set), claimed_until: null })
      .where('seq', '=', claim.seq)
      .where('claimed_until', '=', claim.claimed_until)
      .where('done_at', 'is', null)
      .returningAll()
      .executeTakeFirst();
    if (row === undefined) return null;
    if (isOfEarlier) return noticeOf(row);
    await tx
      .updateTable('notifications')
      .set((eb) =>
        fares === 'failed'
          ? {
              failing_since: eb.fn.coalesce('failing_since', eb.val(now)),
              problem: set.error ?? null,
            }
          : fares,
      )
      .where('id', '=', row.notification_id)
      .execute();
    return noticeOf(row);
  });
}

function composeOne(
  db: Database,
  newId: NewId,
  id: string,
  { now, uptime }: { now: number; uptime: number },
): Promise<number> {
  return db.write(async (tx) => {
    await db.capabilities.lockName(tx, `notification:${id}`);
    const row = await tx
      .selectFrom('notifications')
      .selectAll()
      .where('id', '=', id)
      .executeTakeFirst();
    if (row === undefined) return 0;
    const open = await tx
      .selectFrom('notices')
      .select('seq')
      .where('notification_id', '=', id)
      .where('done_at', 'is', null)
      .executeTakeFirst();
    if (open !== undefined) return 0;
    const notification = notificationOf(row);
    const { last, matching } = await changesIn(tx, notification, { after: row.after, to: null });
    const [first] = matching;
    let to = last;
    if (first !== undefined) {
      const age = now - first.at;
      if (age >= 0 && age < COLLECT_MS) return 0;
      const recent = await tx
        .selectFrom('notices')
        .select((eb) => eb.fn.countAll<number>().as('count'))
        .where('notification_id', '=', id)
        .where('created_at', '>', now - PACE_MS)
        .where('created_at', '<=', now)
        .executeTakeFirstOrThrow();
      if (recent.count >= PACE) return 0;
    }
    const isSingle = matching.length <= SINGLE_MOST;
    const told = isSingle ? matching.slice(0, 1) : matching;
    if (isSingle && matching.length > 1 && first !== undefined) to = first.seq;
    await tx.updateTable('notifications').set({ after: to }).where('id', '=', id).execute();
    if (told.length === 0) return 0;
    const message = await tell(tx, notification, told, { after: row.after, to }, now);
    await tx
      .insertInto('notices')
      .values({
        ...blank(message, now),
        id: newId(),
        notification_id: id,
        next_at: uptime,
        give_up_at: uptime + NOTICE_LIFETIME_MS,
      })
      .execute();
    await removeSurplus(tx, id);
    return 1;
  });
}

export async function composeNotices(
  db: Database,
  newId: NewId,
  clock: { now: number; uptime: number },
): Promise<number> {
  const behind = await db.kysely
    .selectFrom('notifications as n')
    .select('n.id')
    .where('n.after', '<', (eb) =>
      eb
        .selectFrom('problem_changes')
        .select((of) => of.fn.coalesce(of.fn.max('seq'), of.lit(0)).as('last')),
    )
    .where(({ not, exists, selectFrom }) =>
      not(
        exists(
          selectFrom('notices as d')
            .select('d.seq')
            .whereRef('d.notification_id', '=', 'n.id')
            .where('d.done_at', 'is', null),
        ),
      ),
    )
    .execute();
  let made = 0;
  for (const { id } of behind) made += await composeOne(db, newId, id, clock);
  return made;
}

export async function claimNotices(
  db: Database,
  { uptime, until }: { uptime: number; until: number },
  most: number,
): Promise<NoticeRecord[]> {
  const due = await db.kysely
    .selectFrom('notices')
    .select('seq')
    .where('done_at', 'is', null)
    .where('next_at', '<=', uptime)
    .where((eb) => eb.or([eb('claimed_until', 'is', null), eb('claimed_until', '<=', uptime)]))
    .orderBy('next_at')
    .limit(most)
    .execute();
  const claimed: NoticeRecord[] = [];
  for (const { seq } of due) {
    const row = await db.writeOne((kysely) =>
      kysely
        .updateTable('notices')
        .set({ claimed_until: until })
        .where('seq', '=', seq)
        .where('done_at', 'is', null)
        .where('next_at', '<=', uptime)
        .where((eb) => eb.or([eb('claimed_until', 'is', null), eb('claimed_until', '<=', uptime)]))
        .returningAll()
        .executeTakeFirst(),
    );
    if (row !== undefined) claimed.push(noticeOf(row));
  }
  return claimed;
}

export function takeClaimed(
  db: Database,
  { seq, claimed_until, notification_id }: HeldNotice,
): Promise<{ notification: NotificationRecord; notice: NoticeRecord } | null> {
  return db.snapshot(async (tx) => {
    const row = await tx
      .selectFrom('notifications')
      .selectAll()
      .where('id', '=', notification_id)
      .executeTakeFirst();
    const notice = await tx
      .selectFrom('notices')
      .selectAll()
      .where('seq', '=', seq)
      .where('claimed_until', '=', claimed_until)
      .where('done_at', 'is', null)
      .executeTakeFirst();
    return row === undefined || notice === undefined
      ? null
      : { notification: notificationOf(row), notice: noticeOf(notice) };
  });
}

export function addTestNotice(
  db: Database,
  newId: NewId,
  id: string,
  message: Message,
  until: number,
): Promise<NoticeRecord> {
  return db.write(async (tx) => {
    await db.capabilities.lockName(tx, `notification:${id}`);
    const owner = await tx
      .selectFrom('notifications')
      .select('id')
      .where('id', '=', id)
      .executeTakeFirst();
    if (owner === undefined) throw noNotification();
    const recent = await tx
      .selectFrom('notices')
      .select('message')
      .where('notification_id', '=', id)
      .where('created_at', '>', message.at - MINUTE_MS)
      .where('created_at', '<=', message.at)
      .execute();
    const tests = recent.filter(
      (row) => (JSON.parse(row.message) as Message).type === 'test',
    ).length;
    if (tests >= TESTS_A_MINUTE)
      throw new DomainError(
        'too_many_requests',
        'this notification was tested too often within a minute',
        [],
        MINUTE_MS / 1000,
      );
    // A test has no retries: the person who requested it sees the answer. `give_up_at` 0: a test
    // that a crash interrupted ends without a retry.
    const row = await tx
      .insertInto('notices')
      .values({
        ...blank(message, message.at),
        id: newId(),
        notification_id: id,
        next_at: 0,
        give_up_at: 0,
        claimed_until: until,
      })
      .returningAll()
      .executeTakeFirstOrThrow();
    await removeSurplus(tx, id);
    return noticeOf(row);
  });
}

export function markSent(
  db: Database,
  claim: NoticeClaim,
  note: string | null,
  now: number,
): Promise<NoticeRecord | null> {
  return endTry(
    db,
    claim,
    { done_at: now, is_sent: 1, error: note },
    { last_sent_at: now, failing_since: null, problem: note },
    now,
  );
}

export function retryLater(
  db: Database,
  claim: NoticeClaim,
  nextAt: number,
  error: string,
  received: readonly string[],
  now: number,
): Promise<NoticeRecord | null> {
  return endTry(
    db,
    claim,
    { next_at: nextAt, error, tries: claim.tries + 1, received: JSON.stringify(received) },
    'failed',
    now,
  );
}

export function giveUpNotice(
  db: Database,
  claim: NoticeClaim,
  error: string,
  now: number,
): Promise<NoticeRecord | null> {
  return endTry(db, claim, { done_at: now, error, tries: claim.tries + 1 }, 'failed', now);
}

export async function listDeliveries(
  db: Database,
  id: string,
  page: Page,
): Promise<Paged<NoticeRecord>> {
  const after = keyAfter(page.cursor, ['number']);
  const rows = await db.kysely
    .selectFrom('notices')
    .selectAll()
    .where('notification_id', '=', id)
    .$if(after !== null, (q) => q.where('seq', '<', after?.[0] ?? 0))
    .orderBy('seq', 'desc')
    .limit(page.limit + 1)
    .execute();
  return paged(rows, page, (row) => [row.seq], noticeOf);
}

export async function countNotices(db: Database): Promise<{ waiting: number; failing: number }> {
  const waiting = await db.kysely
    .selectFrom('notices')
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .where('done_at', 'is', null)
    .executeTakeFirstOrThrow();
  const failing = await db.kysely
    .selectFrom('notifications')
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .where('failing_since', 'is not', null)
    .executeTakeFirstOrThrow();
  return { waiting: waiting.count, failing: failing.count };
}

export async function sweepNotices(db: Database, now: number): Promise<number> {
  const old = await db.kysely
    .selectFrom('notices')
    .select('seq')
    .where('done_at', '<', now - NOTICE_KEPT_MS)
    .limit(SWEPT_AT_ONCE)
    .execute();
  const seqs = old.map((row) => row.seq);
  if (seqs.length > 0)
    await db.writeOne((kysely) => kysely.deleteFrom('notices').where('seq', 'in', seqs).execute());
  return seqs.length;
}

type Range = { after: number; to: number | null };

type Told = { seq: number; at: number };

/**
 * Returns the changes after `after` that match the notification, and the position up to which it
 * has read.
 */
async function changesIn(
  tx: Tx,
  notification: NotificationRecord,
  { after, to }: Range,
): Promise<{ last: number; matching: Told[] }> {
  const changes = await tx
    .selectFrom('problem_changes')
    .select(['seq', 'kind', 'is_over', 'opened_at', 'at'])
    .$if(notification.projects.length > 0, (q) => q.select('seen'))
    .where('seq', '>', after)
    .$if(to !== null, (q) => q.where('seq', '<=', to ?? 0))
    .orderBy('seq')
    .limit(READ_AT_ONCE)
    .execute();
  const matching = changes.filter((change) =>
    concerns(
      notification,
      { ...change, is_over: change.is_over === 1 },
      () => (JSON.parse(change.seen ?? '{}') as Seen).project_ids,
    ),
  );
  return { last: changes.at(-1)?.seq ?? after, matching };
}

/** `told`: at least one change; the message lists the first ones. */
async function tell(
  tx: Tx,
  { projects }: NotificationRecord,
  told: readonly Told[],
  range: Range,
  now: number,
): Promise<Message> {
  const shown = await tx
    .selectFrom('problem_changes')
    .selectAll()
    .where(
      'seq',
      'in',
      told.slice(0, DIGEST_ITEMS).map(({ seq }) => seq),
    )
    .orderBy('seq')
    .execute();
  const items = shown.map(({ seq: _, seen, is_over, ...change }): NoticeItem => {
    const whole = seenBy(projects, JSON.parse(seen) as Seen);
    return {
      ...change,
      is_over: is_over === 1,
      seen: { ...whole, project_ids: whole.project_ids.slice(0, DIGEST_ITEMS) },
    };
  });
  return { ...messageOf(items, told.length, now), range };
}

/**
 * Returns whether `now` lacks some of the projects in `before`. An empty list means all projects.
 */
export const lacksSome = (now: readonly string[], before: readonly string[]): boolean =>
  now.length > 0 && (before.length === 0 || before.some((id) => !now.includes(id)));

/**
 * Deletes the texts about projects that the notification no longer covers: people who cannot see
 * these projects can now see the notification and change its target.
 */
export async function forgetProjects(tx: Tx, notification: NotificationRecord): Promise<void> {
  const rows = await tx
    .selectFrom('notices')
    .selectAll()
    .where('notification_id', '=', notification.id)
    .execute();
  for (const { seq, done_at, message } of rows.map(noticeOf)) {
    if (message.range === undefined) continue;
    if (done_at !== null) {
      // A digest stays: only its title is shown, and that names no project.
      const isOurs = message.items.every(({ seen }) =>
        seen.project_ids.some((id) => notification.projects.includes(id)),
      );
      if (message.type !== 'digest' && !isOurs)
        await tx.deleteFrom('notices').where('seq', '=', seq).execute();
      continue;
    }
    const { matching } = await changesIn(tx, notification, message.range);
    if (matching.length === 0) await tx.deleteFrom('notices').where('seq', '=', seq).execute();
    else {
      const text = JSON.stringify(
        await tell(tx, notification, matching, message.range, message.at),
      );
      await tx
        .updateTable('notices')
        .set({ message: text, error: null })
        .where('seq', '=', seq)
        .execute();
    }
  }
}

const blank = (message: Message, now: number) => ({
  message: JSON.stringify(message),
  tries: 0,
  received: '[]',
  created_at: now,
  is_sent: 0,
});

async function removeSurplus(tx: Tx, id: string): Promise<void> {
  const surplus = await tx
    .selectFrom('notices')
    .select('seq')
    .where('notification_id', '=', id)
    .orderBy('seq', 'desc')
    .offset(KEPT_NOTICES)
    .limit(1)
    .executeTakeFirst();
  if (surplus === undefined) return;
  await tx
    .deleteFrom('notices')
    .where('notification_id', '=', id)
    .where('seq', '<=', surplus.seq)
    .where('done_at', 'is not', null)
    .execute();
}
