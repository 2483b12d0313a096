import { sizeText } from '@berth/wire/size-text';
import { PageLayout } from '../parts/page-layout.tsx';
import { useApiList } from '../api/queries.ts';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { Command, Empty } from '../parts/command.tsx';
import { More } from '../parts/more.tsx';
import { DatasetStatus } from '../parts/states.tsx';
import { Ago } from '../parts/time.tsx';
import { Table } from '../ui/data.tsx';
import { Panel } from '../ui/layout.tsx';
import { PageLink, Text } from '../ui/text.tsx';

export const DatasetsPage = () => {
  const datasets = useApiList('listDatasets', { query: { limit: 200 } });
  return (
    <PageLayout
      title="Datasets"
      actions={<Command words={['dataset', 'create', 'NAME', '--nfs-path', 'FOLDER']} />}
    >
      <Panel flush>
        <QueryBoundary query={datasets.query} what="the datasets">
          {() =>
            datasets.items.length === 0 ? (
              <Empty words={['dataset', 'create', 'NAME', '--nfs-path', 'FOLDER']}>
                No datasets yet. Register a folder of the shared storage:
              </Empty>
            ) : (
              <>
                <Table
                  label="Datasets"
                  rows={datasets.items}
                  id={({ id }) => id}
                  cells={[
                    {
                      head: 'Dataset',
                      rowHead: true,
                      cell: ({ name }) => (
                        <PageLink to="/datasets/$name" params={{ name }} size="sm">
                          {name}
                        </PageLink>
                      ),
                    },
                    {
                      head: 'State',
                      cell: ({ status, problem }) => (
                        <>
                          <DatasetStatus status={status} />
                          {problem !== null && <Text size="xs">{problem}</Text>}
                        </>
                      ),
                    },
                    { head: 'Version', number: true, cell: ({ version }) => version ?? '' },
                    { head: 'Size', number: true, cell: ({ bytes }) => sizeText(bytes) },
                    {
                      head: 'Files',
                      number: true,
                      wide: true,
                      cell: ({ files }) => files.toLocaleString('en'),
                    },
                    {
                      head: 'Scanned',
                      wide: true,
                      cell: ({ last_scanned_at }) =>
                        last_scanned_at === null ? '' : <Ago at={last_scanned_at} />,
                    },
                  ]}
                />
                <More list={datasets} />
              </>
            )
          }
        </QueryBoundary>
      </Panel>
    </PageLayout>
  );
};
