import { useNavigate, useSearch } from '@tanstack/react-router';
import { useDeferredValue } from 'react';
import { defined } from '@berth/kit/defined';
import type { AuditEntry } from '@berth/wire/audit';
import type { Event } from '@berth/wire/event';
import { PageLayout } from '../parts/page-layout.tsx';
import { hasRole, useMe } from '../parts/permissions.ts';
import { useEvents, useApiList } from '../api/queries.ts';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { Command, Empty } from '../parts/command.tsx';
import { Deployments } from '../parts/deployments.tsx';
import { DeploymentLink, NodeLink, ProjectLink } from '../parts/links.tsx';
import { More } from '../parts/more.tsx';
import { useProjectNames } from '../parts/names.ts';
import { Ago } from '../parts/time.tsx';
import { kindText } from '../parts/words.ts';
import { Button, Choice } from '../ui/controls.tsx';
import { Table } from '../ui/data.tsx';
import { Panel, Row } from '../ui/layout.tsx';
import { type Mark, Status } from '../ui/status.tsx';
import { TextField } from '../ui/text-field.tsx';
import { Text } from '../ui/text.tsx';

const KINDS = ['events', 'deployment', 'audit'] as const;
/** Maximum length of a search text that the control plane accepts. */
const LONGEST_SEARCH = 253;
type Kind = (typeof KINDS)[number];
const COMMANDS: Readonly<Record<Kind, readonly string[]>> = {
  events: ['events'],
  deployment: ['deployment', 'list', '--all'],
  audit: ['audit'],
};

export const ActivityPage = () => {
  const navigate = useNavigate();
  const search = useSearch({ strict: false }) as Record<string, string>;
  const me = useMe();
  const kind: Kind = KINDS.find((one) => one === search['kind']) ?? 'events';
  const go = (next: Record<string, string>): void =>
    void navigate({ to: '/activity', search: next as never, replace: true });
  return (
    <PageLayout title="Activity" actions={<Command words={COMMANDS[kind]} />}>
      <Row>
        <Choice
          label="Show"
          value={kind}
          onChange={(next) => go({ kind: next })}
          options={[
            { value: 'events', label: 'Events' },
            { value: 'deployment', label: 'Deployments' },
            { value: 'audit', label: 'Audit log' },
          ]}
        />
      </Row>
      {kind === 'events' && (
        <Events
          find={search['find'] ?? ''}
          onFind={(find) => go({ kind, ...defined({ find: find === '' ? undefined : find }) })}
        />
      )}
      {kind === 'deployment' && <AllDeployments />}
      {kind === 'audit' &&
        (hasRole(me.role, 'admin') ? (
          <Audit
            user={search['user'] ?? ''}
            onUser={(user) => go({ kind, ...defined({ user: user === '' ? undefined : user }) })}
          />
        ) : (
          <Text>Only admins see the audit log; your role is {me.role}.</Text>
        ))}
    </PageLayout>
  );
};

function Events({ find, onFind }: { find: string; onFind: (text: string) => void }) {
  const events = useEvents(useDeferredValue(find.trim().slice(0, LONGEST_SEARCH)));
  const projectName = useProjectNames(events.items.flatMap(({ project_id }) => project_id ?? []));
  return (
    <Panel
      flush
      title="Events"
      id="events"
      actions={<TextField label="Find" type="search" value={find} onChange={onFind} />}
    >
      <QueryBoundary query={events.query} what="the events">
        {() =>
          events.items.length === 0 ? (
            <Empty>No events.</Empty>
          ) : (
            <>
              <Table
                label="Events, newest first"
                rows={events.items}
                id={(row) => `${row.seq} ${row.kind}`}
                cells={[
                  { head: 'At', cell: (row) => <Ago at={row.at} /> },
                  { head: 'Kind', cell: (row) => kindText(row.kind) },
                  { head: 'What happened', rowHead: true, cell: (row) => row.message },
                  {
                    head: 'About',
                    cell: (row) => <EventSubject event={row} projectName={projectName} />,
                  },
                ]}
              />
              <More list={events}>Show older ones</More>
            </>
          )
        }
      </QueryBoundary>
    </Panel>
  );
}

type EventSubjectProps = { event: Event; projectName: (id: string) => string };
/** Links an event to its deployment, project or node. */
function EventSubject({ event, projectName }: EventSubjectProps) {
  const { deployment_id, project_id, node_id } = event;
  const project = project_id === undefined ? undefined : projectName(project_id);
  if (deployment_id !== undefined)
    return <DeploymentLink id={deployment_id}>{project ?? 'deployment'}</DeploymentLink>;
  if (project !== undefined) return <ProjectLink name={project} />;
  return node_id === undefined ? null : <NodeLink name={node_id}>node</NodeLink>;
}

function AllDeployments() {
  const list = useApiList('listDeployments', { query: { limit: 100 } });
  return (
    <Panel flush title="All deployments" id="deployments">
      <QueryBoundary query={list.query} what="the deployments">
        {() => (
          <Deployments
            items={list.items}
            more={list.more}
            withProject
            label="All deployments, newest first"
            empty={['deploy']}
          />
        )}
      </QueryBoundary>
    </Panel>
  );
}

const OUTCOME_MARKS: Record<AuditEntry['outcome'], Mark> = {
  done: 'ok',
  refused: 'warn',
  failed: 'bad',
};
function Audit({ user, onUser }: { user: string; onUser: (text: string) => void }) {
  const entries = useApiList('audit', {
    query: { limit: 100, ...defined({ user: user.includes('@') ? user : undefined }) },
  });
  return (
    <Panel
      flush
      title="Audit log"
      id="audit"
      actions={<TextField label="E-mail address" type="search" value={user} onChange={onUser} />}
    >
      <QueryBoundary query={entries.query} what="the audit log">
        {() => (
          <>
            <Table
              label="Audit log, newest first"
              rows={entries.items}
              id={(row) => row.id}
              cells={[
                { head: 'At', cell: (row) => <Ago at={row.at} /> },
                { head: 'Who', rowHead: true, cell: (row) => row.user ?? row.via },
                { head: 'Action', cell: (row) => kindText(row.action) },
                { head: 'Target', cell: (row) => row.target ?? '' },
                {
                  head: 'Outcome',
                  cell: (row) => (
                    <Status mark={OUTCOME_MARKS[row.outcome]}>
                      {row.code === null ? row.outcome : `${row.outcome}: ${row.code}`}
                    </Status>
                  ),
                },
                { head: 'From', wide: true, cell: (row) => row.address },
                { head: 'Detail', wide: true, cell: (row) => row.detail ?? '' },
              ]}
            />
            {entries.more !== null && <Button onClick={entries.more}>Show older ones</Button>}
          </>
        )}
      </QueryBoundary>
    </Panel>
  );
}
