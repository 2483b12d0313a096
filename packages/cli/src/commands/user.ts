/** Commands for users of the API. */
import { defined } from '@berth/kit/defined';
import type { User } from '@berth/wire/user';
import { ROUTES } from '@berth/wire/routes';
import { ROLES, type Role } from '@berth/wire/vocabulary';
import { confirmed, readValue } from '../ask.ts';
import type { Cli } from '../cli.ts';
import { refused, usage } from '../problem.ts';
import { allPages } from '../project/pages.ts';
import { record } from '../output/text.ts';
import { ago } from '../output/units.ts';
import { argument, type Command } from './command.ts';
import { listCommand } from './from-route.ts';
import { YES } from './project.ts';

const USER = { name: 'user', doc: 'e-mail address or id', required: true } as const;

export const USER_COMMANDS: readonly Command[] = [
  listCommand('listUsers', {
    name: 'user list',
    empty: 'no users',
    columns: (cli) => [
      { head: 'EMAIL', of: (u) => u.email },
      { head: 'ROLE', of: (u) => u.role },
      { head: 'STATE', of: (u) => (u.disabled ? 'disabled' : 'enabled') },
      { head: 'LAST LOGIN', of: (u) => ago(u.last_login_at, cli.io.now()) },
      { head: 'ID', of: (u) => u.id },
    ],
  }),
  {
    name: 'user create',
    summary: ROUTES.createUser.summary,
    args: [{ name: 'email', doc: 'e-mail address', required: true }],
    options: [
      { flags: '--role <role>', doc: 'role in the API', required: true, choices: ROLES },
      { flags: '--password', doc: 'set a password, from a prompt or from standard input' },
    ],
    routes: ['createUser'],
    async run(cli, args, { role, password }) {
      const passwordField =
        password === true
          ? { password: await readValue(cli.io, `Password of ${argument(args, 0)}`, true) }
          : {};
      const user = await cli.client().call('createUser', {
        body: { email: argument(args, 0), role: role as Role, ...passwordField },
      });
      cli.print(user, () => `created ${user.email} (${user.role})`);
    },
  },
  {
    name: 'user show',
    summary: ROUTES.getUser.summary,
    args: [USER],
    routes: ['getUser', 'listUsers'],
    async run(cli, args) {
      const user = await cli
        .client()
        .call('getUser', { params: { id: await userId(cli, argument(args, 0)) } });
      cli.print(user, () =>
        record([
          ['user', user.email],
          ['id', user.id],
          ['role', user.role],
          ['state', user.disabled ? 'disabled' : 'enabled'],
          ['last login', ago(user.last_login_at, cli.io.now())],
        ]),
      );
    },
  },
  {
    name: 'user edit',
    summary: ROUTES.patchUser.summary,
    args: [USER],
    options: [
      { flags: '--role <role>', doc: 'role in the API', choices: ROLES },
      { flags: '--disable', doc: 'disable the account: its sessions and tokens end' },
      { flags: '--enable', doc: 'enable the account' },
      { flags: '--password', doc: 'set a password, from a prompt or from standard input' },
      {
        flags: '--no-password',
        doc: 'remove the password: the user signs in through the gateway only',
      },
    ],
    routes: ['patchUser', 'listUsers'],
    async run(cli, args, { role, disable, enable, password }) {
      if (disable === true && enable === true)
        throw usage('--disable and --enable exclude one another');
      const id = await userId(cli, argument(args, 0));
      const body = defined({
        role: role as Role | undefined,
        disabled: disabledBy(disable === true, enable === true),
        password:
          password === true
            ? await readValue(cli.io, `New password of ${argument(args, 0)}`, true)
            : removedBy(password),
      });
      if (Object.keys(body).length === 0)
        throw usage('nothing was given to change', 'berth user edit --help');
      const user = await cli.client().call('patchUser', { params: { id }, body });
      cli.print(
        user,
        () => `changed ${user.email}: ${user.role}, ${user.disabled ? 'disabled' : 'enabled'}`,
      );
    },
  },
  {
    name: 'user delete',
    summary: ROUTES.deleteUser.summary,
    args: [USER],
    options: [YES],
    routes: ['deleteUser', 'listUsers'],
    async run(cli, args, { yes }) {
      const id = await userId(cli, argument(args, 0));
      await confirmed(cli.io, yes === true, `Delete the user ${argument(args, 0)}?`);
      await cli.client().call('deleteUser', { params: { id } });
      cli.print({ deleted: id }, () => `deleted ${argument(args, 0)}`);
    },
  },
  {
    name: 'user password',
    summary: 'Change your own password; all your sessions end',
    detail:
      'Both passwords come from prompts; without a terminal, from two lines of standard input: ' +
      'the old one, then the new one.',
    routes: ['changePassword'],
    async run(cli) {
      const [old_password = '', new_password = ''] = cli.io.terminal.in
        ? [
            await readValue(cli.io, 'Your password', true),
            await readValue(cli.io, 'Your new password', true),
          ]
        : (await cli.io.readStdin(10_000)).split(/\r?\n/);
      await cli.client().call('changePassword', { body: { old_password, new_password } });
      cli.print(
        { changed: true },
        () => 'your password is changed; sign in again: berth login --email ADDRESS',
      );
    },
  },
];

/** Returns the new value of `disabled`, or undefined to leave the account unchanged. */
function disabledBy(disable: boolean, enable: boolean): boolean | undefined {
  if (disable) return true;
  return enable ? false : undefined;
}

/** Returns null for `--no-password`, which removes the password. */
const removedBy = (password: unknown): null | undefined => (password === false ? null : undefined);

export const allUsers = (cli: Cli): Promise<User[]> =>
  allPages((cursor) => cli.client().call('listUsers', { query: { limit: 200, ...cursor } }));

/** Returns the id of a user who is named by id or by e-mail address. The API accepts only ids. */
export async function userId(cli: Cli, named: string): Promise<string> {
  if (!named.includes('@')) return named;
  const users = await allUsers(cli);
  const match = users.find((user) => user.email === named.toLowerCase());
  if (match === undefined)
    throw refused('not_found', `there is no user “${named}”`, 'berth user list');
  return match.id;
}
