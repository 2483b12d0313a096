import type { Node } from '@berth/wire/node';
import { PageLayout } from '../parts/page-layout.tsx';
import { useApiList } from '../api/queries.ts';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { Command, Empty } from '../parts/command.tsx';
import { DiskBar } from '../parts/disk.tsx';
import { More } from '../parts/more.tsx';
import { nodeNotes } from '../parts/node-notes.ts';
import { NodeStatus } from '../parts/states.tsx';
import { Ago } from '../parts/time.tsx';
import { Table } from '../ui/data.tsx';
import { Panel } from '../ui/layout.tsx';
import { PageLink, Text } from '../ui/text.tsx';

export const NodesPage = () => {
  const nodes = useApiList('listNodes', { query: { limit: 200 } });
  return (
    <PageLayout
      title="Nodes"
      actions={<Command words={['node', 'join-token', '--role', 'deploy']} />}
    >
      <Panel flush>
        <QueryBoundary query={nodes.query} what="the nodes">
          {() =>
            nodes.items.length === 0 ? (
              <Empty words={['node', 'join-token', '--role', 'deploy']}>
                No machine has joined yet. Make a join token for the first one:
              </Empty>
            ) : (
              <>
                <Table
                  label="Nodes"
                  rows={nodes.items}
                  id={({ id }) => id}
                  cells={[
                    {
                      head: 'Node',
                      rowHead: true,
                      cell: ({ id, hostname }) => (
                        <PageLink to="/nodes/$name" params={{ name: id }} size="sm">
                          {hostname}
                        </PageLink>
                      ),
                    },
                    { head: 'Role', cell: ({ role }) => role },
                    { head: 'State', cell: (node) => <State node={node} /> },
                    { head: 'Last seen', cell: ({ last_seen_at }) => <Ago at={last_seen_at} /> },
                    {
                      head: 'Containers',
                      number: true,
                      wide: true,
                      cell: ({ containers }) => containers.length,
                    },
                    {
                      head: 'Datasets',
                      number: true,
                      wide: true,
                      cell: ({ cached }) => cached.length,
                    },
                    {
                      head: 'Disk',
                      cell: ({ disk }) => (disk === null ? '' : <DiskBar disk={disk} small />),
                    },
                  ]}
                />
                <More list={nodes} />
              </>
            )
          }
        </QueryBoundary>
      </Panel>
    </PageLayout>
  );
};

const State = ({ node }: { node: Node }) => (
  <>
    <NodeStatus node={node} />
    {nodeNotes(node).map((text) => (
      <Text key={text} size="xs" tone="quiet">
        {text}
      </Text>
    ))}
  </>
);
