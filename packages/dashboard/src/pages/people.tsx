import { ROLES, type Role } from '@berth/wire/vocabulary';
import { useState } from 'react';
import { PageLayout } from '../parts/page-layout.tsx';
import { useMe } from '../parts/permissions.ts';
import { useApiList } from '../api/queries.ts';
import { useApiMutation } from '../api/mutations.ts';
import { AdminOnly } from '../parts/admin-only.tsx';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { Command } from '../parts/command.tsx';
import { fieldErrors, FormProblem, Problem } from '../parts/problem.tsx';
import { Ago } from '../parts/time.tsx';
import { Button, Menu } from '../ui/controls.tsx';
import { Table } from '../ui/data.tsx';
import { Select } from '../ui/fields.tsx';
import { Columns, Column, Panel, Row } from '../ui/layout.tsx';
import { Status } from '../ui/status.tsx';
import { TextField } from '../ui/text-field.tsx';

export const PeoplePage = () => (
  <AdminOnly title="People">
    <People />
  </AdminOnly>
);

function People() {
  const me = useMe();
  const users = useApiList('listUsers', { query: { limit: 200 } });
  const [email, setEmail] = useState('');
  const [role, setRole] = useState<Role>('viewer');
  const create = useApiMutation('createUser', () => {
    setEmail('');
    // Reset the role, so that the next person does not become an admin by accident.
    setRole('viewer');
  });
  const patch = useApiMutation('patchUser');
  const errors = fieldErrors(create.error);
  return (
    <PageLayout title="People">
      <Panel title="Add a person" id="add">
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void create.run({ body: { email, role } });
          }}
        >
          <Column gap="sm">
            <Columns most={2}>
              <TextField
                label="E-mail address"
                type="email"
                value={email}
                onChange={setEmail}
                error={errors['email']}
                required
              />
              <Select
                label="Role"
                value={role}
                onChange={setRole}
                options={ROLES.map((value) => ({ value, label: value }))}
              />
            </Columns>
            <FormProblem error={create.error} what="Adding" fields={['email']} />
            <Row>
              <Button type="submit" look="main" busy={create.busy}>
                Add
              </Button>
              <Command
                words={['user', 'create', email === '' ? 'ada@example.org' : email, '--role', role]}
              />
            </Row>
          </Column>
        </form>
      </Panel>
      <Problem error={patch.error} what="The change" />
      <Panel flush title="Users" id="users" actions={<Command words={['user', 'list']} />}>
        <QueryBoundary query={users.query} what="the users">
          {() => (
            <Table
              label="Users"
              rows={users.items}
              id={(row) => row.id}
              cells={[
                { head: 'E-mail address', rowHead: true, cell: (row) => row.email },
                { head: 'Role', cell: (row) => row.role },
                {
                  head: 'State',
                  cell: (row) =>
                    row.disabled ? (
                      <Status mark="off">disabled</Status>
                    ) : (
                      <Status mark="ok">active</Status>
                    ),
                },
                {
                  head: 'Last sign-in',
                  cell: (row) =>
                    row.last_login_at === null ? 'never' : <Ago at={row.last_login_at} />,
                },
                {
                  head: 'Change',
                  cell: (row) => {
                    const reason = row.id === me.id ? 'it is your own account' : null;
                    return (
                      <Menu
                        label={`Actions for ${row.email}`}
                        items={[
                          ...ROLES.filter((one) => one !== row.role).map((one) => ({
                            label: `Make ${one}`,
                            reason,
                            onClick: () =>
                              void patch.run({ params: { id: row.id }, body: { role: one } }),
                          })),
                          {
                            label: row.disabled ? 'Enable' : 'Disable',
                            danger: !row.disabled,
                            reason,
                            onClick: () =>
                              void patch.run({
                                params: { id: row.id },
                                body: { disabled: !row.disabled },
                              }),
                          },
                        ]}
                      />
                    );
                  },
                },
              ]}
            />
          )}
        </QueryBoundary>
      </Panel>
    </PageLayout>
  );
}
