/** API tokens of the signed-in person. */
import { defined } from '@berth/kit/defined';
import type { ApiToken } from '@berth/wire/token';
import { ROLES, type Role } from '@berth/wire/vocabulary';
import { useState } from 'react';
import { useApiMutation } from '../../api/mutations.ts';
import { useApiList } from '../../api/queries.ts';
import { Command, Empty } from '../../parts/command.tsx';
import { useProjectNames } from '../../parts/names.ts';
import { hasRole, useMe } from '../../parts/permissions.ts';
import { fieldErrors, FormProblem, Problem } from '../../parts/problem.tsx';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { Ago } from '../../parts/time.tsx';
import { Button } from '../../ui/controls.tsx';
import { type Cell, Table } from '../../ui/data.tsx';
import { NumberField, Select, TagsField } from '../../ui/fields.tsx';
import { Column, Columns, Panel, Row } from '../../ui/layout.tsx';
import { TextField } from '../../ui/text-field.tsx';

const DAY_MS = 86_400_000;
/** Validity of a new token in days. */
const DEFAULT_DAYS = 90;

const endAfter = (days: number): string => new Date(Date.now() + days * DAY_MS).toISOString();

export function TokenForm({ onCreated }: { onCreated: (token: string) => void }) {
  const me = useMe();
  const [name, setName] = useState('');
  const [role, setRole] = useState<Role>('viewer');
  const [days, setDays] = useState<number | null>(DEFAULT_DAYS);
  const [projects, setProjects] = useState<string[]>([]);
  const create = useApiMutation(
    'createToken',
    ({ token }) => {
      onCreated(token);
      setName('');
      // Reset the role to the least rights. The restriction to projects stays.
      setRole('viewer');
      setDays(DEFAULT_DAYS);
    },
    { once: true },
  );
  const errors = fieldErrors(create.error);
  const roles = ROLES.filter((one) => hasRole(me.role, one));
  return (
    <Panel title="New API token" id="token">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const limit = defined({ projects: projects.length === 0 ? undefined : projects });
          const expires_at = endAfter(days ?? DEFAULT_DAYS);
          void create.run({ body: { name, role, expires_at, ...limit } });
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
              options={roles.map((value) => ({ value, label: value }))}
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
            help="names; such a token acts at most as a developer. Empty: all projects that you see"
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
  );
}

const tokenColumns = (projectName: (id: string) => string): Cell<ApiToken>[] => [
  { head: 'Name', rowHead: true, cell: (row) => row.name },
  { head: 'Role', cell: (row) => row.role },
  {
    head: 'Projects',
    cell: (row) => (row.projects === null ? 'all' : row.projects.map(projectName).join(', ')),
  },
  { head: 'Ends', cell: (row) => <Ago at={row.expires_at} /> },
  {
    head: 'Last used',
    cell: (row) => (row.last_used_at === null ? 'never' : <Ago at={row.last_used_at} />),
  },
];

export function Tokens() {
  const tokens = useApiList('listTokens', { query: { limit: 200 } });
  const projectName = useProjectNames(tokens.items.flatMap((token) => token.projects ?? []));
  const revoke = useApiMutation('deleteToken');
  const revokeColumn: Cell<ApiToken> = {
    head: 'Change',
    cell: ({ id, name }) => (
      <Button
        size="xs"
        look="danger"
        label={`Revoke ${name}`}
        onClick={() => void revoke.run({ params: { id } })}
      >
        Revoke
      </Button>
    ),
  };
  return (
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
              cells={[...tokenColumns(projectName), revokeColumn]}
            />
          )
        }
      </QueryBoundary>
    </Panel>
  );
}
