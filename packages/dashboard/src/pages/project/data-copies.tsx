/** The nodes that keep the datasets of a project, if it wants more than one copy. */
import type { DataCopies as Copies } from '@berth/wire/data-copies';
import type { Project } from '@berth/wire/project';
import { useApiQuery } from '../../api/queries.ts';
import { Command, Empty } from '../../parts/command.tsx';
import { NodeLink } from '../../parts/links.tsx';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { type Cell, Table } from '../../ui/data.tsx';
import { Note } from '../../ui/feedback.tsx';
import { Panel } from '../../ui/layout.tsx';

const COLUMNS: Cell<Copies['nodes'][number]>[] = [
  { head: 'Node', rowHead: true, cell: (row) => <NodeLink name={row.node} /> },
  { head: 'State', cell: (row) => row.state },
  { head: 'Missing', cell: (row) => row.missing.join(', ') },
  { head: 'Why', cell: (row) => row.detail ?? '' },
];

export function DataCopies({ project }: { project: Project }) {
  const copies = useApiQuery('projectDataCopies', { params: { id: project.id } });
  return (
    <Panel
      flush
      title={`Data copies: ${copies.data?.have ?? '…'} of ${project.data_copies}`}
      id="data-copies"
      actions={<Command words={['project', 'show', project.name]} />}
    >
      <QueryBoundary query={copies} what="the copies">
        {({ nodes, why }) => (
          <>
            {why !== null && <Note>{why}</Note>}
            {nodes.length === 0 ? (
              <Empty>No node keeps a copy.</Empty>
            ) : (
              <Table
                label="Nodes that keep the datasets"
                rows={nodes}
                id={(row) => row.node_id}
                cells={COLUMNS}
              />
            )}
          </>
        )}
      </QueryBoundary>
    </Panel>
  );
}
