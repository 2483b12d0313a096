/** Members of a project: who sees it, besides admins. */
import { ApiError } from '@berth/wire/client';
import type { Member, Project } from '@berth/wire/project';
import { MEMBER_ROLES } from '@berth/wire/project';
import { useEffect, useState } from 'react';
import { hasRole, useMe, useProjectReasons } from '../../parts/permissions.ts';
import { useApiList } from '../../api/queries.ts';
import { Button, Menu } from '../../ui/controls.tsx';
import { Table } from '../../ui/data.tsx';
import { Note } from '../../ui/feedback.tsx';
import { Select } from '../../ui/fields.tsx';
import { Column, Columns, Panel, Row } from '../../ui/layout.tsx';
import { Confirm } from '../../ui/overlay.tsx';
import { Code, Text } from '../../ui/text.tsx';
import { useApiMutation } from '../../api/mutations.ts';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { Command } from '../../parts/command.tsx';
import { Conflict } from '../../parts/conflict.tsx';
import { dialogError, FormProblem, listError, Problem } from '../../parts/problem.tsx';
import { useTaggedProject } from '../../parts/tagged-project.ts';

const ROLE_TEXTS = { viewer: 'viewer: reads', developer: 'developer: reads and changes' } as const;
const ROLE_OPTIONS = MEMBER_ROLES.map((value) => ({ value, label: ROLE_TEXTS[value] }));

export const Members = ({ project }: { project: Project }) => {
  const me = useMe();
  if (hasRole(me.role, 'admin')) return <MembersForm project={project} />;
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

function MembersForm({ project }: { project: Project }) {
  const users = useApiList('listUsers', { query: { limit: 200 } });
  const { more } = users;
  useEffect(() => more?.(), [more]);
  const { project: current, headers, isRead } = useTaggedProject(project);
  const { members } = current;
  const [user, setUser] = useState('');
  /** The role of somebody else's change that the person agreed to replace. */
  const [replaced, setReplaced] = useState<Member['role'] | null>(null);
  const choose = (id: string): void => {
    setUser(id);
    setReplaced(null);
  };
  const [role, setRole] = useState<Member['role']>('developer');
  /** The member of whom a dialog asks whether to remove it. */
  const [removing, setRemoving] = useState<string | null>(null);
  const add = useApiMutation('patchProject', () => choose(''));
  const change = useApiMutation('patchProject', () => setRemoving(null));
  const emails = new Map(users.items.map(({ id, email }) => [id, email]));
  const nameOf = (id: string): string => emails.get(id) ?? id;
  const save = (next: Member[], by = change): void => {
    if (isRead) void by.run({ params: { id: project.id }, body: { members: next }, ...headers });
  };
  // A person whom somebody else adds meanwhile stays the choice.
  const others = users.items.filter(
    ({ id }) => id === user || !members.some(({ user_id }) => user_id === id),
  );
  const without = (id: string): Member[] => members.filter(({ user_id }) => user_id !== id);
  // While the own change runs, its event may come before its answer.
  const theirs = add.busy ? undefined : members.find(({ user_id }) => user_id === user);
  const isTheirs = theirs !== undefined && theirs.role !== role && theirs.role !== replaced;
  const isTold =
    isTheirs && add.error instanceof ApiError && add.error.code === 'changed_meanwhile';
  const impossible =
    useProjectReasons(project)('edit_members') ?? (isRead ? null : 'the project is not read yet');
  const reason =
    impossible ??
    (user === ''
      ? 'choose a person'
      : isTheirs
        ? 'choose between their role and yours first'
        : null);
  const rest = without(removing ?? '');
  return (
    <Column>
      {members.length === 0 && (
        <Note title="Every user sees this project">
          The first member restricts it: from then on only its members and admins see it. A token or
          a page that is open loses it at once.
        </Note>
      )}
      <Panel title="Add a member" id="add">
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (reason === null && !add.busy)
              save([...without(user), { user_id: user, role }], add);
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
                  ...others.map(({ id, email }) => ({ value: id, label: email })),
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
            {isTheirs && (
              <Conflict
                title={`Somebody else added ${nameOf(user)} meanwhile`}
                keep="Replace theirs with mine"
                onKeep={() => {
                  setReplaced(theirs.role);
                  add.reset();
                }}
                onTake={() => {
                  choose('');
                  add.reset();
                }}
              >
                <Text>
                  theirs <Code>{theirs.role}</Code>, yours <Code>{role}</Code>
                </Text>
              </Conflict>
            )}
            {!isTold && <FormProblem error={add.error} what="Saving" fields={['members']} />}
            <Row>
              <Button type="submit" look="main" reason={reason} busy={add.busy}>
                Add
              </Button>
              <Command
                words={[
                  'project',
                  'members',
                  'add',
                  emails.get(user) ?? 'ada@example.org',
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
      {removing === null && change.error !== null && change.error !== undefined && (
        <Problem error={change.error} what="The change" />
      )}
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
                cells={[
                  {
                    head: 'Person',
                    rowHead: true,
                    cell: (row) => emails.get(row.user_id) ?? `a deleted user (${row.user_id})`,
                  },
                  { head: 'Role in this project', cell: (row) => ROLE_TEXTS[row.role] },
                  {
                    head: 'Change',
                    cell: (row) => (
                      <Menu
                        label={`Actions for ${nameOf(row.user_id)}`}
                        items={[
                          ...MEMBER_ROLES.filter((one) => one !== row.role).map((one) => ({
                            label: `Make ${one}`,
                            reason: impossible,
                            onClick: () =>
                              save(
                                members.map((member) =>
                                  member.user_id === row.user_id
                                    ? { ...member, role: one }
                                    : member,
                                ),
                              ),
                          })),
                          {
                            label: 'Remove',
                            danger: true,
                            reason: impossible,
                            onClick: () => {
                              if (members.length > 1) return save(without(row.user_id));
                              change.reset();
                              setRemoving(row.user_id);
                            },
                          },
                        ]}
                      />
                    ),
                  },
                ]}
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
        title={rest.length === 0 ? 'Remove the last member?' : `Remove ${nameOf(removing ?? '')}?`}
        action="Remove"
        danger
        busy={change.busy}
        error={dialogError(change.error)}
        onConfirm={() => save(rest)}
      >
        <Text>
          {rest.length === 0
            ? `Without a member every user sees ${project.name}.`
            : 'Somebody else added members meanwhile. They stay: ' +
              `${rest.map(({ user_id }) => nameOf(user_id)).join(', ')}.`}
        </Text>
      </Confirm>
    </Column>
  );
}
