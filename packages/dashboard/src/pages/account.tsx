import { defined } from '@berth/kit/defined';
import { ROLES, type Role } from '@berth/wire/vocabulary';
import { ApiError } from '@berth/wire/client';
import { useState } from 'react';
import { PageLayout } from '../parts/page-layout.tsx';
import { hasRole, useMe } from '../parts/permissions.ts';
import { call } from '../api/client.ts';
import { reportProblem } from '../api/connection.ts';
import { useApiList } from '../api/queries.ts';
import { useApiMutation } from '../api/mutations.ts';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { Command, Empty } from '../parts/command.tsx';
import { useProjectNames } from '../parts/names.ts';
import { fieldErrors, FormProblem, Problem } from '../parts/problem.tsx';
import { Ago } from '../parts/time.tsx';
import { Button, Copy } from '../ui/controls.tsx';
import { Table } from '../ui/data.tsx';
import { NumberField, Select, TagsField } from '../ui/fields.tsx';
import { Note } from '../ui/feedback.tsx';
import { Column, Columns, Panel, Row } from '../ui/layout.tsx';
import { TextField } from '../ui/text-field.tsx';
import { Code } from '../ui/text.tsx';

const DAY_MS = 86_400_000;
/** Validity of a new token. */
const DAYS = 90;

export const AccountPage = () => {
  const me = useMe();
  const tokens = useApiList('listTokens', { query: { limit: 200 } });
  const [name, setName] = useState('');
  const [role, setRole] = useState<Role>('viewer');
  const [days, setDays] = useState<number | null>(DAYS);
  const [projects, setProjects] = useState<string[]>([]);
  const [secret, setSecret] = useState<string | null>(null);
  const nameOf = useProjectNames(tokens.items.flatMap((token) => token.projects ?? []));
  const create = useApiMutation(
    'createToken',
    (answer) => {
      setSecret(answer.token);
      setName('');
      // The next token has the least rights again. The limit to projects stays.
      setRole('viewer');
      setDays(DAYS);
    },
    { once: true },
  );
  const revoke = useApiMutation('deleteToken');
  const [old, setOld] = useState('');
  const [next, setNext] = useState('');
  const password = useApiMutation('changePassword', () => {
    setOld('');
    setNext('');
  });
  const errors = { ...fieldErrors(create.error), ...fieldErrors(password.error) };
  const [signOutError, setSignOutError] = useState<unknown>(null);
  const signOut = async (): Promise<void> => {
    try {
      await call('logout', {});
    } catch (error) {
      // The cookie still signs this browser in, and the person must know it.
      if (!(error instanceof ApiError && error.status === 401)) return setSignOutError(error);
    }
    reportProblem('signed_out');
    location.assign('/');
  };
  return (
    <PageLayout
      title="Your account"
      lead={`${me.email}, role ${me.role}`}
      actions={<Button onClick={() => void signOut()}>Sign out</Button>}
    >
      <Problem error={signOutError} what="Signing out" />
      {secret !== null && (
        <Note
          tone="warn"
          title="Copy the token now; it is not shown again"
          live
          onClose={() => setSecret(null)}
        >
          <Row>
            <Code>{secret}</Code>
            <Copy text={secret} label="Copy the token" />
          </Row>
        </Note>
      )}
      <Panel title="New API token" id="token">
        <form
          onSubmit={(event) => {
            event.preventDefault();
            const expires_at = new Date(Date.now() + (days ?? DAYS) * DAY_MS).toISOString();
            void create.run({
              body: {
                name,
                role,
                expires_at,
                ...defined({ projects: projects.length === 0 ? undefined : projects }),
              },
            });
          }}
        >
          <Column gap="sm">
            <Columns most={3}>
              <TextField
                label="Name"
                value={name}
                onChange={setName}
                error={errors['name']}
                required
              />
              <Select
                label="Role"
                value={role}
                onChange={setRole}
                options={ROLES.filter((one) => hasRole(me.role, one)).map((value) => ({
                  value,
                  label: value,
                }))}
              />
              <NumberField
                label="Valid for (days)"
                value={days}
                onChange={setDays}
                min={1}
                max={365}
                error={errors['expires_at']}
              />
            </Columns>
            <TagsField
              label="Only these projects"
              help={
                'names; such a token acts at most as a developer. Empty: all projects that you ' +
                'see'
              }
              value={projects}
              onChange={setProjects}
              error={errors['projects']}
            />
            <FormProblem
              error={create.error}
              what="Creating the token"
              fields={['name', 'expires_at', 'projects']}
            />
            <Row>
              <Button type="submit" look="main" busy={create.busy}>
                Create
              </Button>
            </Row>
          </Column>
        </form>
      </Panel>
      <Panel flush title="API tokens" id="tokens" actions={<Command words={['token', 'list']} />}>
        <Problem error={revoke.error} what="Revoking" />
        <QueryBoundary query={tokens.query} what="the tokens">
          {() =>
            tokens.items.length === 0 ? (
              <Empty words={['token', 'create', 'ci', '--role', 'developer']}>
                No tokens. Programs such as CI sign in with one:
              </Empty>
            ) : (
              <Table
                label="API tokens"
                rows={tokens.items}
                id={(row) => row.id}
                cells={[
                  { head: 'Name', rowHead: true, cell: (row) => row.name },
                  { head: 'Role', cell: (row) => row.role },
                  {
                    head: 'Projects',
                    cell: (row) =>
                      row.projects === null ? 'all' : row.projects.map(nameOf).join(', '),
                  },
                  { head: 'Ends', cell: (row) => <Ago at={row.expires_at} /> },
                  {
                    head: 'Last used',
                    cell: (row) =>
                      row.last_used_at === null ? 'never' : <Ago at={row.last_used_at} />,
                  },
                  {
                    head: 'Change',
                    cell: (row) => (
                      <Button
                        size="xs"
                        look="danger"
                        label={`Revoke ${row.name}`}
                        onClick={() => void revoke.run({ params: { id: row.id } })}
                      >
                        Revoke
                      </Button>
                    ),
                  },
                ]}
              />
            )
          }
        </QueryBoundary>
      </Panel>
      <Panel title="Password" id="password">
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void password.run({ body: { old_password: old, new_password: next } });
          }}
        >
          <Column gap="sm">
            <Columns most={2}>
              <TextField
                label="Current password"
                help="proves that it is you"
                secret
                value={old}
                onChange={setOld}
                autoComplete="current-password"
                error={errors['old_password']}
                required
              />
              <TextField
                label="New password"
                help="at least 10 characters"
                secret
                value={next}
                onChange={setNext}
                autoComplete="new-password"
                error={errors['new_password']}
                required
              />
            </Columns>
            <FormProblem
              error={password.error}
              what="Changing the password"
              fields={['old_password', 'new_password']}
            />
            <Row>
              <Button type="submit" busy={password.busy}>
                Change
              </Button>
            </Row>
          </Column>
        </form>
      </Panel>
    </PageLayout>
  );
};
