import type { NodeRecord } from '../../domain/records.ts';
import type { Row } from '../tables.ts';

export const nodeOf = (row: Row<'nodes'>): NodeRecord => ({
  ...row,
  schedulable: row.schedulable !== 0,
  cached: JSON.parse(row.cached) as NodeRecord['cached'],
  containers: JSON.parse(row.containers) as NodeRecord['containers'],
});
