import { useNavigate, useSearch } from '@tanstack/react-router';
import { useDeferredValue, useEffect } from 'react';
import { Page as Head } from '../app/page.tsx';
import { useReasons } from '../app/session.tsx';
import { useList } from '../api/queries.ts';
import { Answer } from '../parts/answer.tsx';
import { Empty } from '../parts/command.tsx';
import { DeploymentStatus, HealthStatus } from '../parts/states.tsx';
import { Ago } from '../parts/time.tsx';
import { countText } from '../parts/time-text.ts';
import { Button } from '../ui/controls.tsx';
import { Table } from '../ui/data.tsx';
import { Panel, Row } from '../ui/layout.tsx';
import { Status } from '../ui/status.tsx';
import { TextField } from '../ui/text-field.tsx';
import { OutLink, PageLink, Text } from '../ui/text.tsx';

/** Rows in the page. A filter finds the others. */
const SHOWN = 200;

export const Page = () => {
  const navigate = useNavigate();
  const search = useSearch({ strict: false }) as Record<string, string>;
  const typed = search['find'] ?? '';
  const wanted = useDeferredValue(typed.toLowerCase());
  const projects = useList('listProjects', { query: { limit: 200 } });
  const running = useList('listDeployments', { query: { status: 'running', limit: 200 } });
  useEffect(() => projects.more?.(), [projects.more]);
  useEffect(() => running.more?.(), [running.more]);
  const live = new Map(running.items.map((item) => [item.project_id, item]));
  const found = projects.items.filter(({ name, git_url, domain_prefix }) =>
    `${name} ${git_url} ${domain_prefix}`.toLowerCase().includes(wanted),
  );
  const reason = useReasons()('create_project', null);
  return (
    <Head
      title="Projects"
      actions={
        <Button look="main" reason={reason} onClick={() => void navigate({ to: '/projects/new' })}>
          New project
        </Button>
      }
    >
      <Row>
        <TextField
          label="Find"
          type="search"
          value={typed}
          onChange={(find) => void navigate({ to: '/projects', search: (find === '' ? {} : { find }) as never, replace: true })}
        />
      </Row>
      <Panel flush>
        <Answer query={projects.query} what="the projects">
          {() =>
            projects.items.length === 0 ? (
              <Empty words={['init']}>No projects yet. In the folder of a repository, run:</Empty>
            ) : (
              <>
                <Table
                  label="Projects"
                  rows={found.slice(0, SHOWN)}
                  id={({ id }) => id}
                  cells={[
                    {
                      head: 'Project',
                      rowHead: true,
                      cell: ({ name }) => (
                        <PageLink to="/projects/$name" params={{ name }} size="sm">
                          {name}
                        </PageLink>
                      ),
                    },
                    {
                      head: 'State',
                      cell: (project) => {
                        const item = live.get(project.id);
                        if (project.deleting) return <Status mark="busy">being deleted</Status>;
                        if (project.stopped) return <Status mark="off">stopped</Status>;
                        if (item === undefined) return <Status mark="off">not live</Status>;
                        return item.health === null ? <DeploymentStatus status={item.status} /> : <HealthStatus health={item.health} />;
                      },
                    },
                    { head: 'Address', cell: ({ url }) => <OutLink href={url}>{url.replace(/^https?:\/\//, '')}</OutLink> },
                    { head: 'Branch', wide: true, cell: ({ branch }) => branch },
                    {
                      head: 'Live since',
                      wide: true,
                      cell: ({ id }) =>
                        live.get(id) === undefined ? '' : <Ago at={live.get(id)?.finished_at ?? live.get(id)?.created_at ?? ''} />,
                    },
                  ]}
                />
                <div style={{ padding: 16 }} role="status">
                  <Text tone="quiet">
                    {found.length > SHOWN
                      ? `The first ${SHOWN} of ${countText(found.length, 'project')}; type a part of the name to find the others`
                      : countText(found.length, 'project')}
                  </Text>
                </div>
              </>
            )
          }
        </Answer>
      </Panel>
    </Head>
  );
};
