/**
 * The tab "Env and secrets": variables, which people can read, and secrets, which nobody can read.
 */
import type { Project } from '@berth/wire/project';
import type { Secret } from '@berth/wire/secret';
import { useApiMutation } from '../../api/mutations.ts';
import { useApiList } from '../../api/queries.ts';
import { changeColumn, removeColumn } from '../../parts/change-column.tsx';
import { Command, Empty } from '../../parts/command.tsx';
import { originOf, originText } from '../../parts/config-origin.ts';
import { useProjectReasons } from '../../parts/permissions.ts';
import { Problem } from '../../parts/problem.tsx';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { type TaggedProject, useTaggedProject } from '../../parts/tagged-project.ts';
import { Ago } from '../../parts/time.tsx';
import { type Cell, Table } from '../../ui/data.tsx';
import { Note } from '../../ui/feedback.tsx';
import { Column, Panel } from '../../ui/layout.tsx';
import { Code, Text } from '../../ui/text.tsx';
import { EnvForm } from './env-form.tsx';

export function Env({ project: shown }: { project: Project }) {
  const tagged = useTaggedProject(shown);
  return (
    <Column>
      <Note>A change takes effect with the next deployment.</Note>
      <EnvForm tagged={tagged} />
      <Variables tagged={tagged} />
      <Secrets project={tagged.project} />
    </Column>
  );
}

/** `env` is undefined for viewers: only developers get the values. */
const variableColumns = (project: Project): Cell<string>[] => [
  { head: 'Name', rowHead: true, cell: (name) => <Code>{name}</Code> },
  {
    head: 'Value',
    cell: (name) =>
      project.env === undefined ? (
        <Text tone="quiet">only developers see it</Text>
      ) : (
        <Code>{project.env[name] ?? ''}</Code>
      ),
  },
  ...(originText(project) === null
    ? []
    : [
        {
          head: 'From',
          cell: (name: string) => originOf(project, `env.${name}`) ?? 'the project',
        },
      ]),
];

function Variables({ tagged: { project, headers } }: { tagged: TaggedProject }) {
  const reason = useProjectReasons(project)('set_env');
  const deleteEnv = useApiMutation('deleteEnv');
  const reasonOf = (name: string): string | null => {
    const origin = originOf(project, `env.${name}`);
    return reason ?? (origin === null ? null : `it comes ${origin}`);
  };
  const remove = changeColumn<string>(
    (name) => name,
    (name) => [
      {
        label: 'Remove',
        danger: true,
        reason: reasonOf(name),
        onClick: () => void deleteEnv.run({ params: { id: project.id, name }, ...headers }),
      },
    ],
  );
  return (
    <Panel
      flush
      title="Environment variables"
      id="env"
      actions={<Command words={['env', 'list', project.name]} />}
    >
      <Problem error={deleteEnv.error} what="Removing the variable" />
      {project.env_names.length === 0 ? (
        <Empty>No variables.</Empty>
      ) : (
        <Table
          label="Environment variables"
          rows={project.env_names}
          id={(name) => name}
          cells={[...variableColumns(project), remove]}
        />
      )}
    </Panel>
  );
}

const SCOPE_WORDS = { run: 'container', build: 'build' } as const;

const SECRET_COLUMNS: Cell<Secret>[] = [
  { head: 'Name', rowHead: true, cell: (row) => <Code>{row.name}</Code> },
  {
    head: 'For',
    cell: (row) => `${SCOPE_WORDS[row.scope]}, as ${row.as === 'env' ? 'variable' : 'file'}`,
  },
  { head: 'Fingerprint', wide: true, cell: (row) => <Code>{row.fingerprint}</Code> },
  { head: 'Set', cell: (row) => <Ago at={row.set_at} /> },
  { head: 'By', wide: true, cell: (row) => row.set_by ?? '' },
];

function Secrets({ project }: { project: Project }) {
  const reason = useProjectReasons(project)('set_env');
  const secrets = useApiList('listSecrets', { params: { id: project.id } });
  const deleteSecret = useApiMutation('deleteSecret');
  const remove = removeColumn<Secret>({
    nameOf: ({ name }) => name,
    label: 'Delete',
    reason,
    onClick: ({ name }) => void deleteSecret.run({ params: { id: project.id, name } }),
  });
  return (
    <Panel
      flush
      title="Secrets"
      id="secrets"
      actions={<Command words={['secret', 'list', project.name]} />}
    >
      <Problem error={deleteSecret.error} what="Deleting the secret" />
      <QueryBoundary query={secrets.query} what="the secrets">
        {() =>
          secrets.items.length === 0 ? (
            <Empty>No secrets.</Empty>
          ) : (
            <Table
              label="Secrets"
              rows={secrets.items}
              id={(row) => row.name}
              cells={[...SECRET_COLUMNS, remove]}
            />
          )
        }
      </QueryBoundary>
    </Panel>
  );
}
