/** Commands for notifications, which report problems to a target. */
import {
  NOTIFICATION_EVENTS,
  NOTIFICATION_KINDS,
  type Notification,
  type NotificationDelivery,
  type NotificationEvent,
  type NotificationKind,
} from '@berth/wire/notification';
import { defined } from '@berth/kit/defined';
import { confirmed, readValue } from '../ask.ts';
import type { Cli } from '../cli.ts';
import { record, table } from '../output/text.ts';
import { ago } from '../output/units.ts';
import { refused, usage } from '../problem.ts';
import { allPages } from '../project/pages.ts';
import {
  argument,
  type Argument,
  type Command,
  type Option,
  type Options,
  textOf,
} from './command.ts';
import { listCommand } from './from-route.ts';
import { YES } from './project.ts';
import { positive } from './number.ts';

const NOTIFICATION: Argument = {
  name: 'notification',
  doc: 'name or id of a notification',
  required: true,
};
const ON: Option = {
  flags: '--on <kinds>',
  doc: `what to report, comma-separated: all, ${NOTIFICATION_EVENTS.join(', ')}`,
};
const PROJECTS: Option = {
  flags: '--projects <projects>',
  doc: 'only problems of these projects, comma-separated; "" for all',
};
const FROM_STDIN =
  'The target comes from a prompt or from standard input, because it is a secret: an https ' +
  'address, or e-mail addresses.';

const listOf = (text: string): string[] =>
  text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
function kindsOf(options: Options): NotificationEvent[] | undefined {
  const events = textOf(options, 'on');
  if (events === undefined) return undefined;
  if (events.trim() === 'all') return [...NOTIFICATION_EVENTS];
  const wrong = listOf(events).filter(
    (one) => !(NOTIFICATION_EVENTS as readonly string[]).includes(one),
  );
  if (wrong.length > 0 || listOf(events).length === 0)
    throw usage(`--on takes all, ${NOTIFICATION_EVENTS.join(', ')}`);
  return listOf(events) as NotificationEvent[];
}
function projectsOf(options: Options): { projects?: string[] } {
  const projects = textOf(options, 'projects');
  return projects === undefined ? {} : { projects: listOf(projects) };
}

function standingOf({ failing_since, last_sent_at, problem }: Notification): string {
  if (failing_since !== null) return 'failing';
  if (last_sent_at === null) return 'nothing sent yet';
  return problem === null ? 'ok' : 'sent, see problem';
}

const onText = ({ on }: Notification): string =>
  NOTIFICATION_EVENTS.every((kind) => on.includes(kind)) ? 'all' : on.join(', ');
/** Returns the names of projects. A deleted or hidden project is shown by its id. */
const namesOf = (cli: Cli, ids: readonly string[]): Promise<string[]> =>
  Promise.all(
    ids.map((id) =>
      cli
        .client()
        .call('getProject', { params: { id } })
        .then(
          ({ name }) => name,
          () => id,
        ),
    ),
  );

function printNotification(cli: Cli, n: Notification, projects: readonly string[]): void {
  cli.print(n, () => notificationText(cli, n, projects));
  if (n.failing_since !== null)
    cli.say(
      `next: berth notification deliveries ${n.name}, or berth notification edit ${n.name} ` +
        '--target',
    );
}

const notificationText = (cli: Cli, n: Notification, projects: readonly string[]): string =>
  record([
    ['notification', n.name],
    ['id', n.id],
    ['kind', n.kind],
    ['target', n.target],
    ['on', onText(n)],
    ['projects', projects.length === 0 ? 'all' : projects.join(', ')],
    ['last sent', n.last_sent_at === null ? null : ago(n.last_sent_at, cli.io.now())],
    ['failing since', n.failing_since === null ? null : ago(n.failing_since, cli.io.now())],
    ['problem', n.problem],
  ]);

const deliveryText = (d: NotificationDelivery): string =>
  record([
    ['delivery', d.id],
    ['status', d.status],
    ['title', d.title],
    ['error', d.error],
  ]);

export const NOTIFICATION_COMMANDS: readonly Command[] = [
  listCommand('listNotifications', {
    name: 'notification list',
    empty: 'no notifications yet; create one with berth notification create',
    columns: () => [
      { head: 'NAME', of: (n) => n.name },
      { head: 'KIND', of: (n) => n.kind },
      { head: 'TARGET', of: (n) => n.target },
      { head: 'ON', of: onText },
      {
        head: 'PROJECTS',
        of: (n) => (n.projects.length === 0 ? 'all' : String(n.projects.length)),
      },
      { head: 'STATE', of: standingOf },
    ],
  }),
  {
    name: 'notification create',
    summary: 'Create a notification; shows the secret of a webhook once',
    detail: FROM_STDIN,
    args: [{ name: 'name', doc: 'name of the notification', required: true }],
    options: [
      {
        flags: '--kind <kind>',
        doc: 'kind of the target',
        choices: NOTIFICATION_KINDS,
        required: true,
      },
      { ...ON, doc: `${ON.doc} (default: all)` },
      PROJECTS,
    ],
    routes: ['createNotification'],
    async run(cli, args, options) {
      const kind = textOf(options, 'kind') as NotificationKind;
      const on = kindsOf(options) ?? [...NOTIFICATION_EVENTS];
      const target = await readValue(
        cli.io,
        kind === 'email' ? 'E-mail addresses' : 'Address of the target',
        kind !== 'email',
      );
      const body = { name: argument(args, 0), kind, on, target, ...projectsOf(options) };
      const made = await cli.client().call('createNotification', { body });
      cli.print(made, () =>
        record([
          ['notification', made.name],
          ['target', made.target],
          ...(made.secret === null ? [] : [['secret', made.secret] as const]),
        ]),
      );
      if (made.secret !== null)
        cli.say('the receiver checks signatures with this secret; it is not shown again');
      cli.say(`next: berth notification test ${made.name}`);
    },
  },
  {
    name: 'notification show',
    summary: 'Show a notification; its target is masked',
    args: [NOTIFICATION],
    routes: ['getNotification', 'getProject'],
    async run(cli, args) {
      const notification = await cli
        .client()
        .call('getNotification', { params: { id: argument(args, 0) } });
      printNotification(cli, notification, await namesOf(cli, notification.projects));
    },
  },
  {
    name: 'notification edit',
    summary: 'Change a notification',
    detail: `With --target, ${FROM_STDIN[0]?.toLowerCase()}${FROM_STDIN.slice(1)}`,
    args: [NOTIFICATION],
    options: [
      { flags: '--name <name>', doc: 'new name' },
      ON,
      PROJECTS,
      { flags: '--target', doc: 'read a new target' },
    ],
    routes: ['patchNotification', 'getProject'],
    async run(cli, args, options) {
      const [name, on] = [textOf(options, 'name'), kindsOf(options)];
      const target =
        options['target'] === true ? await readValue(cli.io, 'Target', true) : undefined;
      const body = {
        ...defined({ name, on, target }),
        ...projectsOf(options),
      };
      if (Object.keys(body).length === 0)
        throw usage('nothing was given to change', 'berth notification edit --help');
      const changed = await cli
        .client()
        .call('patchNotification', { params: { id: argument(args, 0) }, body });
      printNotification(cli, changed, await namesOf(cli, changed.projects));
    },
  },
  {
    name: 'notification delete',
    summary: 'Delete a notification and its deliveries',
    args: [NOTIFICATION],
    options: [YES],
    routes: ['deleteNotification'],
    async run(cli, args, { yes }) {
      const id = argument(args, 0);
      await confirmed(cli.io, yes === true, `Delete the notification ${id}?`);
      await cli.client().call('deleteNotification', { params: { id } });
      cli.print({ deleted: true }, () => `${id} is deleted`);
    },
  },
  {
    name: 'notification test',
    summary:
      'Send a test to the target of a notification and show its answer; exits 1 if the test failed',
    args: [NOTIFICATION],
    routes: ['testNotification'],
    async run(cli, args) {
      const id = argument(args, 0);
      const delivery = await cli.client().call('testNotification', { params: { id } });
      if (delivery.status !== 'sent')
        throw refused(
          'test_failed',
          `the test was not delivered: ${delivery.error ?? 'unknown reason'}`,
          `correct the target: berth notification edit ${id} --target`,
        );
      cli.print(delivery, () => deliveryText(delivery));
    },
  },
  {
    name: 'notification deliveries',
    summary: 'List the deliveries of a notification, newest first',
    args: [NOTIFICATION],
    options: [
      { flags: '-n, --limit <number>', doc: 'at most this many (default: 50)', parse: positive },
    ],
    routes: ['listNotificationDeliveries'],
    async run(cli, args, options) {
      const id = argument(args, 0);
      const limit = (options['limit'] as number | undefined) ?? 50;
      const items = await allPages(
        (cursor) =>
          cli.client().call('listNotificationDeliveries', {
            params: { id },
            query: { limit: Math.min(limit, 200), ...cursor },
          }),
        limit,
      );
      cli.print({ items }, () =>
        items.length === 0
          ? 'no deliveries yet; send one with berth notification test'
          : table(items, [
              { head: 'WHEN', of: (d) => ago(d.at, cli.io.now()) },
              { head: 'TYPE', of: (d) => d.type },
              { head: 'STATUS', of: (d) => d.status },
              { head: 'FAILED TRIES', of: (d) => String(d.tries) },
              { head: 'TITLE', of: (d) => d.title },
              { head: 'ERROR', of: (d) => d.error ?? '' },
            ]),
      );
    },
  },
];
