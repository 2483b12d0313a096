/** Members of a project: who sees it, besides admins. */
import { ApiError } from '@berth/wire/client';
import type { Member, Project } from '@berth/wire/project';
import { MEMBER_ROLES } from '@berth/wire/project';
import { useEffect, useState } from 'react';
import { hasRole, useMe, useProjectReasons } from '../app/session.tsx';
import { useAskWithTag, useList } from '../api/queries.ts';
import { Button, Menu } from '../ui/controls.tsx';
import { Table } from '../ui/data.tsx';
import { Note } from '../ui/feedback.tsx';
import { Select } from '../ui/fields.tsx';
import { Column, Columns, Panel, Row } from '../ui/layout.tsx';
import { Confirm } from '../ui/overlay.tsx';
import { Text } from '../ui/text.tsx';
import { useChange } from './actions.tsx';
import { Answer } from './answer.tsx';
import { Command } from './command.tsx';
import { dialogError, FormProblem, Problem } from './problem.tsx';

const ROLE_TEXTS = { viewer: 'viewer: reads', developer: 'developer: reads and changes' } as const;
const ROLE_OPTIONS = MEMBER_ROLES.map((value) => ({ value, label: ROLE_TEXTS[value] }));

export const Members = ({ project }: { project: Project }) => {
  const me = useMe();
  if (hasRole(me.role, 'admin')) return <MembersForm project={project} />;
  return (
    <Note title={project.members.length === 0 ? 'Every user sees this project' : 'Only its members and admins see this project'}>
      Only admins see and change the members.
    </Note>
  );
};

function MembersForm({ project }: { project: Project }) {
  const users = useList('listUsers', { query: { limit: 200 } });
  const { more } = users;
  useEffect(() => more?.(), [more]);
  const tagged = useAskWithTag('getProject', { params: { id: project.id } });
  const [user, setUser] = useState('');
  const [role, setRole] = useState<Member['role']>('developer');
  const [lastOne, setLastOne] = useState(false);
  const add = useChange('patchProject', () => setUser(''));
  const change = useChange('patchProject', () => setLastOne(false));
  // The list and its ETag are of one answer: with the list of another one, the change could undo that of another person.
  const { members } = tagged.data?.answer ?? project;
  const emails = new Map(users.items.map(({ id, email }) => [id, email]));
  const save = (next: Member[], by = change): void => {
    const etag = tagged.data?.etag;
    void by.run({
      params: { id: project.id },
      body: { members: next },
      ...(etag === null || etag === undefined ? {} : { headers: { 'if-match': etag } }),
    });
  };
  const wrong = add.error instanceof ApiError ? add.error.problem?.errors?.find(({ field }) => field.startsWith('members')) : undefined;
  const others = users.items.filter(({ id }) => !members.some(({ user_id }) => user_id === id));
  const without = (id: string): Member[] => members.filter(({ user_id }) => user_id !== id);
  const impossible = useProjectReasons(project)('edit_members');
  const reason = impossible ?? (user === '' ? 'choose a person' : null);
  return (
    <Column>
      {members.length === 0 && (
        <Note title="Every user sees this project">
          The first member restricts it: from then on only its members and admins see it. A token or a page that is open loses it at once.
        </Note>
      )}
      <Panel title="Add a member" id="add">
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (reason === null && !add.busy) save([...members, { user_id: user, role }], add);
          }}
        >
          <Column gap="sm">
            <Columns most={2} align="end">
              <Select
                label="Person"
                value={user}
                onChange={setUser}
                options={[{ value: '', label: 'choose' }, ...others.map(({ id, email }) => ({ value: id, label: email }))]}
                error={wrong?.message}
              />
              <Select
                label="Role in this project"
                help="not more than the role of the person"
                value={role}
                onChange={setRole}
                options={ROLE_OPTIONS}
              />
            </Columns>
            <FormProblem error={add.error} what="Saving" fields={['members']} />
            <Row>
              <Button type="submit" look="main" reason={reason} busy={add.busy}>
                Add
              </Button>
              <Command
                words={['project', 'members', 'add', emails.get(user) ?? 'ada@example.org', '--role', role, '--project', project.name]}
              />
            </Row>
          </Column>
        </form>
      </Panel>
      {!lastOne && change.error !== null && change.error !== undefined && <Problem error={change.error} what="The change" />}
      <Panel flush title="Members" id="members" actions={<Command words={['project', 'members', 'list', project.name]} />}>
        <Answer query={users.query} what="the people">
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
                  { head: 'Person', rowHead: true, cell: (row) => emails.get(row.user_id) ?? `a deleted user (${row.user_id})` },
                  { head: 'Role in this project', cell: (row) => ROLE_TEXTS[row.role] },
                  {
                    head: 'Change',
                    cell: (row) => (
                      <Menu
                        label={`Actions for ${emails.get(row.user_id) ?? row.user_id}`}
                        items={[
                          ...MEMBER_ROLES.filter((one) => one !== row.role).map((one) => ({
                            label: `Make ${one}`,
                            reason: impossible,
                            onClick: () =>
                              save(members.map((member) => (member.user_id === row.user_id ? { ...member, role: one } : member))),
                          })),
                          {
                            label: 'Remove',
                            danger: true,
                            reason: impossible,
                            onClick: () => (members.length === 1 ? setLastOne(true) : save(without(row.user_id))),
                          },
                        ]}
                      />
                    ),
                  },
                ]}
              />
            )
          }
        </Answer>
      </Panel>
      <Confirm
        open={lastOne}
        onClose={() => {
          setLastOne(false);
          change.reset();
        }}
        title="Remove the last member?"
        action="Remove"
        danger
        busy={change.busy}
        error={dialogError(change.error)}
        onConfirm={() => save([])}
      >
        <Text>Without a member every user sees {project.name}.</Text>
      </Confirm>
    </Column>
  );
}
