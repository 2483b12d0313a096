import type { NodeRecord } from '../../domain/records.ts';
import type { Row } from '../tables.ts';

/** `observed_since` and `announced` are for the database's own questions. */
export const nodeOf = ({ observed_since: _since, announced: _announced, ...row }: Row<'nodes'>): NodeRecord => ({
  ...row,
  engine: row.engine === null ? null : (JSON.parse(row.engine) as NodeRecord['engine']),
  capabilities: row.capabilities === null ? null : (JSON.parse(row.capabilities) as NodeRecord['capabilities']),
  disk: row.disk === null ? null : (JSON.parse(row.disk) as NodeRecord['disk']),
  schedulable: row.schedulable !== 0,
  drain: row.drain === null ? null : (JSON.parse(row.drain) as NodeRecord['drain']),
  cached: JSON.parse(row.cached) as NodeRecord['cached'],
  containers: JSON.parse(row.containers) as NodeRecord['containers'],
});
