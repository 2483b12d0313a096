/** The tab "Data": datasets, volumes, and the node where a deployment would run. */
import type { Project } from '@berth/wire/project';
import { useApiQuery } from '../../api/queries.ts';
import { Command } from '../../parts/command.tsx';
import {
  cachedDatasetsColumn,
  missingBytesColumn,
  nodeColumn,
  resultColumn,
  scoreColumn,
} from '../../parts/placement-columns.tsx';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { useTaggedProject } from '../../parts/tagged-project.ts';
import { Table } from '../../ui/data.tsx';
import { clean } from '../../ui/foreign.ts';
import { Column, Panel } from '../../ui/layout.tsx';
import { Text } from '../../ui/text.tsx';
import { DataCopies } from './data-copies.tsx';
import { Datasets } from './data-datasets.tsx';
import { Volumes } from './data-volumes.tsx';

export function Data({ project: shown }: { project: Project }) {
  const tagged = useTaggedProject(shown);
  return (
    <Column>
      <Datasets tagged={tagged} />
      {tagged.project.data_copies > 1 && <DataCopies project={tagged.project} />}
      <Volumes tagged={tagged} />
      <PlacementPreview project={tagged.project} />
    </Column>
  );
}

function PlacementPreview({ project }: { project: Project }) {
  const placement = useApiQuery('placement', { query: { project_id: project.id } });
  return (
    <Panel
      flush
      title="If it were deployed now"
      id="placement"
      actions={<Command words={['placement', project.name]} />}
    >
      <QueryBoundary query={placement} what="the placement">
        {({ items, winner, note }) => (
          <>
            {note !== undefined && (
              <div style={{ padding: '0 16px 16px' }}>
                <Text>{clean(note)}</Text>
              </div>
            )}
            <Table
              label="Score of each node"
              rows={items}
              id={(row) => row.node_id}
              cells={[
                nodeColumn,
                resultColumn(winner),
                scoreColumn,
                { ...cachedDatasetsColumn, wide: true },
                missingBytesColumn,
              ]}
            />
          </>
        )}
      </QueryBoundary>
    </Panel>
  );
}
