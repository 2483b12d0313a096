import type { DeploymentItem } from '@berth/wire/deployment';
import { useApiList, useApiQuery } from '../api/queries.ts';
import { useAll, useAttention } from '../parts/attention.ts';
import { Command, Empty } from '../parts/command.tsx';
import { Deployments } from '../parts/deployments.tsx';
import { More } from '../parts/more.tsx';
import { useProjectNames } from '../parts/names.ts';
import { PageLayout } from '../parts/page-layout.tsx';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { Ago } from '../parts/time.tsx';
import { countText } from '../parts/time-text.ts';
import { type Cell, Table } from '../ui/data.tsx';
import { Panel } from '../ui/layout.tsx';
import { Status } from '../ui/status.tsx';
import { PageLink, Text } from '../ui/text.tsx';
import { type Need, needsOf } from './overview/needs.tsx';

export const OverviewPage = () => {
  const attention = useAttention();
  const certificates = useApiList('listProjects', { query: { attention: true, limit: 200 } });
  const nodes = useAll(useApiList('listNodes', { query: { limit: 200 } }));
  const datasets = useAll(useApiList('listDatasets', { query: { limit: 200 } }));
  const inProgress = useInProgress();
  const latest = useApiList('listDeployments', { query: { limit: 50 } });
  const events = useApiQuery('events', { query: { limit: 1 } });
  const newest = newestOfEach(latest.items);
  const projectName = useProjectNames(
    [...attention.items, ...inProgress.items, ...newest].map(({ project_id }) => project_id),
  );
  const needs = needsOf({
    deployments: attention.items,
    nodes: nodes.items,
    datasets: datasets.items,
    projects: certificates.items,
    projectName,
  });
  const isKnown =
    inProgress.isKnown &&
    [attention, certificates, nodes, datasets, latest].every(
      ({ query }) => query.data !== undefined,
    );
  return (
    <PageLayout
      title="Overview"
      actions={<Command words={['status', '--all']} />}
      lead={
        isKnown ? (
          <Verdict
            needs={needs.length}
            hasMore={attention.hasMore || certificates.hasMore}
            lastChange={events.data?.items.at(-1)?.at}
          />
        ) : undefined
      }
    >
      <QueryBoundary query={latest.query} what="the overview">
        {() => (
          <>
            {needs.length > 0 && (
              <Panel title="Needs attention" id="attention" flush>
                <Table
                  label="What needs attention"
                  rows={needs}
                  id={({ id }) => id}
                  cells={NEED_COLUMNS}
                />
                <More list={attention} />
              </Panel>
            )}
            {inProgress.items.length > 0 && (
              <Panel title="In progress" id="progress" flush>
                <Deployments
                  items={inProgress.items}
                  more={null}
                  withProject
                  label="Deployments in progress"
                  empty={[]}
                />
              </Panel>
            )}
            <LatestDeployments newest={newest} />
          </>
        )}
      </QueryBoundary>
    </PageLayout>
  );
};

const IN_PROGRESS = ['pending', 'building', 'built', 'deploying'] as const;
/**
 * Returns deployments in progress, newest first. Queries each state separately, because these
 * states have few rows, however long the history is.
 */
function useInProgress() {
  const lists = IN_PROGRESS.map((status) =>
    useApiList('listDeployments', { query: { status, limit: 50 } }),
  );
  return {
    items: lists
      .flatMap(({ items }) => items)
      .toSorted((a, b) => b.created_at.localeCompare(a.created_at)),
    isKnown: lists.every(({ query }) => query.data !== undefined),
  };
}

/** Returns the newest deployment of each project. `items` must be sorted with the newest first. */
function newestOfEach(items: readonly DeploymentItem[]): DeploymentItem[] {
  const projects = new Set<string>();
  return items.filter(({ project_id }) =>
    projects.has(project_id) ? false : projects.add(project_id),
  );
}

type VerdictProps = {
  needs: number;
  /** True if the lists have more rows than the page has read. */
  hasMore: boolean;
  lastChange: string | undefined;
};
function Verdict({ needs, hasMore, lastChange }: VerdictProps) {
  if (needs > 0)
    return (
      <Status mark="warn" strong>
        {hasMore && 'more than '}
        {countText(needs, 'thing needs', 'things need')} attention
      </Status>
    );
  return (
    <Status mark="ok" strong>
      All is well
      {lastChange !== undefined && (
        <>
          : last change <Ago at={lastChange} />
        </>
      )}
    </Status>
  );
}

const NEED_COLUMNS: Cell<Need>[] = [
  { head: 'What', rowHead: true, cell: ({ what }) => what },
  { head: 'State', cell: ({ state }) => state },
  { head: 'Why', cell: ({ why }) => <Text clamp>{why}</Text> },
  { head: 'Since', cell: ({ since }) => (since === null ? '' : <Ago at={since} />) },
];

const LatestDeployments = ({ newest }: { newest: readonly DeploymentItem[] }) => (
  <Panel
    title="Latest deployments"
    id="latest"
    flush
    actions={
      <PageLink to="/activity" search={{ kind: 'deployment' } as never} size="sm">
        All deployments
      </PageLink>
    }
  >
    {newest.length === 0 ? (
      <Empty words={['deploy']}>
        Nothing was deployed yet. In a folder with a Dockerfile, run:
      </Empty>
    ) : (
      <Deployments
        items={newest.slice(0, 10)}
        more={null}
        withProject
        label="Latest deployment of each project"
        empty={['deploy']}
      />
    )}
  </Panel>
);
