import { errorSentence } from '@berth/wire/error-sentence';
import type { Node } from '@berth/wire/node';
import type { ReactNode } from 'react';
import { PageLayout } from '../parts/page-layout.tsx';
import { useApiQuery, useApiList } from '../api/queries.ts';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { useAll, useAttention } from '../parts/attention.ts';
import { Command, Empty } from '../parts/command.tsx';
import { Deployments } from '../parts/deployments.tsx';
import { More } from '../parts/more.tsx';
import { useProjectNames } from '../parts/names.ts';
import { addressTakenText, toRemoveText } from '../parts/node-notes.ts';
import { DatasetStatus, DeploymentStatus, HealthStatus, NodeStatus } from '../parts/states.tsx';
import { Ago } from '../parts/time.tsx';
import { bytesText, countText } from '../parts/time-text.ts';
import { Table } from '../ui/data.tsx';
import { Panel } from '../ui/layout.tsx';
import { Status } from '../ui/status.tsx';
import { PageLink, Text } from '../ui/text.tsx';

type Need = { id: string; what: ReactNode; state: ReactNode; why: ReactNode; since: string | null };

const BUSY = ['pending', 'building', 'built', 'deploying'] as const;
/**
 * Deployments in progress, newest first. A few states have few rows each, whatever the history is.
 */
function useBusy() {
  const lists = BUSY.map((status) =>
    useApiList('listDeployments', { query: { status, limit: 50 } }),
  );
  return {
    items: lists
      .flatMap(({ items }) => items)
      .toSorted((a, b) => b.created_at.localeCompare(a.created_at)),
    isKnown: lists.every(({ query }) => query.data !== undefined),
  };
}

export const OverviewPage = () => {
  const attention = useAttention();
  const certificates = useApiList('listProjects', { query: { attention: true, limit: 200 } });
  const nodes = useAll(useApiList('listNodes', { query: { limit: 200 } }));
  const datasets = useAll(useApiList('listDatasets', { query: { limit: 200 } }));
  const busy = useBusy();
  const latest = useApiList('listDeployments', { query: { limit: 50 } });
  const events = useApiQuery('events', { query: { limit: 1 } });
  const seen = new Set<string>();
  const newest = latest.items.filter(({ project_id }) =>
    seen.has(project_id) ? false : seen.add(project_id),
  );
  const projectName = useProjectNames(
    [...attention.items, ...busy.items, ...newest].map(({ project_id }) => project_id),
  );
  const needs: Need[] = [
    ...attention.items
      .filter(({ status }) => status === 'failed')
      .map((item) => ({
        id: item.id,
        what: (
          <PageLink to="/deployments/$id" params={{ id: item.id }} size="sm">
            {projectName(item.project_id)}
            {`\u00A0#${item.generation}`}
          </PageLink>
        ),
        state: <DeploymentStatus status="failed" />,
        why: errorSentence(item.error?.message ?? ''),
        since: item.finished_at,
      })),
    ...attention.items
      .filter(({ status, health }) => status === 'running' && health !== null)
      .map((item) => ({
        id: `health ${item.id}`,
        what: (
          <PageLink to="/deployments/$id" params={{ id: item.id }} size="sm">
            {projectName(item.project_id)}
          </PageLink>
        ),
        state: item.health === null ? null : <HealthStatus health={item.health} />,
        why: item.health?.detail ?? '',
        since: item.health?.since ?? null,
      })),
    ...nodes.items
      .filter(
        (node) =>
          node.status === 'offline' ||
          node.doubled !== null ||
          node.engine?.ok === false ||
          isFull(node.disk),
      )
      .map((node) => ({
        id: node.id,
        what: (
          <PageLink to="/nodes/$name" params={{ name: node.id }} size="sm">
            {node.hostname}
          </PageLink>
        ),
        state:
          node.status === 'online' && isFull(node.disk) ? (
            <Status mark="warn">disk nearly full</Status>
          ) : (
            <NodeStatus node={node} />
          ),
        why: whyOf(node),
        since: node.status === 'online' && isFull(node.disk) ? null : node.last_seen_at,
      })),
    ...nodes.items.flatMap((node) => {
      const why = toRemoveText(node);
      if (why === null) return [];
      const what = (
        <PageLink to="/nodes/$name" params={{ name: node.id }} size="sm">
          {node.hostname}
        </PageLink>
      );
      const since = (node.unmanaged ?? []).map((one) => one.since).toSorted()[0] ?? null;
      return [
        {
          id: `unmanaged ${node.id}`,
          what,
          state: <Status mark="warn">left over</Status>,
          why,
          since,
        },
      ];
    }),
    ...datasets.items
      .filter(({ status }) => status === 'suspicious' || status === 'unreachable')
      .map((dataset) => ({
        id: dataset.id,
        what: (
          <PageLink to="/datasets/$name" params={{ name: dataset.name }} size="sm">
            {dataset.name}
          </PageLink>
        ),
        state: <DatasetStatus status={dataset.status} />,
        why: dataset.problem ?? '',
        since: dataset.last_scanned_at,
      })),
    ...certificates.items.map((project) => ({
      id: `certificate ${project.id}`,
      what: (
        <PageLink
          to="/projects/$name/$tab"
          params={{ name: project.name, tab: 'domains' }}
          size="sm"
        >
          {project.name}
        </PageLink>
      ),
      state: <Status mark="warn">certificate</Status>,
      why: project.certificate?.problem ?? '',
      since: project.certificate?.checked_at ?? null,
    })),
  ];
  const isKnown =
    busy.isKnown &&
    [attention, certificates, nodes, datasets, latest].every(
      ({ query }) => query.data !== undefined,
    );
  const isMore = attention.hasMore || certificates.hasMore;
  return (
    <PageLayout
      title="Overview"
      actions={<Command words={['status', '--all']} />}
      lead={
        !isKnown ? undefined : needs.length > 0 ? (
          <Status mark="warn" strong>
            {isMore && 'more than '}
            {countText(needs.length, 'thing needs', 'things need')} attention
          </Status>
        ) : (
          <Status mark="ok" strong>
            All is well{events.data?.items.at(-1) === undefined ? '' : ': '}
            {events.data?.items.at(-1) !== undefined && (
              <>
                last change <Ago at={events.data.items.at(-1)?.at ?? ''} />
              </>
            )}
          </Status>
        )
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
                  cells={[
                    { head: 'What', rowHead: true, cell: ({ what }) => what },
                    { head: 'State', cell: ({ state }) => state },
                    { head: 'Why', cell: ({ why }) => <Text clamp>{why}</Text> },
                    {
                      head: 'Since',
                      cell: ({ since }) => (since === null ? '' : <Ago at={since} />),
                    },
                  ]}
                />
                <More list={attention} />
              </Panel>
            )}
            {busy.items.length > 0 && (
              <Panel title="In progress" id="progress" flush>
                <Deployments
                  items={busy.items}
                  more={null}
                  withProject
                  label="Deployments in progress"
                  empty={[]}
                />
              </Panel>
            )}
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
              {latest.items.length === 0 ? (
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
          </>
        )}
      </QueryBoundary>
    </PageLayout>
  );
};

/** Below a tenth of the disk, new builds and copies begin to fail. */
const isFull = (disk: { free: number; total: number } | null): boolean =>
  disk !== null && disk.total > 0 && disk.free / disk.total < 0.1;

/** All reasons of a node, the one that asks for a decision first. */
const whyOf = (node: Node): string =>
  [
    addressTakenText(node),
    node.doubled === null ? null : 'another machine registers under this name',
    node.engine?.ok === false ? `container engine: ${node.engine.error ?? 'no answer'}` : null,
    node.status === 'online' && isFull(node.disk) && node.disk !== null
      ? `${bytesText(node.disk.free)} of ${bytesText(node.disk.total)} are free`
      : null,
  ]
    .filter((text) => text !== null)
    .join('; ');
