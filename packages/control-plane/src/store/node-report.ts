/** Computes the columns that a report of an agent sets, without side effects. */
import { defined } from '@berth/kit/defined';
import type { NodeDisk, NodeEngine, NodeRegister } from '@berth/wire/node';
import { canonicalAddress } from '../domain/nodes/address.ts';
import { machineOf } from '../domain/nodes/machine.ts';
import type { NodeRecord } from '../domain/platform/records.ts';
import type { NewRow } from './engine/tables.ts';

/** The same moment by the machine's clock and by the uptime clock. */
export type Times = { now: number; uptime: number };

/**
 * Returns the columns that a registration sets. A missing field keeps the old value. `schedulable`
 * and `deleting_at` are not set: only people change them.
 */
export const reportedColumns = (input: NodeRegister, at: Times) =>
  ({
    host_ip: input.host_ip,
    max_storage: input.max_storage,
    max_builds: input.max_builds ?? 1,
    agent_version: input.agent_version ?? null,
    boot_id: input.boot_id ?? null,
    arch: input.arch ?? null,
    ...machineColumns(input),
    engine: input.engine === undefined ? null : JSON.stringify(engineOf(input.engine)),
    capabilities: input.capabilities === undefined ? null : JSON.stringify(input.capabilities),
    last_seen_at: at.now,
    ...diskColumn(input),
    ...defined({
      free_storage: input.free_storage,
      copy_rate: input.copy_rate,
      cached: input.cached === undefined ? undefined : JSON.stringify(input.cached),
      containers: input.containers === undefined ? undefined : JSON.stringify(input.containers),
    }),
  }) satisfies Partial<NewRow<'nodes'>>;

function machineColumns(input: NodeRegister) {
  const { cpus, memory_bytes, labels, devices } = machineOf(input);
  return { cpus, memory_bytes, labels: columnOf(labels), devices: columnOf(devices) };
}

/** Null for an empty object, like the rows of an older version. */
const columnOf = (value: object): string | null =>
  Object.keys(value).length === 0 ? null : JSON.stringify(value);

/**
 * A Berth agent without `disk` has not measured it yet, so the old value stays. A contract-only
 * agent never sends it.
 */
function diskColumn({ disk, agent_version }: NodeRegister): { disk?: string | null } {
  if (disk !== undefined) return { disk: JSON.stringify(diskOf(disk)) };
  return agent_version === undefined ? { disk: null } : {};
}

// Drops unknown fields, which a newer agent can send.
export const diskOf = ({
  datasets,
  images,
  build_cache,
  other,
  free,
  total,
  evictable,
}: NodeDisk): NodeDisk => ({
  datasets,
  images,
  build_cache,
  other,
  free,
  total,
  ...defined({ evictable: evictable === undefined ? undefined : evictableOf(evictable) }),
});

const evictableOf = ({
  build_cache,
  images,
  own_disk,
}: NonNullable<NodeDisk['evictable']>): NonNullable<NodeDisk['evictable']> => ({
  build_cache,
  images: images.map(({ name, bytes, created_at, kept }) => ({ name, bytes, created_at, kept })),
  own_disk: own_disk === null ? null : { free: own_disk.free, total: own_disk.total },
});

const engineOf = ({ ok, version, error }: NodeEngine): NodeEngine => ({ ok, version, error });

export const sameDisk = (a: NodeDisk, b: NodeDisk | null): boolean =>
  b !== null && JSON.stringify(diskOf(a)) === JSON.stringify(diskOf(b));

/** Returns the time of a new address, by the uptime clock; an unchanged address keeps its time. */
export const addressedColumn = (
  { host_ip }: Pick<NodeRegister, 'host_ip'>,
  { uptime }: Times,
  before: Pick<NodeRecord, 'host_ip'> | null,
): { addressed_at?: number } =>
  before !== null && canonicalAddress(before.host_ip) === canonicalAddress(host_ip)
    ? {}
    : { addressed_at: uptime };

/**
 * Returns the observation times, by the uptime clock. An agent lists its containers after it
 * received our last answer. If the report names no answer, Berth takes the time at which the report
 * was sent. If it names our last answer, the list was made after the previous report. If it names a
 * different answer, the time is unknown, and `observed_since` stays.
 */
export function observedColumns(
  { containers, last_answer_at }: NodeRegister,
  at: Times,
  before: Pick<NodeRecord, 'last_seen_at' | 'observed_at'> | null,
): { observed_at?: number; observed_since?: number | null } {
  if (containers === undefined) return {};
  const observed_at = at.uptime;
  if (last_answer_at === undefined || last_answer_at === null)
    return { observed_at, observed_since: at.uptime };
  if (before === null || before.observed_at === null) return { observed_at };
  // An older version wrote this time by the machine's clock.
  if (before.observed_at > at.uptime) return { observed_at, observed_since: null };
  return Date.parse(last_answer_at) === before.last_seen_at
    ? { observed_at, observed_since: before.observed_at }
    : { observed_at };
}
