import { defined } from '@berth/kit/defined';
import type { DeploymentItem } from '@berth/wire/deployment';
import { type Project, restWord } from '@berth/wire/project';
import { keepPreviousData, useQueries } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useDeferredValue } from 'react';
import { PageLayout } from '../parts/page-layout.tsx';
import { useReasons } from '../parts/permissions.ts';
import { apiQuery, useApiList } from '../api/queries.ts';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { useAttention } from '../parts/attention.ts';
import { Command, Empty } from '../parts/command.tsx';
import { commitText } from '../parts/deployments.tsx';
import { More } from '../parts/more.tsx';
import { DeploymentStatus, HealthStatus } from '../parts/states.tsx';
import { Ago } from '../parts/time.tsx';
import { countText } from '../parts/time-text.ts';
import { Button } from '../ui/controls.tsx';
import { Table } from '../ui/data.tsx';
import { Panel, Row } from '../ui/layout.tsx';
import { Status } from '../ui/status.tsx';
import { TextField } from '../ui/text-field.tsx';
import { PageLink, SiteLink, Text } from '../ui/text.tsx';

/** Maximum length of a search text that the control plane accepts. */
const LONGEST_SEARCH = 253;
/** Number of projects per request, and of deployments per request. */
const PAGE = 50;

/** Returns the running deployments of these projects, by project. */
function useLive(projects: readonly Project[]): Map<string, DeploymentItem> {
  const ids = projects.flatMap(({ running_deployment_id }) => running_deployment_id ?? []);
  const parts = Array.from({ length: Math.ceil(ids.length / PAGE) }, (_, part) =>
    ids.slice(part * PAGE, (part + 1) * PAGE),
  );
  // If one project deploys, the other projects keep their states until the new answer arrives.
  const answers = useQueries({
    queries: parts.map((part) => ({
      ...apiQuery('listDeployments', { query: { ids: part.join(','), limit: PAGE } }),
      placeholderData: keepPreviousData,
    })),
  });
  return new Map(
    answers.flatMap(
      ({ data }) => data?.items.map((item) => [item.project_id, item] as const) ?? [],
    ),
  );
}

export const ProjectsPage = () => {
  const navigate = useNavigate();
  const search = useSearch({ strict: false }) as Record<string, string>;
  const typed = search['find'] ?? '';
  const find = useDeferredValue(typed.trim().slice(0, LONGEST_SEARCH));
  const projects = useApiList(
    'listProjects',
    { query: { limit: PAGE, ...defined({ find: find === '' ? undefined : find }) } },
    { keep: true },
  );
  const live = useLive(projects.items);
  const attention = useAttention();
  const failed = new Map(
    attention.items
      .filter(({ status }) => status === 'failed')
      .map((item) => [item.project_id, item]),
  );
  const reason = useReasons()('create_project', null);
  return (
    <PageLayout
      title="Projects"
      actions={
        <>
          <Command words={['project', 'list']} />
          <Button
            look="main"
            reason={reason}
            onClick={() => void navigate({ to: '/projects/new' })}
          >
            New project
          </Button>
        </>
      }
    >
      <Row>
        <TextField
          label="Find"
          help="a part of the name, the address or the repository"
          type="search"
          value={typed}
          onChange={(find) =>
            void navigate({
              to: '/projects',
              search: (find === '' ? {} : { find }) as never,
              replace: true,
            })
          }
        />
      </Row>
      <Panel flush>
        <QueryBoundary query={projects.query} what="the projects">
          {() =>
            projects.items.length === 0 ? (
              <NoProjects find={find} />
            ) : (
              <>
                <Table
                  label="Projects"
                  rows={projects.items}
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
                      cell: (project) => (
                        <State
                          project={project}
                          live={live.get(project.id)}
                          failed={failed.get(project.id)}
                        />
                      ),
                    },
                    {
                      head: 'Serves',
                      cell: ({ id, stopped }) => {
                        const item = live.get(id);
                        return item === undefined || stopped ? null : <Serves live={item} />;
                      },
                    },
                    {
                      head: 'Address',
                      cell: ({ url }) => (url === null ? '–' : <SiteLink url={url} />),
                    },
                  ]}
                />
                <div
                  style={{ padding: '10px 16px', borderTop: '1px solid var(--table-line)' }}
                  role="status"
                >
                  <Text tone="quiet">
                    {projects.hasMore
                      ? `The first ${countText(projects.items.length, 'project')}`
                      : countText(projects.items.length, 'project')}
                  </Text>
                </div>
                <More list={projects} />
              </>
            )
          }
        </QueryBoundary>
      </Panel>
    </PageLayout>
  );
};

type StateProps = {
  project: Project;
  live: DeploymentItem | undefined;
  failed: DeploymentItem | undefined;
};
/**
 * Shows both states, because a project can serve an old version while its newest deployment failed.
 */
function State({ project, live, failed }: StateProps) {
  return (
    <>
      <LiveState project={project} live={live} />
      {failed !== undefined && (
        <div>
          <PageLink to="/deployments/$id" params={{ id: failed.id }} size="xs">
            <Status mark="bad">#{failed.generation} failed</Status>
          </PageLink>
        </div>
      )}
    </>
  );
}

function LiveState({ project, live }: Pick<StateProps, 'project' | 'live'>) {
  if (project.deleting) return <Status mark="busy">being deleted</Status>;
  if (project.stopped) return <Status mark="off">{restWord(project)}</Status>;
  if (project.running_deployment_id === null) return <Status mark="off">not live</Status>;
  const health = live?.health ?? null;
  return health === null ? <DeploymentStatus status="running" /> : <HealthStatus health={health} />;
}

const NoProjects = ({ find }: { find: string }) =>
  find === '' ? (
    <Empty words={['project', 'create']}>
      No projects yet. In the folder of a repository, run:
    </Empty>
  ) : (
    <Empty>No project has this in its name, address or repository.</Empty>
  );

/** Shows the commit, node, time and data of the running version. */
function Serves({ live }: { live: DeploymentItem }) {
  return (
    <>
      <Text>{commitText(live)}</Text>
      <Text size="xs" tone="quiet">
        {live.node_id !== null && `from ${live.node_name ?? live.node_id}, `}
        deployed <Ago at={live.finished_at ?? live.created_at} />
        {live.datasets
          .map(
            ({ name, version }) =>
              `, ${name} ${version === null ? '(shared)' : `version ${version}`}`,
          )
          .join('')}
      </Text>
    </>
  );
}
