import type { Boots } from '../../domain/nodes/duplicate-agents.ts';
import type { NodeRecord } from '../../domain/platform/records.ts';
import type { Row } from '../engine/tables.ts';

type Hidden =
  | 'announced'
  | 'heard_at'
  | 'addressed_at'
  | 'secret_hash'
  | 'secret_used'
  | 'secret_reset_at'
  | 'shared_secret'
  | 'boots';

/** Returns the record without the columns that only store/ uses. */
export function nodeOf(row: Row<'nodes'>): NodeRecord {
  const {
    announced: _a,
    heard_at: _e,
    addressed_at: _d,
    secret_hash,
    secret_used: _u,
    secret_reset_at: _r,
    shared_secret: _h,
    boots: _b,
    ...shown
  } = row;
  const rest: Omit<Row<'nodes'>, Hidden> = shown;
  return {
    ...rest,
    engine: jsonOf(row.engine) as NodeRecord['engine'],
    capabilities: jsonOf(row.capabilities) as NodeRecord['capabilities'],
    disk: jsonOf(row.disk) as NodeRecord['disk'],
    labels: (jsonOf(row.labels) ?? {}) as NodeRecord['labels'],
    admin_labels: (jsonOf(row.admin_labels) ?? {}) as NodeRecord['admin_labels'],
    devices: (jsonOf(row.devices) ?? {}) as NodeRecord['devices'],
    has_secret: secret_hash !== null,
    doubled: bootsOf(row)?.doubled ?? null,
    schedulable: row.schedulable !== 0,
    drain: jsonOf(row.drain) as NodeRecord['drain'],
    cached: JSON.parse(row.cached) as NodeRecord['cached'],
    containers: JSON.parse(row.containers) as NodeRecord['containers'],
    earlier_nodes: (jsonOf(row.earlier_nodes) ?? []) as NodeRecord['earlier_nodes'],
  };
}

export const bootsOf = (row: Pick<Row<'nodes'>, 'boots'>): Boots | null =>
  jsonOf(row.boots) as Boots | null;

const jsonOf = (text: string | null): unknown => (text === null ? null : JSON.parse(text));
