import type { NodeRecord } from '../../domain/records.ts';
import type { Row } from '../tables.ts';

/** `observed_since` is for the database's own questions. */
export const nodeOf = ({ observed_since: _since, ...row }: Row<'nodes'>): NodeRecord => ({
  ...row,
  schedulable: row.schedulable !== 0,
  drain: row.drain === null ? null : (JSON.parse(row.drain) as NodeRecord['drain']),
  cached: JSON.parse(row.cached) as NodeRecord['cached'],
  containers: JSON.parse(row.containers) as NodeRecord['containers'],
});
