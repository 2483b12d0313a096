/** Creates the feed events of nodes. */
import type { DrainRecord } from '../domain/platform/records.ts';
import type { Row } from './engine/tables.ts';
import { type NewEvent } from './events.ts';
import { registerNode } from './node-registration.ts';

type Named = Pick<Row<'nodes'>, 'id' | 'role' | 'hostname'>;

export const nodeEvent = (
  { id, role, hostname }: Named,
  what: string,
  says: string,
  at: number,
): NewEvent => ({
  at,
  kind: `node.${what}`,
  node_id: id,
  message: `${role} ${hostname} ${says}`,
});

export type RegisteredRow = Awaited<ReturnType<typeof registerNode>>;

export function registerEvents(
  { before, row, displaced }: RegisteredRow,
  silentThere: Row<'nodes'> | null,
  at: number,
): NewEvent[] {
  const taken =
    silentThere === null
      ? []
      : [
          nodeEvent(
            silentThere,
            'address_taken',
            `is silent, and node ${row.hostname} has its address ${row.host_ip} now`,
            at,
          ),
        ];
  if (before === undefined) {
    const registered = nodeEvent(row, 'registered', `registered from ${row.host_ip}`, at);
    if (displaced === null) return [registered, ...taken];
    const why = `it was silent, and another machine, at ${row.host_ip}, has that name now`;
    return [
      nodeEvent(displaced.row, 'renamed', `was renamed from ${row.hostname}: ${why}`, at),
      registered,
      ...taken,
    ];
  }
  return [
    ...(before.hostname === row.hostname
      ? []
      : [nodeEvent(row, 'renamed', `was renamed from ${before.hostname}`, at)]),
    ...(before.host_ip === row.host_ip
      ? []
      : [
          nodeEvent(
            row,
            'host_ip',
            `changed its address from ${before.host_ip} to ${row.host_ip}`,
            at,
          ),
        ]),
    ...taken,
  ];
}

export function drainEvents(
  row: Named,
  drain: DrainRecord | null,
  before: DrainRecord | null,
  at: number,
): NewEvent[] {
  if (drain === null) return [];
  if (before?.started_at !== drain.started_at)
    return [nodeEvent(row, 'draining', 'is being drained', at)];
  return before.finished_at === null && drain.finished_at !== null
    ? [nodeEvent(row, 'drained', 'is drained', at)]
    : [];
}
