/**
 * Routes of notifications. No answer, event or error has a target or a secret, except the one
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
} from '../../domain/notifications/notifications.ts';
import type { Attempts } from '../auth/attempts.ts';
import { newId } from '../auth/secrets.ts';
import type { Caller } from '../auth/callers.ts';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { pageOf } from '../page.ts';
import { NO_NOTIFICATION } from '../rights.ts';
import { time } from '../views.ts';

const SECRET_BYTES = 32;
const HIDDEN = 'about projects that you may not see';

type Deps = ApiDeps & {
  /** Tests by person, and by recipient. */
  tests: Attempts;
};

export function notificationRoutes(
  route: Define,
  { stores, vault, settings, sendNotice, uptime, now, tests }: Deps,
): void {
  const rules: TargetRules = settings.notify;

  /**
   * Returns a notification that the caller may see: admins see all, other people those whose
   * projects they all see. Throws not_found, and forbidden if the caller has a lower role than
   * `needed` in one of the projects.
   */
  async function own(id: string, user: Caller, needed: Role): Promise<NotificationRecord> {
    const notification = await stores.notifications.get(id);
    if (user.role === 'admin') return notification;
    const roles = await Promise.all(
      notification.projects.map((project) => roleInProject(project, user)),
    );
    if (roles.length === 0 || roles.includes(null))
      throw new DomainError('not_found', NO_NOTIFICATION);
    for (const role of roles) requireRole(role, needed);
    return notification;
  }
  async function roleInProject(id: string, user: Caller): Promise<Role | null> {
    const project = await stores.projects.guarded(id);
    return project === null ? null : roleIn(project, user);
  }
  async function projectIds(given: readonly string[], user: Caller): Promise<string[]> {
    if (given.length === 0 && user.role !== 'admin')
      throw new DomainError(
        'forbidden',
        'only admins can create notifications about all projects and nodes; name projects',
      );
    const ids: string[] = [];
    for (const [i, one] of given.entries()) {
      const project = await stores.projects.guarded(one);
      const role = project === null ? null : roleIn(project, user);
      if (project === null || role === null)
        throw invalid(`projects[${i}]`, 'exists', 'no project has this id or name');
      requireRole(role, 'developer');
      ids.push(project.id);
    }
    return [...new Set(ids)];
  }

  route('listNotifications', async ({ query, user, access }) => {
    const filter = query.name === undefined ? {} : { name: query.name };
    const { items, next } = await stores.notifications.list(
      pageOf(query),
      filter,
      user.role === 'admin' ? undefined : access,
    );
    return { items: items.map(notificationView), next_cursor: next };
  });

  route('createNotification', async ({ body, user }) => {
    const { name, kind, on } = body;
    const projects = await projectIds(body.projects ?? [], user);
    const { target, shown } = checkTarget(kind, body.target, rules);
    const id = newId();
    const secret =
      kind === 'webhook'
        ? `${STANDARD_SECRET_PREFIX}${randomBytes(SECRET_BYTES).toString('base64')}`
        : null;
    const keys = await vault.of('notifications');
    const sealed = {
      target: keys.seal(`target:${id}`, target),
      secret: secret === null ? null : keys.seal(`secret:${id}`, secret),
    };
    const made = await stores.notifications.create(
      { id, name, kind, shown, on, projects, ...sealed },
      now(),
    );
    return { ...notificationView(made), secret };
  });

  route('getNotification', async ({ params, user }) =>
    notificationView(await own(params.id, user, 'viewer')),
  );

  route('patchNotification', async ({ params, body, user }) => {
    const before = await own(params.id, user, 'developer');
    const { target: given, projects, ...rest } = body;
    const checked = given === undefined ? null : checkTarget(before.kind, given, rules);
    const change = {
      ...rest,
      ...defined({
        projects: projects === undefined ? undefined : await projectIds(projects, user),
      }),
      ...(checked === null
        ? {}
        : {
            shown: checked.shown,
            target: await vault.seal('notifications', `target:${before.id}`, checked.target),
          }),
    };
    return notificationView(await stores.notifications.patch(before.id, change, now()));
  });

  route('deleteNotification', async ({ params, user }) => {
    const { id } = await own(params.id, user, 'developer');
    await stores.notifications.remove(id);
  });

  route('testNotification', async ({ params, user, request }) => {
    const notification = await own(params.id, user, 'developer');
    const at = now();
    // Beside the limit of the notification: many notifications, or one that is created again, must
    // not flood a person.
    tests.begin(`user ${user.id}`);
    for (const recipient of recipientsOf(notification.shown)) tests.begin(`recipient ${recipient}`);
    const message = testMessage(notification.name, at);
    const added = await stores.notifications.addTest(
      notification.id,
      message,
      (await uptime.now()).at + NOTICE_CLAIM_MS,
    );
    const notice = { ...added, target: notification.target };
    const stopped = new AbortController();
    request.raw.socket.once('close', () => stopped.abort());
    const answer = await sendNotice(notification, notice, stopped.signal);
    const ended = answer.isSent
      ? await stores.notifications.sent(notice, answer.note, now())
      : await stores.notifications.giveUp(notice, answer.error, now());
    if (ended === null)
      throw new DomainError('not_found', 'the notification was deleted during its test');
    return deliveryView(ended);
  });

  route('listNotificationDeliveries', async ({ params, query, user, access }) => {
    const { id } = await own(params.id, user, 'viewer');
    const { items, next } = await stores.notifications.deliveries(id, pageOf(query));
    // The notification may have had other projects, or all, at that time.
    const projectsOf = ({ message }: NoticeRecord): string[] =>
      message.items.flatMap((item) => item.seen.project_ids);
    const seen = await stores.projects.visible([...new Set(items.flatMap(projectsOf))], access);
    const isHidden = (notice: NoticeRecord): boolean =>
      projectsOf(notice).some((project) => !seen.has(project));
    const views = items.map((notice) => ({
      ...deliveryView(notice),
      ...defined({ title: isHidden(notice) ? HIDDEN : undefined }),
    }));
    return { items: views, next_cursor: next };
  });
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
  status: done_at === null ? 'waiting' : is_sent ? 'sent' : 'failed',
  tries,
  error,
  finished_at: timeOrNull(done_at),
});
