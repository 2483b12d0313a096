/**
 * Notifications: the targets to which Berth reports problems, and the deliveries of each
 * notification.
 */
import { type Static, Type } from 'typebox';
import { ByName, NameFilter, type Route } from './route.ts';
import { Id, listOf, literals, orNull, PageQuery, Time } from './vocabulary.ts';

export const NOTIFICATION_KINDS = ['webhook', 'slack', 'discord', 'email'] as const;
export type NotificationKind = (typeof NOTIFICATION_KINDS)[number];

/** Kinds of problems. A problem is identified by its kind and its subject. */
export const PROBLEM_KINDS = [
  'failed',
  'unhealthy',
  'node_offline',
  'failover',
  'disk',
  'dataset',
  'certificate',
  'job_failed',
] as const;
export type ProblemKind = (typeof PROBLEM_KINDS)[number];
/** `recovered`: a problem is over. */
export const NOTIFICATION_EVENTS = [
  'failed',
  'recovered',
  'unhealthy',
  'node_offline',
  'failover',
  'disk',
  'dataset',
  'certificate',
  'job_failed',
] as const;
export type NotificationEvent = (typeof NOTIFICATION_EVENTS)[number];

const NAME = { minLength: 1, maxLength: 63, pattern: '^[A-Za-z0-9][A-Za-z0-9 ._-]*$' };
const Target = Type.String({
  minLength: 3,
  maxLength: 2000,
  description: 'an address (URL); for `email` up to 20 e-mail addresses, comma-separated',
});
const On = Type.Array(literals(NOTIFICATION_EVENTS), {
  minItems: 1,
  maxItems: NOTIFICATION_EVENTS.length,
  uniqueItems: true,
  description:
    '`recovered`: the end of a problem, of the other kinds in this list or, without any, of ' +
    'all kinds',
});
const Projects = Type.Array(Type.String({ minLength: 1, maxLength: 64 }), {
  maxItems: 200,
  uniqueItems: true,
  description:
    'only problems that concern these projects; empty: all problems, which only admins may choose',
});

export const Notification = Type.Object({
  id: Id,
  name: Type.String(),
  kind: literals(NOTIFICATION_KINDS),
  target: Type.String({ description: 'masked, because an address may be a secret' }),
  on: On,
  projects: Type.Array(Id),
  last_sent_at: orNull(Time),
  failing_since: orNull(Type.Unsafe<Time>({ ...Time, description: 'set while deliveries fail' })),
  problem: orNull(Type.String({ description: 'why the last delivery failed' })),
  created_at: Time,
  updated_at: Time,
});
export type Notification = Static<typeof Notification>;

export const NotificationCreate = Type.Object(
  {
    name: Type.String(NAME),
    kind: literals(NOTIFICATION_KINDS),
    target: Target,
    on: On,
    projects: Type.Optional(Projects),
  },
  { additionalProperties: false },
);
export type NotificationCreate = Static<typeof NotificationCreate>;
export const NotificationPatch = Type.Object(
  {
    name: Type.Optional(Type.String(NAME)),
    target: Type.Optional(Target),
    on: Type.Optional(On),
    projects: Type.Optional(Projects),
  },
  { additionalProperties: false },
);
export type NotificationPatch = Static<typeof NotificationPatch>;
export const NotificationCreated = Type.Object({
  ...Notification.properties,
  secret: orNull(
    Type.String({
      description:
        'signs the deliveries of a webhook (Standard Webhooks); shown only in this answer',
    }),
  ),
});

export const NOTICE_TYPES = ['problem', 'recovered', 'digest', 'test'] as const;
export type NoticeType = (typeof NOTICE_TYPES)[number];
export const NOTICE_STATES = ['waiting', 'sent', 'failed'] as const;

export const NotificationDelivery = Type.Object({
  id: Type.Unsafe<string>({
    ...Id,
    description: 'the `webhook-id` of the request, the same for every try',
  }),
  at: Time,
  type: literals(NOTICE_TYPES),
  title: Type.String(),
  status: literals(NOTICE_STATES),
  tries: Type.Integer({ minimum: 0, description: 'number of tries that failed' }),
  error: orNull(
    Type.String({ description: 'why the last try failed, or which recipients were refused' }),
  ),
  finished_at: orNull(Time),
});
export type NotificationDelivery = Static<typeof NotificationDelivery>;

const PATH = '/api/notifications/:id';
export const NOTIFICATION_ROUTES = {
  listNotifications: {
    method: 'GET',
    path: '/api/notifications',
    who: 'developer',
    scope: 'list',
    summary: 'List notifications by name; developers see those that name projects',
    query: Type.Object({ ...PageQuery, ...NameFilter }),
    status: 200,
    answer: listOf(Notification),
  },
  createNotification: {
    method: 'POST',
    path: '/api/notifications',
    who: 'developer',
    scope: 'list',
    summary:
      'Create a notification; the secret of a webhook is shown once; developers must name projects',
    body: NotificationCreate,
    status: 201,
    answer: NotificationCreated,
  },
  getNotification: {
    method: 'GET',
    path: PATH,
    who: 'developer',
    scope: 'list',
    summary: 'Get a notification; its target is masked',
    params: ByName,
    status: 200,
    answer: Notification,
  },
  patchNotification: {
    method: 'PATCH',
    path: PATH,
    who: 'developer',
    scope: 'list',
    summary: 'Change a notification',
    params: ByName,
    body: NotificationPatch,
    status: 200,
    answer: Notification,
  },
  deleteNotification: {
    method: 'DELETE',
    path: PATH,
    who: 'developer',
    scope: 'list',
    summary: 'Delete a notification and its deliveries',
    params: ByName,
    status: 204,
  },
  testNotification: {
    method: 'POST',
    path: `${PATH}/test`,
    who: 'developer',
    scope: 'list',
    summary: 'Send a test now, without retries; the answer is the delivery, which may have failed',
    params: ByName,
    status: 200,
    answer: NotificationDelivery,
  },
  listNotificationDeliveries: {
    method: 'GET',
    path: `${PATH}/deliveries`,
    who: 'developer',
    scope: 'list',
    summary: 'List the deliveries of a notification, newest first',
    params: ByName,
    query: Type.Object(PageQuery),
    status: 200,
    answer: listOf(NotificationDelivery),
  },
} as const satisfies Record<string, Route>;
