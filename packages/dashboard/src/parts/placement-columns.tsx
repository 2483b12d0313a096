/** Table columns for the score of each node. */
import type { PlacementRow } from '@berth/wire/node';
import { sizeText } from '@berth/wire/size-text';
import type { Cell } from '../ui/data.tsx';
import { Status } from '../ui/status.tsx';
import { durationText } from './time-text.ts';

type PlacementCell = Cell<PlacementRow>;

export const nodeColumn: PlacementCell = {
  head: 'Node',
  rowHead: true,
  cell: (row) => row.hostname,
};

export const resultColumn = (winner: string | null): PlacementCell => ({
  head: 'Result',
  cell: (row) => {
    if (row.node_id === winner) return <Status mark="ok">chosen</Status>;
    if (row.eligible) return <Status mark="off">possible</Status>;
    return <Status mark="bad">{row.reason ?? 'refused'}</Status>;
  },
});

export const scoreColumn: PlacementCell = {
  head: 'Score',
  number: true,
  cell: (row) => (row.eligible ? row.score.toFixed(2) : '–'),
};

export const cachedDatasetsColumn: PlacementCell = {
  head: 'Datasets there',
  number: true,
  cell: (row) => row.cached_dataset_count,
};

export const missingBytesColumn: PlacementCell = {
  head: 'To copy',
  number: true,
  // One column for both: a deployment has half a page for the table.
  cell: ({ missing_bytes, estimated_seconds }) =>
    missing_bytes > 0 && estimated_seconds !== null
      ? `${sizeText(missing_bytes)}, ${durationText(estimated_seconds * 1_000)}`
      : sizeText(missing_bytes),
};

export const freeColumn: PlacementCell = {
  head: 'Free',
  number: true,
  wide: true,
  cell: (row) => sizeText(row.free_storage_bytes),
};
