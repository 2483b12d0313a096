/**
 * Routes of notifications. No answer, event or error contains a target or a secret, except the one
 * answer that creates a secret.
 */
import { randomBytes } from 'node:crypto';
import { defined } from '@berth/kit/defined';
import type { Notification, NotificationDelivery } from '@berth/wire/notification';
import { STANDARD_SECRET_PREFIX } from '@berth/wire/hook';
import type { Role } from '@berth/wire/vocabulary';
import { atLeast, roleIn } from '../../domain/identity/access.ts';
import { DomainError, invalid } from '../../domain/platform/errors.ts';
import {
  checkTarget,
  recipientsOf,
  type TargetRules,
} from '../../domain/notifications/notice-target.ts';
import {
  NOTICE_CLAIM_MS,
  type NoticeRecord,
  type NotificationRecord,
  testMessage,
  type NotificationStore,
  type SendNotice,
} from '../../domain/notifications/notifications.ts';
import type { Attempts } from '../auth/attempts.ts';
import { newId } from '../auth/secrets.ts';
import type { Caller } from '../auth/callers.ts';
import type { Define, Call } from '../define.ts';
import { pageOf } from '../page.ts';
import { NO_NOTIFICATION } from '../rights.ts';
import { time } from '../views.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import type { ApiSettings } from '../settings.ts';
import type { Vault } from '../../domain/secrets/vault.ts';
import type { UptimeClock } from '../../domain/platform/uptime.ts';

const SECRET_BYTES = 32;
const HIDDEN = 'about projects that you may not see';

export type Deps = {
  notifications: Pick<
    NotificationStore,
    'addTest' | 'create' | 'deliveries' | 'get' | 'giveUp' | 'list' | 'patch' | 'remove' | 'sent'
  >;
  projects: Pick<ProjectStore, 'guarded' | 'visible'>;
  /** Counts tests by person and by recipient. */
  testAttempts: Attempts;
  sendNotice: SendNotice;
  settings: Pick<ApiSettings, 'notify'>;
  vault: Pick<Vault, 'of' | 'seal'>;
  now: () => number;
  uptime: Pick<UptimeClock, 'now'>;
};

/** State shared by all requests. */
type Context = Deps & {
  rules: TargetRules;
};

export function notificationRoutes(route: Define, deps: Deps): void {
  const rules: TargetRules = deps.settings.notify;
  const context: Context = { ...deps, rules };
  route('listNotifications', (call) => listNotifications(deps, call));
  route('createNotification', (call) => createNotification(context, call));
  route('getNotification', async ({ params, user }) =>
    notificationView(await own(deps, params.id, user, 'viewer')),
  );
  route('patchNotification', (call) => patchNotification(context, call));
  route('deleteNotification', (call) => deleteNotification(deps, call));
  route('testNotification', (call) => testNotification(deps, call));
  route('listNotificationDeliveries', (call) => listNotificationDeliveries(deps, call));
}

/**
 * Returns a notification that the caller can see: admins see all; other people must see all its
 * projects. Throws not_found, and forbidden if the caller has a lower role than `needed` in one of
 * the projects.
 */
async function own(
  deps: Deps,
  id: string,
  user: Caller,
  needed: Role,
): Promise<NotificationRecord> {
  const notification = await deps.notifications.get(id);
  if (user.role === 'admin') return notification;
  const roles = await Promise.all(
    notification.projects.map((project) => roleInProject(deps, project, user)),
  );
  if (roles.length === 0 || roles.includes(null))
    throw new DomainError('not_found', NO_NOTIFICATION);
  for (const role of roles) requireRole(role, needed);
  return notification;
}

async function roleInProject(deps: Deps, id: string, user: Caller): Promise<Role | null> {
  const project = await deps.projects.guarded(id);
  return project === null ? null : roleIn(project, user);
}

async function projectIds(deps: Deps, given: readonly string[], user: Caller): Promise<string[]> {
  if (given.length === 0 && user.role !== 'admin')
    throw new DomainError(
      'forbidden',
      'only admins can create notifications about all projects and nodes; name projects',
    );
  const ids: string[] = [];
  for (const [i, one] of given.entries()) {
    const project = await deps.projects.guarded(one);
    const role = project === null ? null : roleIn(project, user);
    if (project === null || role === null)
      throw invalid(`projects[${i}]`, 'exists', 'no project has this id or name');
    requireRole(role, 'developer');
    ids.push(project.id);
  }
  return [...new Set(ids)];
}

async function listNotifications(deps: Deps, { query, user, access }: Call<'listNotifications'>) {
  const filter = query.name === undefined ? {} : { name: query.name };
  const { items, next } = await deps.notifications.list(
    pageOf(query),
    filter,
    user.role === 'admin' ? undefined : access,
  );
  return { items: items.map(notificationView), next_cursor: next };
}

async function createNotification(context: Context, { body, user }: Call<'createNotification'>) {
  const { name, kind, on } = body;
  const projects = await projectIds(context, body.projects ?? [], user);
  const { target, shown } = checkTarget(kind, body.target, context.rules);
  const id = newId();
  const secret =
    kind === 'webhook'
      ? `${STANDARD_SECRET_PREFIX}${randomBytes(SECRET_BYTES).toString('base64')}`
      : null;
  const keys = await context.vault.of('notifications');
  const sealed = {
    target: keys.seal(`target:${id}`, target),
    secret: secret === null ? null : keys.seal(`secret:${id}`, secret),
  };
  const made = await context.notifications.create(
    { id, name, kind, shown, on, projects, ...sealed },
    context.now(),
  );
  return { ...notificationView(made), secret };
}

async function patchNotification(
  context: Context,
  { params, body, user }: Call<'patchNotification'>,
) {
  const before = await own(context, params.id, user, 'developer');
  const { target: given, projects, ...rest } = body;
  const checked = given === undefined ? null : checkTarget(before.kind, given, context.rules);
  const change = {
    ...rest,
    ...defined({
      projects: projects === undefined ? undefined : await projectIds(context, projects, user),
      shown: checked?.shown,
      target:
        checked === null
          ? undefined
          : await context.vault.seal('notifications', `target:${before.id}`, checked.target),
    }),
  };
  return notificationView(await context.notifications.patch(before.id, change, context.now()));
}

async function deleteNotification(deps: Deps, { params, user }: Call<'deleteNotification'>) {
  const { id } = await own(deps, params.id, user, 'developer');
  await deps.notifications.remove(id);
}

async function testNotification(deps: Deps, { params, user, request }: Call<'testNotification'>) {
  const notification = await own(deps, params.id, user, 'developer');
  const at = deps.now();
  // Limit tests by person and recipient too: many notifications, or one that is created again, must
  // not flood a person.
  deps.testAttempts.begin(`user ${user.id}`);
  for (const recipient of recipientsOf(notification.shown))
    deps.testAttempts.begin(`recipient ${recipient}`);
  const message = testMessage(notification.name, at);
  const added = await deps.notifications.addTest(
    notification.id,
    message,
    (await deps.uptime.now()).at + NOTICE_CLAIM_MS,
  );
  const notice = { ...added, target: notification.target };
  const stopped = new AbortController();
  request.raw.socket.once('close', () => stopped.abort());
  const answer = await deps.sendNotice(notification, notice, stopped.signal);
  const ended = answer.isSent
    ? await deps.notifications.sent(notice, answer.note, deps.now())
    : await deps.notifications.giveUp(notice, answer.error, deps.now());
  if (ended === null)
    throw new DomainError('not_found', 'the notification was deleted during its test');
  return deliveryView(ended);
}

async function listNotificationDeliveries(
  deps: Deps,
  { params, query, user, access }: Call<'listNotificationDeliveries'>,
) {
  const { id } = await own(deps, params.id, user, 'viewer');
  const { items, next } = await deps.notifications.deliveries(id, pageOf(query));
  // Check the projects of each notice: at that time, the notification might have had a different
  // list of projects, or all projects.
  const projectsOf = ({ message }: NoticeRecord): string[] =>
    message.items.flatMap((item) => item.seen.project_ids);
  const seen = await deps.projects.visible([...new Set(items.flatMap(projectsOf))], access);
  const isHidden = (notice: NoticeRecord): boolean =>
    projectsOf(notice).some((project) => !seen.has(project));
  const views = items.map((notice) => ({
    ...deliveryView(notice),
    ...defined({ title: isHidden(notice) ? HIDDEN : undefined }),
  }));
  return { items: views, next_cursor: next };
}

function requireRole(role: Role | null, needed: Role): void {
  if (role === null || !atLeast(role, needed))
    throw new DomainError(
      'forbidden',
      `this request requires the role ${needed} in all projects of the notification; you are ` +
        `${role} in one`,
    );
}

const timeOrNull = (ms: number | null): string | null => (ms === null ? null : time(ms));

const notificationView = (n: NotificationRecord): Notification => ({
  id: n.id,
  name: n.name,
  kind: n.kind,
  target: n.shown,
  on: n.on,
  projects: n.projects,
  last_sent_at: timeOrNull(n.last_sent_at),
  failing_since: timeOrNull(n.failing_since),
  problem: n.problem,
  created_at: time(n.created_at),
  updated_at: time(n.updated_at),
});

function deliveryStatus(isDone: boolean, isSent: boolean): NotificationDelivery['status'] {
  if (!isDone) return 'waiting';
  return isSent ? 'sent' : 'failed';
}

const deliveryView = ({
  id,
  created_at,
  message,
  done_at,
  is_sent,
  tries,
  error,
}: NoticeRecord): NotificationDelivery => ({
  id,
  at: time(created_at),
  type: message.type,
  title: message.title,
  status: deliveryStatus(done_at !== null, is_sent),
  tries,
  error,
  finished_at: timeOrNull(done_at),
});
