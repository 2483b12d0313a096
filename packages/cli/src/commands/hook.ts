/** Commands for push to deploy: the hook of a project and its deliveries. */
import { defined } from '@berth/kit/defined';
import { type Delivery, FORGES, type Forge, type Hook } from '@berth/wire/hook';
import { confirmed, readValue } from '../ask.ts';
import type { Cli } from '../cli.ts';
import { record, table } from '../output/text.ts';
import { ago } from '../output/units.ts';
import { allPages } from '../project/pages.ts';
import { argument, type Command } from './command.ts';
import { PROJECT_ARGUMENT, YES } from './project.ts';
import { positive } from './number.ts';

const DELIVERY = {
  name: 'delivery',
  doc: 'id of a delivery (berth hook deliveries)',
  required: true,
} as const;

const hookText = (hook: Hook): string =>
  record([
    ['address', hook.url],
    ['forge', hook.forge],
    ['refused', String(hook.refused)],
    ['changed', hook.updated_at],
  ]);
const verdictOf = (d: Delivery): string => d.verdict ?? 'checking';
const deliveryText = (cli: Cli, d: Delivery): string =>
  record([
    ['delivery', d.id],
    ['arrived', ago(d.at, cli.io.now())],
    ['event', d.event],
    ['branch', d.branch],
    ['commit', d.commit],
    ['verdict', verdictOf(d)],
    ['reason', d.reason],
    ['deployment', d.deployment_id],
  ]);

export const HOOK_COMMANDS: readonly Command[] = [
  {
    name: 'hook create',
    summary: 'Create the hook of a project, or replace its forge and secret; shows the secret once',
    detail:
      'With --own-secret the secret comes from standard input, for example a signing token of ' +
      'GitLab.',
    args: [PROJECT_ARGUMENT],
    options: [
      {
        flags: '--forge <forge>',
        doc: 'the forge that calls the hook',
        choices: FORGES,
        required: true,
      },
      { flags: '--own-secret', doc: 'read the secret from standard input' },
    ],
    aboutProject: true,
    routes: ['putHook'],
    async run(cli, [named], { forge, ownSecret }) {
      const project = await cli.project(named);
      const secret =
        ownSecret === true ? await readValue(cli.io, 'Secret of the hook', true) : undefined;
      const body = { forge: forge as Forge, ...defined({ secret }) };
      const hook = await cli.client().call('putHook', { params: { id: project.id }, body });
      cli.print(hook, () =>
        record([
          ['address', hook.url],
          ...(hook.secret === null ? [] : [['secret', hook.secret] as const]),
        ]),
      );
      cli.say(
        `next: enter ${hook.secret === null ? 'the address' : 'both'} at the forge ` +
          '(docs/push-to-deploy.md)',
      );
    },
  },
  {
    name: 'hook show',
    summary: 'Show the hook of a project, without its secret',
    args: [PROJECT_ARGUMENT],
    aboutProject: true,
    routes: ['getHook'],
    async run(cli, [named]) {
      const project = await cli.project(named);
      const hook = await cli.client().call('getHook', { params: { id: project.id } });
      cli.print(hook, () => hookText(hook));
    },
  },
  {
    name: 'hook delete',
    summary: 'Delete the hook of a project and its deliveries',
    args: [PROJECT_ARGUMENT],
    options: [YES],
    aboutProject: true,
    routes: ['deleteHook'],
    async run(cli, [named], { yes }) {
      const project = await cli.project(named);
      await confirmed(cli.io, yes === true, `Delete the hook of ${project.name}?`);
      await cli.client().call('deleteHook', { params: { id: project.id } });
      cli.print({ deleted: true }, () => `pushes do not deploy ${project.name} any more`);
    },
  },
  {
    name: 'hook deliveries',
    summary: 'List the deliveries of a hook with their verdicts, newest first',
    args: [PROJECT_ARGUMENT],
    options: [
      { flags: '-n, --limit <number>', doc: 'at most this many (default: 50)', parse: positive },
    ],
    aboutProject: true,
    routes: ['listDeliveries'],
    async run(cli, [named], options) {
      const { id } = await cli.project(named);
      const limit = (options['limit'] as number | undefined) ?? 50;
      const items = await allPages(
        (cursor) =>
          cli.client().call('listDeliveries', {
            params: { id },
            query: { limit: Math.min(limit, 200), ...cursor },
          }),
        limit,
      );
      cli.print({ items }, () =>
        items.length === 0
          ? 'no deliveries yet; push to the branch'
          : table(items, [
              { head: 'ARRIVED', of: (d) => ago(d.at, cli.io.now()) },
              { head: 'EVENT', of: (d) => d.event },
              { head: 'BRANCH', of: (d) => d.branch ?? '–' },
              { head: 'COMMIT', of: (d) => d.commit?.slice(0, 12) ?? '–' },
              { head: 'VERDICT', of: verdictOf },
              { head: 'REASON', of: (d) => d.reason ?? '' },
              { head: 'ID', of: (d) => d.id },
            ]),
      );
    },
  },
  {
    name: 'hook delivery',
    summary: 'Show a delivery of a hook',
    args: [DELIVERY],
    aboutProject: true,
    routes: ['getDelivery'],
    async run(cli, args) {
      const { id } = await cli.project();
      const delivery = await cli
        .client()
        .call('getDelivery', { params: { id, delivery: argument(args, 0) } });
      cli.print(delivery, () => deliveryText(cli, delivery));
    },
  },
  {
    name: 'hook redeliver',
    summary: 'Check the branch of a delivery again',
    args: [DELIVERY],
    aboutProject: true,
    routes: ['redeliver'],
    async run(cli, args) {
      const { id } = await cli.project();
      const delivery = await cli
        .client()
        .call('redeliver', { params: { id, delivery: argument(args, 0) } });
      cli.print(delivery, () => deliveryText(cli, delivery));
    },
  },
];
