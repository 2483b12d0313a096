import { PageLayout } from '../parts/page-layout.tsx';
import { useApiList } from '../api/queries.ts';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { Command, Empty } from '../parts/command.tsx';
import { More } from '../parts/more.tsx';
import { useProjectNames } from '../parts/names.ts';
import { Ago } from '../parts/time.tsx';
import { Table } from '../ui/data.tsx';
import { Panel } from '../ui/layout.tsx';
import { Status } from '../ui/status.tsx';
import { PageLink, SiteLink, Text } from '../ui/text.tsx';

/**
 * The routes of running deployments. A deployment is running only after every entry point of the
 * proxy has confirmed its route.
 */
export const RoutesPage = () => {
  const running = useApiList('listDeployments', { query: { status: 'running', limit: 100 } });
  const projectName = useProjectNames(running.items.map(({ project_id }) => project_id));
  return (
    <PageLayout
      title="Routes"
      actions={<Command words={['deployment', 'list', '--all', '--status', 'running']} />}
      lead={
        'The proxy serves these addresses. A deployment counts as running only after the proxy ' +
        'confirmed its route.'
      }
    >
      <Panel flush>
        <QueryBoundary query={running.query} what="the routes">
          {() =>
            running.items.length === 0 ? (
              <Empty words={['deploy']}>
                No project is live, so the proxy has no routes. Deploy one:
              </Empty>
            ) : (
              <>
                <Table
                  label="Routes"
                  rows={running.items}
                  id={({ id }) => id}
                  cells={[
                    { head: 'Address', rowHead: true, cell: ({ url }) => <SiteLink url={url} /> },
                    {
                      head: 'Project',
                      cell: ({ project_id }) => (
                        <PageLink
                          to="/projects/$name"
                          params={{ name: projectName(project_id) }}
                          size="sm"
                        >
                          {projectName(project_id)}
                        </PageLink>
                      ),
                    },
                    {
                      head: 'Leads to',
                      // `waiting` is set while a running version is stopped: then its address does
                      // not lead to its container.
                      cell: ({ host_ip, host_port, node_id, node_name, waiting }) =>
                        waiting === null ? (
                          <Text mono>
                            {(node_id === null ? '' : `${node_name ?? node_id} `) +
                              `${host_ip ?? '?'}:${host_port ?? '?'}`}
                          </Text>
                        ) : (
                          <Status mark="off">{waiting}</Status>
                        ),
                    },
                    {
                      head: 'Confirmed by the proxy',
                      cell: ({ id, finished_at, created_at }) => (
                        <PageLink to="/deployments/$id" params={{ id }} size="sm">
                          <Ago at={finished_at ?? created_at} />
                        </PageLink>
                      ),
                    },
                  ]}
                />
                <More list={running} />
              </>
            )
          }
        </QueryBoundary>
      </Panel>
    </PageLayout>
  );
};
