/**
 * Notifications: the targets to which problems are sent, and the selected problems. Their
 * deliveries are in notices.ts.
 */
import { defined } from '@berth/kit/defined';
import type { ProjectAccess } from '../domain/identity/access.ts';
import {
  MAX_NOTIFICATIONS,
  type NewNotification,
  type NotificationChange,
  type NotificationRecord,
  type NotificationStore,
} from '../domain/notifications/notifications.ts';
import { invalid } from '../domain/platform/errors.ts';
import type { NameFilter, Page, Paged } from '../domain/platform/page.ts';
import type { Database } from './engine/database.ts';
import type { Tx } from './engine/tables.ts';
import type { NewId } from './ids.ts';
import {
  addTestNotice,
  claimNotices,
  composeNotices,
  countNotices,
  FRESH,
  forgetProjects,
  giveUpNotice,
  lacksSome,
  listDeliveries,
  markSent,
  retryLater,
  sweepNotices,
  takeClaimed,
} from './notices.ts';
import { keyAfter, paged } from './pages.ts';
import { visibleOf } from './project-access.ts';
import { jsonColumn } from './rows/json.ts';
import { noNotification, notificationOf } from './rows/notification.ts';

const columnsOf = ({ on, projects, ...rest }: Partial<NewNotification>) => ({
  ...rest,
  ...defined({
    events: jsonColumn(on),
    projects: jsonColumn(projects),
  }),
});

export function createNotificationStore(db: Database, newId: NewId): NotificationStore {
  return {
    list: (page, filter, access) => listNotifications(db, page, filter, access),
    idOf: (idOrName) => idOfNotification(db, idOrName),
    get: (id) => getNotification(db, id),
    create: (notification, now) => createNotification(db, notification, now),
    patch: (id, change, now) => patchNotification(db, id, change, now),
    remove: (id) => removeNotification(db, id),
    compose: (clock) => composeNotices(db, newId, clock),
    claim: (at, most) => claimNotices(db, at, most),
    take: (claim) => takeClaimed(db, claim),
    addTest: (id, message, until) => addTestNotice(db, newId, id, message, until),
    sent: (claim, note, now) => markSent(db, claim, note, now),
    retry: (claim, nextAt, error, received, now) =>
      retryLater(db, claim, nextAt, error, received, now),
    giveUp: (claim, error, now) => giveUpNotice(db, claim, error, now),
    deliveries: (id, page) => listDeliveries(db, id, page),
    counts: () => countNotices(db),
    sweep: (now) => sweepNotices(db, now),
  };
}

async function refuseTakenName(tx: Tx, name: string, except: string | null): Promise<void> {
  const holder = await tx
    .selectFrom('notifications')
    .select('id')
    .where('name', '=', name)
    .executeTakeFirst();
  if (holder !== undefined && holder.id !== except)
    throw invalid('name', 'taken', 'another notification has this name');
}

/**
 * Returns the ids of the notifications whose projects all exist and are visible to the caller; at
 * most MAX_NOTIFICATIONS.
 */
async function visibleTo(db: Database, access: ProjectAccess): Promise<string[]> {
  const rows = await db.kysely
    .selectFrom('notifications')
    .select(['id', 'projects'])
    .where('projects', '!=', '[]')
    .execute();
  if (rows.length === 0) return [];
  const named = [...new Set(rows.flatMap((row) => JSON.parse(row.projects) as string[]))];
  const projects = await db.kysely
    .selectFrom('projects')
    .select('id')
    .where('id', 'in', named)
    .execute();
  const visibleProjects = await visibleOf(
    db.kysely,
    projects.map(({ id }) => id),
    access,
  );
  return rows
    .filter((row) => (JSON.parse(row.projects) as string[]).every((id) => visibleProjects.has(id)))
    .map(({ id }) => id);
}

async function listNotifications(
  db: Database,
  page: Page,
  { name }: NameFilter,
  access: ProjectAccess | undefined,
): Promise<Paged<NotificationRecord>> {
  const ids = access === undefined ? null : await visibleTo(db, access);
  if (ids?.length === 0) return { items: [], next: null };
  const after = keyAfter(page.cursor, ['string']);
  const rows = await db.kysely
    .selectFrom('notifications')
    .selectAll()
    .$if(name !== undefined, (q) => q.where('name', '=', name ?? ''))
    .$if(ids !== null, (q) => q.where('id', 'in', ids ?? []))
    .$if(after !== null, (q) => q.where('name', '>', after?.[0] ?? ''))
    .orderBy('name')
    .limit(page.limit + 1)
    .execute();
  return paged(rows, page, (row) => [row.name], notificationOf);
}

async function idOfNotification(db: Database, idOrName: string): Promise<string | null> {
  const rows = await db.kysely
    .selectFrom('notifications')
    .select('id')
    .where((eb) => eb.or([eb('id', '=', idOrName), eb('name', '=', idOrName)]))
    .execute();
  return (rows.find(({ id }) => id === idOrName) ?? rows[0])?.id ?? null;
}

async function getNotification(db: Database, id: string): Promise<NotificationRecord> {
  const row = await db.kysely
    .selectFrom('notifications')
    .selectAll()
    .where('id', '=', id)
    .executeTakeFirst();
  if (row === undefined) throw noNotification();
  return notificationOf(row);
}

function createNotification(
  db: Database,
  notification: NewNotification,
  now: number,
): Promise<NotificationRecord> {
  return db.write(async (tx) => {
    await db.capabilities.lockName(tx, 'notifications');
    await refuseTakenName(tx, notification.name, null);
    const { count } = await tx
      .selectFrom('notifications')
      .select((eb) => eb.fn.countAll<number>().as('count'))
      .executeTakeFirstOrThrow();
    if (count >= MAX_NOTIFICATIONS)
      throw invalid(
        'name',
        'too_many',
        `there are ${MAX_NOTIFICATIONS} notifications already; delete one first`,
      );
    const last = await tx
      .selectFrom('problem_changes')
      .select('seq')
      .orderBy('seq', 'desc')
      .limit(1)
      .executeTakeFirst();
    const { id, name, kind, target, shown, secret, on, projects } = notification;
    const row = await tx
      .insertInto('notifications')
      .values({
        ...{ id, name, kind, target, shown, secret },
        events: JSON.stringify(on),
        projects: JSON.stringify(projects),
        after: last?.seq ?? 0,
        created_at: now,
        updated_at: now,
      })
      .returningAll()
      .executeTakeFirstOrThrow();
    return notificationOf(row);
  });
}

function patchNotification(
  db: Database,
  id: string,
  change: NotificationChange,
  now: number,
): Promise<NotificationRecord> {
  return db.write(async (tx) => {
    await db.capabilities.lockName(tx, 'notifications');
    if (change.name !== undefined) await refuseTakenName(tx, change.name, id);
    // The lock keeps deliveries about the old projects from beginning meanwhile.
    await db.capabilities.lockName(tx, `notification:${id}`);
    const before = await tx
      .selectFrom('notifications')
      .selectAll()
      .where('id', '=', id)
      .executeTakeFirst();
    const row = await tx
      .updateTable('notifications')
      .set({
        ...columnsOf(change),
        updated_at: now,
        ...defined({
          failing_since: change.target === undefined ? undefined : null,
          problem: change.target === undefined ? undefined : null,
        }),
      })
      .where('id', '=', id)
      .returningAll()
      .executeTakeFirst();
    if (row === undefined || before === undefined) throw noNotification();
    const changed = notificationOf(row);
    if (lacksSome(changed.projects, notificationOf(before).projects))
      await forgetProjects(tx, changed);
    if (change.target === undefined) return changed;
    // Retries unfinished deliveries at once: they failed at the old target and can succeed at the
    // new one.
    await tx
      .updateTable('notices')
      .set(FRESH)
      .where('notification_id', '=', id)
      .where('give_up_at', '>', 0)
      .where('done_at', 'is', null)
      .execute();
    return changed;
  });
}

async function removeNotification(db: Database, id: string): Promise<void> {
  const row = await db.writeOne((kysely) =>
    kysely.deleteFrom('notifications').where('id', '=', id).returning('id').executeTakeFirst(),
  );
  if (row === undefined) throw noNotification();
}
