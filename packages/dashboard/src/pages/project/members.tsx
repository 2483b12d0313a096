/** The tab "Members": people who can see the project, besides admins. */
import { ApiError } from '@berth/wire/client';
import { type Member, MEMBER_ROLES, type Project } from '@berth/wire/project';
import type { User } from '@berth/wire/user';
import { useEffect, useState } from 'react';
import { useApiMutation } from '../../api/mutations.ts';
import { useApiList } from '../../api/queries.ts';
import { changeColumn } from '../../parts/change-column.tsx';
import { Command } from '../../parts/command.tsx';
import { Conflict } from '../../parts/conflict.tsx';
import { hasRole, useMe, useProjectReasons } from '../../parts/permissions.ts';
import { dialogError, FormProblem, listError, Problem } from '../../parts/problem.tsx';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { notReadReason, type TaggedProject, useTaggedProject } from '../../parts/tagged-project.ts';
import { Button, type MenuItem } from '../../ui/controls.tsx';
import { type Cell, Table } from '../../ui/data.tsx';
import { Note } from '../../ui/feedback.tsx';
import { Select } from '../../ui/fields.tsx';
import { Column, Columns, Panel, Row } from '../../ui/layout.tsx';
import { Confirm } from '../../ui/overlay.tsx';
import { Code, Text } from '../../ui/text.tsx';

type MemberRole = Member['role'];
const ROLE_TEXTS = { viewer: 'viewer: reads', developer: 'developer: reads and changes' } as const;
const ROLE_OPTIONS = MEMBER_ROLES.map((value) => ({ value, label: ROLE_TEXTS[value] }));

export const Members = ({ project }: { project: Project }) => {
  const me = useMe();
  if (hasRole(me.role, 'admin')) return <MembersForAdmin project={project} />;
  return (
    <Note
      title={
        project.members.length === 0
          ? 'Every user sees this project'
          : 'Only its members and admins see this project'
      }
    >
      Only admins see and change the members.
    </Note>
  );
};

/** All users, for the names of members and as candidates for new members. */
type Users = readonly User[];
const emailOf = (users: Users, id: string): string | undefined =>
  users.find((user) => user.id === id)?.email;

const without = (members: readonly Member[], id: string): Member[] =>
  members.filter(({ user_id }) => user_id !== id);

function MembersForAdmin({ project }: { project: Project }) {
  const users = useApiList('listUsers', { query: { limit: 200 } });
  const { more } = users;
  useEffect(() => more?.(), [more]);
  const tagged = useTaggedProject(project);
  return (
    <Column>
      {tagged.project.members.length === 0 && (
        <Note title="Every user sees this project">
          The first member restricts it: from then on only its members and admins see it. A token or
          a page that is open loses it at once.
        </Note>
      )}
      <AddMember tagged={tagged} users={users.items} />
      <MemberList tagged={tagged} users={users} />
    </Column>
  );
}

function missingText(user: string, isConflict: boolean): string | null {
  if (user === '') return 'choose a person';
  return isConflict ? 'choose between their role and yours first' : null;
}

function AddMember({ tagged, users }: { tagged: TaggedProject; users: Users }) {
  const { project, headers } = tagged;
  const { members } = project;
  const [user, setUser] = useState('');
  const [role, setRole] = useState<MemberRole>('developer');
  /** The role that another person set meanwhile and that this person agreed to replace. */
  const [replacedRole, setReplacedRole] = useState<MemberRole | null>(null);
  const email = emailOf(users, user);
  const choose = (id: string): void => {
    setUser(id);
    setReplacedRole(null);
  };
  const add = useApiMutation('patchProject', () => choose(''));
  // Ignore the list while the own change runs: its event can arrive before its answer.
  const theirs = add.busy ? undefined : members.find(({ user_id }) => user_id === user)?.role;
  const isConflict = theirs !== undefined && theirs !== role && theirs !== replacedRole;
  /** True if the conflict note already shows the text of the error. */
  const isToldByConflict =
    isConflict && add.error instanceof ApiError && add.error.code === 'changed_meanwhile';
  const reason =
    useProjectReasons(project)('edit_members') ??
    notReadReason(tagged) ??
    missingText(user, isConflict);
  const save = (): void => {
    const next = [...without(members, user), { user_id: user, role }];
    void add.run({ params: { id: project.id }, body: { members: next }, ...headers });
  };
  // Keep the selected person in the list if somebody else adds this person meanwhile.
  const choices = users.filter(
    ({ id }) => id === user || !members.some(({ user_id }) => user_id === id),
  );
  return (
    <Panel title="Add a member" id="add">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (reason === null && !add.busy) save();
        }}
      >
        <Column gap="sm">
          <Columns most={2} align="end">
            <Select
              label="Person"
              value={user}
              onChange={choose}
              options={[
                { value: '', label: 'choose' },
                ...choices.map(({ id, email }) => ({ value: id, label: email })),
              ]}
              error={listError(add.error, 'members')?.message}
            />
            <Select
              label="Role in this project"
              help="not more than the role of the person"
              value={role}
              onChange={setRole}
              options={ROLE_OPTIONS}
            />
          </Columns>
          {isConflict && (
            <Conflict
              title={`Somebody else added ${email ?? user} meanwhile`}
              keep="Replace theirs with mine"
              onKeep={() => {
                setReplacedRole(theirs);
                add.reset();
              }}
              onTake={() => {
                choose('');
                add.reset();
              }}
            >
              <Text>
                theirs <Code>{theirs}</Code>, yours <Code>{role}</Code>
              </Text>
            </Conflict>
          )}
          {!isToldByConflict && (
            <FormProblem error={add.error} what="Saving" fields={['members']} />
          )}
          <Row>
            <Button type="submit" look="main" reason={reason} busy={add.busy}>
              Add
            </Button>
            <Command
              words={[
                'project',
                'members',
                'add',
                email ?? 'ada@example.org',
                '--role',
                role,
                '--project',
                project.name,
              ]}
            />
          </Row>
        </Column>
      </form>
    </Panel>
  );
}

const memberColumns = (users: Users): Cell<Member>[] => [
  {
    head: 'Person',
    rowHead: true,
    cell: ({ user_id }) => emailOf(users, user_id) ?? `a deleted user (${user_id})`,
  },
  { head: 'Role in this project', cell: ({ role }) => ROLE_TEXTS[role] },
];

type MemberListProps = {
  tagged: TaggedProject;
  users: { items: Users; query: { data: unknown; error: unknown; refetch: () => unknown } };
};
function MemberList({ tagged, users }: MemberListProps) {
  const { project, headers, isRead } = tagged;
  const { members } = project;
  const nameOf = (id: string): string => emailOf(users.items, id) ?? id;
  /** The member in the open dialog; null if the dialog is closed. */
  const [removing, setRemoving] = useState<string | null>(null);
  const change = useApiMutation('patchProject', () => setRemoving(null));
  const save = (next: Member[]): void => {
    if (isRead)
      void change.run({ params: { id: project.id }, body: { members: next }, ...headers });
  };
  const remove = (id: string): void => {
    if (members.length > 1) return save(without(members, id));
    change.reset();
    setRemoving(id);
  };
  const reason = useProjectReasons(project)('edit_members') ?? notReadReason(tagged);
  const roleItem = (row: Member, role: MemberRole): MenuItem => ({
    label: `Make ${role}`,
    reason,
    onClick: () =>
      save(members.map((one) => (one.user_id === row.user_id ? { ...one, role } : one))),
  });
  const actions = changeColumn<Member>(
    ({ user_id }) => nameOf(user_id),
    (row) => [
      ...MEMBER_ROLES.filter((role) => role !== row.role).map((role) => roleItem(row, role)),
      { label: 'Remove', danger: true, reason, onClick: () => remove(row.user_id) },
    ],
  );
  const staying = without(members, removing ?? '');
  return (
    <>
      {removing === null && <Problem error={change.error} what="The change" />}
      <Panel
        flush
        title="Members"
        id="members"
        actions={<Command words={['project', 'members', 'list', project.name]} />}
      >
        <QueryBoundary query={users.query} what="the people">
          {() =>
            members.length === 0 ? (
              <div style={{ padding: 16 }}>
                <Text tone="quiet">No members.</Text>
              </div>
            ) : (
              <Table
                label="Members"
                rows={members}
                id={(row) => row.user_id}
                cells={[...memberColumns(users.items), actions]}
              />
            )
          }
        </QueryBoundary>
      </Panel>
      <Confirm
        open={removing !== null}
        onClose={() => {
          setRemoving(null);
          change.reset();
        }}
        title={
          staying.length === 0 ? 'Remove the last member?' : `Remove ${nameOf(removing ?? '')}?`
        }
        action="Remove"
        danger
        busy={change.busy}
        error={dialogError(change.error)}
        onConfirm={() => save(staying)}
      >
        <Text>
          {staying.length === 0
            ? `Without a member every user sees ${project.name}.`
            : 'Somebody else added members meanwhile. They stay: ' +
              `${staying.map(({ user_id }) => nameOf(user_id)).join(', ')}.`}
        </Text>
      </Confirm>
    </>
  );
}
