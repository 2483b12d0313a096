/** Shows why this node was chosen: the score of every node, and why nodes were refused. */
import type { Deployment } from '@berth/wire/deployment';
import type { Placement } from '@berth/wire/node';
import {
  cachedDatasetsColumn,
  freeColumn,
  missingBytesColumn,
  nodeColumn,
  resultColumn,
  scoreColumn,
} from '../../parts/placement-columns.tsx';
import { Table } from '../../ui/data.tsx';
import { Panel } from '../../ui/layout.tsx';

export function PlacementScores({ deployment }: { deployment: Deployment }) {
  const { placement, instances } = deployment;
  if (instances.length < 2)
    return placement === null ? null : <Scores placement={placement} id="why" />;
  return instances.map(({ id, process, number, placement: own }) =>
    own === null ? null : (
      <Scores
        key={id}
        placement={own}
        id={`why-${process}-${number}`}
        of={`${process} ${number}`}
      />
    ),
  );
}

type ScoresProps = {
  placement: Placement;
  id: string;
  /** The instance, if there are several. */
  of?: string;
};
function Scores({ placement: { items, winner }, id, of }: ScoresProps) {
  const hostname = items.find(({ node_id }) => node_id === winner)?.hostname;
  const title = `Why ${hostname ?? winner ?? 'no node'}`;
  return (
    <Panel flush title={of === undefined ? title : `${title} for ${of}`} id={id}>
      <Table
        label={of === undefined ? 'Nodes and their scores' : `Nodes and their scores for ${of}`}
        rows={items}
        id={(row) => row.node_id}
        cells={[
          nodeColumn,
          resultColumn(winner),
          scoreColumn,
          cachedDatasetsColumn,
          missingBytesColumn,
          freeColumn,
        ]}
      />
    </Panel>
  );
}
