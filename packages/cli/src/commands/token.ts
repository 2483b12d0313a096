/** Commands for personal API tokens and device tokens. */
import { defined } from '@berth/kit/defined';
import { ROLES, type Role } from '@berth/wire/vocabulary';
import { ago } from '../output/units.ts';
import { argument, type Command } from './command.ts';
import { listCommand, memberCommand } from './from-route.ts';

const ID = { name: 'id', doc: 'id', required: true } as const;

export const TOKEN_COMMANDS: readonly Command[] = [
  listCommand('listTokens', {
    name: 'token list',
    empty: 'no tokens; create one: berth token create NAME',
    columns: (cli) => [
      { head: 'NAME', of: (t) => t.name },
      { head: 'ROLE', of: (t) => t.role },
      { head: 'PROJECTS', of: (t) => (t.projects === null ? 'all' : String(t.projects.length)) },
      { head: 'EXPIRES', of: (t) => t.expires_at.slice(0, 10) },
      { head: 'LAST USED', of: (t) => ago(t.last_used_at, cli.io.now()) },
      { head: 'ID', of: (t) => t.id },
    ],
  }),
  {
    name: 'token create',
    summary: 'Create a personal API token for a program such as CI; prints the token once',
    args: [{ name: 'name', doc: 'what the token is for', required: true }],
    options: [
      { flags: '--role <role>', doc: 'at most your own role (default: developer)', choices: ROLES },
      {
        flags: '--expires <days>',
        doc: 'days until it expires, at most 365 (default 90)',
        parse: days,
      },
      {
        flags: '--project <project>',
        doc: 'limit the token to this project, by name or id; may be given several times',
        repeats: true,
      },
    ],
    routes: ['createToken'],
    async run(cli, args, { role, expires, project }) {
      const projects = project as string[] | undefined;
      const expires_at = new Date(
        cli.io.now() + ((expires as number | undefined) ?? 90) * 86_400_000 - 60_000,
      ).toISOString();
      const body = {
        name: argument(args, 0),
        role: (role as Role | undefined) ?? 'developer',
        expires_at,
      };
      const made = await cli.client().call('createToken', {
        body: { ...body, ...defined({ projects }) },
      });
      cli.print(made, () => made.token);
      cli.say(
        `role ${made.role}, valid until ${made.expires_at.slice(0, 10)}; the token is not ` +
          'shown again. Set it as BERTH_TOKEN',
      );
    },
  },
  memberCommand('deleteToken', {
    name: 'token delete',
    subject: { ...ID, doc: 'id of the token' },
    text: () => 'the token is revoked',
  }),
  listCommand('listDeviceTokens', {
    name: 'device list',
    empty: 'no device tokens',
    columns: (cli) => [
      { head: 'EMAIL', of: (t) => t.email },
      { head: 'SCOPE', of: (t) => t.scope },
      { head: 'DEVICE', of: (t) => t.user_agent },
      { head: 'CREATED', of: (t) => ago(t.created_at, cli.io.now()) },
      { head: 'LAST USED', of: (t) => ago(t.last_used_at, cli.io.now()) },
      { head: 'ID', of: (t) => t.id },
    ],
  }),
  memberCommand('deleteDeviceToken', {
    name: 'device delete',
    subject: { ...ID, doc: 'id of the device token' },
    text: () => 'the device token is revoked',
  }),
];

function days(text: string): number {
  const count = Number(text);
  if (!Number.isInteger(count) || count < 1 || count > 365)
    throw new Error('must be a number of days from 1 to 365');
  return count;
}
