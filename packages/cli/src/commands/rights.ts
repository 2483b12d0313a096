/** Commands for admins that change the members of a project. */
import { MEMBER_ROLES, type Member, type Project } from '@berth/wire/project';
import { confirmed } from '../ask.ts';
import type { Cli } from '../cli.ts';
import { changeProject } from '../project/change.ts';
import { usage } from '../problem.ts';
import { table } from '../output/text.ts';
import { argument, type Command } from './command.ts';
import { allUsers, userId } from './user.ts';
import { YES } from './project.ts';

const USER = { name: 'user', doc: 'e-mail address or id', required: true } as const;
const CHANGE = ['listUsers', 'getProject', 'patchProject'] as const;

export const RIGHTS_COMMANDS: readonly Command[] = [
  {
    name: 'project members list',
    summary: 'List the members of a project; without members every user sees it',
    args: [{ name: 'project', doc: 'name or id; default: the project of this folder' }],
    aboutProject: true,
    routes: ['getProject', 'listUsers'],
    async run(cli, [named]) {
      const project = await cli.project(named);
      await show(cli, project);
    },
  },
  {
    name: 'project members add',
    summary: 'Add a member to a project, or change the role of a member',
    detail:
      'The first member restricts the project: from then on only its members and admins see it.',
    args: [USER],
    options: [
      {
        flags: '--role <role>',
        doc: 'role in the project, at most the role of the user (default: developer)',
        choices: MEMBER_ROLES,
      },
    ],
    aboutProject: true,
    routes: CHANGE,
    async run(cli, args, { role }) {
      const member = {
        user_id: await userId(cli, argument(args, 0)),
        role: (role as Member['role'] | undefined) ?? 'developer',
      };
      let isFirst = false;
      const project = await changeProject(cli, async ({ members }) => {
        isFirst = members.length === 0;
        return { members: [...members.filter((m) => m.user_id !== member.user_id), member] };
      });
      if (isFirst) cli.say(`from now on only the members of ${project.name} and admins see it`);
      await show(cli, project);
    },
  },
  {
    name: 'project members remove',
    summary: 'Remove a member from a project',
    detail:
      'Without a member every user sees the project, so the removal of the last one asks first.',
    args: [USER],
    options: [YES],
    aboutProject: true,
    routes: CHANGE,
    async run(cli, args, { yes }) {
      const person = argument(args, 0);
      let isAgreed = yes === true;
      const project = await changeProject(cli, async ({ name, members }) => {
        // A deleted user has no e-mail address any more, but can still be in the member list.
        const id = members.some((m) => m.user_id === person) ? person : await userId(cli, person);
        const others = members.filter((m) => m.user_id !== id);
        if (others.length === members.length) throw usage(`${person} is not a member of ${name}`);
        if (others.length === 0) {
          await confirmed(
            cli.io,
            isAgreed,
            `${name} then has no members, so every user sees it. Remove the last one?`,
          );
          isAgreed = true;
        }
        return { members: others };
      });
      await show(cli, project);
    },
  },
];

async function show(cli: Cli, { name, members }: Project): Promise<void> {
  const users = await allUsers(cli);
  const emails = new Map(users.map((user) => [user.id, user.email]));
  const rows = members.map((m) => ({ ...m, email: emails.get(m.user_id) ?? null }));
  cli.print({ members: rows }, () =>
    rows.length === 0
      ? `${name} has no members, so every user sees it; add one: berth project members add USER ` +
        `--project ${name}`
      : table(rows, [
          { head: 'USER', of: (m) => m.email ?? '(deleted user)' },
          { head: 'ROLE', of: (m) => m.role },
          { head: 'ID', of: (m) => m.user_id },
        ]),
  );
}
