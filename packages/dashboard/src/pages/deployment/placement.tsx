/** Shows why this node was chosen: the score of every node, and why nodes were refused. */
import type { Deployment } from '@berth/wire/deployment';
import {
  cachedDatasetsColumn,
  estimateColumn,
  freeColumn,
  missingBytesColumn,
  nodeColumn,
  resultColumn,
  scoreColumn,
} from '../../parts/placement-columns.tsx';
import { Table } from '../../ui/data.tsx';
import { Panel } from '../../ui/layout.tsx';

export function PlacementScores({ deployment: { placement } }: { deployment: Deployment }) {
  if (placement === null) return null;
  const { items, winner } = placement;
  const hostname = items.find(({ node_id }) => node_id === winner)?.hostname;
  return (
    <Panel flush title={`Why ${hostname ?? winner ?? 'no node'}`} id="why">
      <Table
        label="Nodes and their scores"
        rows={items}
        id={(row) => row.node_id}
        cells={[
          nodeColumn,
          resultColumn(winner),
          scoreColumn,
          cachedDatasetsColumn,
          missingBytesColumn,
          freeColumn,
          estimateColumn,
        ]}
      />
    </Panel>
  );
}
