import {
  NOTIFICATION_EVENTS,
  NOTIFICATION_KINDS,
  type NotificationEvent,
  type NotificationKind,
} from '@berth/wire/notification';
import { useState } from 'react';
import { PageLayout } from '../parts/page-layout.tsx';
import { hasRole, useMe } from '../parts/permissions.ts';
import { useApiList } from '../api/queries.ts';
import { errorOfLast, useApiMutation } from '../api/mutations.ts';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { Command, Empty } from '../parts/command.tsx';
import { useProjectNames } from '../parts/names.ts';
import { fieldErrors, FormProblem, Problem } from '../parts/problem.tsx';
import { Ago } from '../parts/time.tsx';
import { Button, Copy, Menu } from '../ui/controls.tsx';
import { Table } from '../ui/data.tsx';
import { ManySelect, Select } from '../ui/fields.tsx';
import { Note } from '../ui/feedback.tsx';
import { Column, Columns, Panel, Row } from '../ui/layout.tsx';
import { Status } from '../ui/status.tsx';
import { TextField } from '../ui/text-field.tsx';
import { Code, Text } from '../ui/text.tsx';

export const NotificationsPage = () => {
  const me = useMe();
  if (!hasRole(me.role, 'developer'))
    return (
      <PageLayout title="Notifications">
        <Note title="Only developers and admins see this page">Your role is {me.role}.</Note>
      </PageLayout>
    );
  return <Notifications isAdmin={me.role === 'admin'} />;
};

function Notifications({ isAdmin }: { isAdmin: boolean }) {
  const list = useApiList('listNotifications', { query: { limit: 200 } });
  const projects = useApiList('listProjects', { query: { limit: 200 } });
  const projectName = useProjectNames(list.items.flatMap((row) => row.projects));
  const [name, setName] = useState('');
  const [kind, setKind] = useState<NotificationKind>('webhook');
  const [target, setTarget] = useState('');
  const [on, setOn] = useState<string[]>([...NOTIFICATION_EVENTS]);
  const [only, setOnly] = useState<string[]>([]);
  const [secret, setSecret] = useState<string | null>(null);
  const [tested, setTested] = useState<{ name: string; error: string | null } | null>(null);
  const create = useApiMutation('createNotification', (answer) => {
    setSecret(answer.secret);
    setName('');
    setTarget('');
  });
  const test = useApiMutation('testNotification');
  const remove = useApiMutation('deleteNotification');
  const errors = fieldErrors(create.error);
  const error = errorOfLast(test, remove);
  return (
    <PageLayout
      title="Notifications"
      lead="Berth reports each problem once, and again when it is over."
    >
      {secret !== null && (
        <Note
          tone="warn"
          title="Copy the signing secret now; it is not shown again"
          live
          onClose={() => setSecret(null)}
        >
          <Row>
            <Code>{secret}</Code>
            <Copy text={secret} label="Copy the secret" />
          </Row>
        </Note>
      )}
      {tested !== null && (
        <Note
          tone={tested.error === null ? 'ok' : 'bad'}
          title={
            tested.error === null
              ? `The test to ${tested.name} was delivered`
              : `The test to ${tested.name} failed`
          }
          live
          onClose={() => setTested(null)}
        >
          {tested.error}
        </Note>
      )}
      <Problem error={error} what="The action" />
      <Panel
        flush
        title="Targets"
        id="targets"
        actions={<Command words={['notification', 'list']} />}
      >
        <QueryBoundary query={list.query} what="the notifications">
          {() =>
            list.items.length === 0 ? (
              <Empty words={['notification', 'create', 'ops', '--kind', 'webhook']}>
                No notifications yet. Create the first one:
              </Empty>
            ) : (
              <Table
                label="Notifications"
                rows={list.items}
                id={(row) => row.id}
                cells={[
                  { head: 'Name', rowHead: true, cell: (row) => row.name },
                  { head: 'Kind', cell: (row) => row.kind },
                  { head: 'Target', wide: true, cell: (row) => <Code>{row.target}</Code> },
                  {
                    head: 'Projects',
                    wide: true,
                    cell: (row) =>
                      row.projects.length === 0 ? 'all' : row.projects.map(projectName).join(', '),
                  },
                  {
                    head: 'State',
                    cell: (row) =>
                      row.failing_since === null ? (
                        row.last_sent_at === null ? (
                          <Status mark="off">not tested</Status>
                        ) : (
                          <Status mark="ok">works</Status>
                        )
                      ) : (
                        <>
                          <Status mark="bad">fails</Status>
                          <Text size="xs">{row.problem}</Text>
                        </>
                      ),
                  },
                  {
                    head: 'Last sent',
                    wide: true,
                    cell: (row) =>
                      row.last_sent_at === null ? 'never' : <Ago at={row.last_sent_at} />,
                  },
                  {
                    head: 'Change',
                    cell: (row) => (
                      <Menu
                        label={`Actions for ${row.name}`}
                        items={[
                          {
                            label: 'Send a test',
                            onClick: () =>
                              void test
                                .run({ params: { id: row.id } })
                                .then(
                                  (answer) =>
                                    answer !== null &&
                                    setTested({ name: row.name, error: answer.error }),
                                ),
                          },
                          {
                            label: 'Delete',
                            danger: true,
                            onClick: () => void remove.run({ params: { id: row.id } }),
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
      <Panel title="New notification" id="new">
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void create.run({
              body: { name, kind, target, on: on as NotificationEvent[], projects: only },
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
                label="Kind"
                value={kind}
                onChange={setKind}
                options={NOTIFICATION_KINDS.map((value) => ({ value, label: value }))}
              />
              <TextField
                label={kind === 'email' ? 'E-mail addresses' : 'Address'}
                value={target}
                onChange={setTarget}
                error={errors['target']}
                required
              />
            </Columns>
            <ManySelect
              label="Problems"
              value={on}
              onChange={setOn}
              options={NOTIFICATION_EVENTS.map((value) => ({
                value,
                label: value.replace('_', ' '),
              }))}
              error={errors['on']}
            />
            <ManySelect
              label="Projects"
              help={isAdmin ? 'empty: all projects' : 'at least one'}
              value={only}
              onChange={setOnly}
              options={projects.items.map(({ id, name: label }) => ({ value: id, label }))}
              error={errors['projects']}
            />
            <FormProblem
              error={create.error}
              what="Creating"
              fields={['name', 'target', 'on', 'projects']}
            />
            <Row>
              <Button
                type="submit"
                look="main"
                reason={
                  !isAdmin && only.length === 0
                    ? 'choose a project; only admins are told of all'
                    : null
                }
                busy={create.busy}
              >
                Create
              </Button>
            </Row>
          </Column>
        </form>
      </Panel>
    </PageLayout>
  );
}
