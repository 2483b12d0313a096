/**
 * Usage points of containers (domain/nodes/usage.ts). A crash of the machine can lose the newest
 * points.
 */
import { METRIC_VALUES } from '@berth/wire/metrics';
import { sql } from 'kysely';
import { WEB } from '../domain/deployments/instance.ts';
import {
  MINUTES,
  QUARTERS,
  USAGE_STEPS,
  plus,
  type ReportedPoint,
  type UsagePoint,
  type UsageRange,
  type UsageStep,
  type UsageStore,
  type UsageValues,
} from '../domain/nodes/usage.ts';
import type { Database } from './engine/database.ts';
import type { NewRow, Row, Tx } from './engine/tables.ts';

type PointRow = Row<'usage_points'>;
/** Number of points in one statement: far below the parameter limit of both engines. */
const ROWS_A_STATEMENT = 500;
const SWEPT_AT_ONCE = 2_000;
/** Maximum number of points that a scrape reads. An instance has one point per minute. */
const MOST_PRESENT = 5_000;

export const createUsageStore = (db: Database): UsageStore => ({
  record: (nodeId, points) => recordUsage(db, nodeId, points),
  read: (range, most) => readUsage(db, range, most),
  present: (from, most) => presentUsage(db, from, most),
  sweep: (now) => sweepUsage(db, now),
});

async function recordUsage(
  db: Database,
  nodeId: string,
  points: readonly ReportedPoint[],
): Promise<number> {
  if (points.length === 0) return 0;
  const named = [...new Set(points.map((point) => point.deployment_id))];
  const present = await instancesOn(db, nodeId, named);
  const accepted = points.flatMap((point) => {
    const instance = present.get(instanceKey(point));
    return instance === undefined ? [] : [{ ...instance, point }];
  });
  if (accepted.length === 0) return 0;
  await db.writeUnsynced(async (tx) => {
    for (const step of USAGE_STEPS) await write(tx, step, accepted);
  });
  return accepted.length;
}

type PresentInstance = { project_id: string; process: string; number: number };
const instanceKey = (one: { deployment_id: string; instance_id: string | null }): string =>
  `${one.deployment_id} ${one.instance_id ?? ''}`;

/** Returns the instances of the deployments that are assigned to the node, by `instanceKey`. */
async function instancesOn(
  { kysely }: Database,
  nodeId: string,
  deployments: readonly string[],
): Promise<Map<string, PresentInstance>> {
  const [first, others] = await Promise.all([
    kysely
      .selectFrom('deployments')
      .innerJoin('projects', 'projects.id', 'deployments.project_id')
      .select([
        'deployments.id as deployment_id',
        'deployments.project_id',
        'deployments.instance_id',
        'deployments.instance_number as number',
      ])
      .where('deployments.id', 'in', [...deployments])
      .where('deployments.node_id', '=', nodeId)
      .execute(),
    kysely
      .selectFrom('instances')
      .select(['id', 'deployment_id', 'project_id', 'process', 'number', 'labelled'])
      .where('deployment_id', 'in', [...deployments])
      .where('node_id', '=', nodeId)
      .execute(),
  ]);
  const present = new Map<string, PresentInstance>();
  for (const { id, deployment_id, labelled, ...instance } of others)
    present.set(instanceKey({ deployment_id, instance_id: labelled === 0 ? null : id }), instance);
  for (const { deployment_id, instance_id, ...instance } of first)
    present.set(instanceKey({ deployment_id, instance_id }), { ...instance, process: WEB });
  return present;
}

async function readUsage(
  db: Database,
  { project_id, step, from, to, process, number }: UsageRange,
  most: number,
): Promise<UsagePoint[]> {
  const rows = await db.kysely
    .selectFrom('usage_points')
    .selectAll()
    .where('project_id', '=', project_id)
    .where('step', '=', step.ms)
    .where('slot', '>=', slotOf(from, step))
    .where('slot', '<=', slotOf(to, step))
    .where('at', '>=', from)
    .where('at', '<=', to)
    // A row of an earlier version has no process and number.
    .$if(process !== undefined, (q) =>
      q.where((eb) => eb(eb.fn.coalesce('process', eb.val(WEB)), '=', process ?? '')),
    )
    .$if(number !== undefined, (q) =>
      q.where((eb) => eb(eb.fn.coalesce('instance', eb.val(1)), '=', number ?? 0)),
    )
    .orderBy('slot', 'desc')
    .orderBy('deployment_id')
    .limit(most)
    .execute();
  return rows.map(pointOf).sort((a, b) => a.at - b.at);
}

async function presentUsage(
  db: Database,
  from: number,
  most: number,
): Promise<{ project: string; values: UsageValues }[]> {
  const rows = await db.kysely
    .selectFrom('usage_points')
    .innerJoin('projects', 'projects.id', 'usage_points.project_id')
    .selectAll('usage_points')
    .select('projects.name')
    .where('step', '=', MINUTES.ms)
    .where('slot', '>=', slotOf(from, MINUTES))
    .where('at', '>=', from)
    .orderBy('slot', 'desc')
    .limit(MOST_PRESENT)
    .execute();
  const newest = new Map<string, (typeof rows)[number]>();
  for (const row of rows)
    if ((newest.get(row.deployment_id)?.at ?? 0) < row.at) newest.set(row.deployment_id, row);
  const sums = new Map<string, UsageValues>();
  for (const { name, ...row } of newest.values()) {
    const point = pointOf(row);
    const before = sums.get(name);
    const sum = METRIC_VALUES.map(
      (value) =>
        [value, before === undefined ? point[value] : plus(before[value], point[value])] as const,
    );
    sums.set(name, Object.fromEntries(sum) as UsageValues);
  }
  return [...sums]
    .map(([project, values]) => ({ project, values }))
    .sort(
      (a, b) =>
        (b.values.memory_bytes ?? -1) - (a.values.memory_bytes ?? -1) ||
        a.project.localeCompare(b.project),
    )
    .slice(0, most);
}

async function sweepUsage(db: Database, now: number): Promise<number> {
  let removed = 0;
  for (const step of USAGE_STEPS) {
    const before = slotOf(now - step.keptMs, step);
    const last = await db.kysely
      .selectFrom('usage_points')
      .select('slot')
      .where('step', '=', step.ms)
      .where('slot', '<', before)
      .orderBy('slot')
      .offset(SWEPT_AT_ONCE)
      .limit(1)
      .executeTakeFirst();
    const { numDeletedRows } = await db.writeUnsynced((tx) =>
      tx
        .deleteFrom('usage_points')
        .where('step', '=', step.ms)
        // Deletes at least the oldest slot, even if it has more points than the limit.
        .where('slot', last === undefined ? '<' : '<=', last?.slot ?? before)
        .executeTakeFirstOrThrow(),
    );
    removed += Number(numDeletedRows);
  }
  return removed;
}

const slotOf = (at: number, step: UsageStep): number => Math.floor(at / step.ms);

type Accepted = PresentInstance & { point: ReportedPoint };
async function write(tx: Tx, step: UsageStep, accepted: readonly Accepted[]): Promise<void> {
  // Merges points with the same key, because one statement must not change a row twice.
  const rows = new Map<string, NewRow<'usage_points'>>();
  for (const one of accepted) {
    const row = rowOf(one, step);
    const key = `${row.slot} ${row.deployment_id}`;
    const other = rows.get(key);
    const [older, newer] = other === undefined || other.at <= row.at ? [other, row] : [row, other];
    const memory =
      step === QUARTERS
        ? highest(older?.memory_bytes, newer.memory_bytes)
        : (newer.memory_bytes ?? null);
    rows.set(key, { ...newer, memory_bytes: memory });
  }
  const all = [...rows.values()];
  for (let i = 0; i < all.length; i += ROWS_A_STATEMENT)
    await tx
      .insertInto('usage_points')
      .values(all.slice(i, i + ROWS_A_STATEMENT))
      .onConflict((oc) =>
        oc.columns(['project_id', 'step', 'slot', 'deployment_id']).doUpdateSet({
          ...Object.fromEntries(NEWEST.map((column) => [column, newest(column)])),
          memory_bytes: step === QUARTERS ? HIGHEST : newest('memory_bytes'),
        }),
      )
      .execute();
}

const NEWEST = [
  'at',
  'process',
  'instance',
  'started_at',
  'cpu_ms',
  'throttled_ms',
  'memory_limit',
  'restarts',
  'oom_kills',
  'net_rx',
  'net_tx',
] as const;
const newest = (column: (typeof NEWEST)[number] | 'memory_bytes') =>
  sql<number>`case when excluded.at >= usage_points.at
    then ${sql.ref(`excluded.${column}`)} else ${sql.ref(`usage_points.${column}`)} end`;
const HIGHEST = sql<number>`case
  when usage_points.memory_bytes is null then excluded.memory_bytes
  when excluded.memory_bytes is null or excluded.memory_bytes < usage_points.memory_bytes
  then usage_points.memory_bytes
  else excluded.memory_bytes end`;
const highest = (a: number | null | undefined, b: number | null | undefined): number | null => {
  const values = [a, b].filter((value) => value !== null && value !== undefined);
  return values.length === 0 ? null : Math.max(...values);
};

const msOf = (seconds: number | null): number | null =>
  seconds === null ? null : Math.round(seconds * 1000);
const secondsOf = (ms: number | null): number | null => (ms === null ? null : ms / 1000);
const whole = (value: number | null): number | null => (value === null ? null : Math.round(value));

const rowOf = (
  { project_id, process, number, point }: Accepted,
  step: UsageStep,
): NewRow<'usage_points'> => ({
  project_id,
  step: step.ms,
  slot: slotOf(point.at, step),
  deployment_id: point.instance_id ?? point.deployment_id,
  of_deployment: point.instance_id === null ? null : point.deployment_id,
  process,
  instance: number,
  at: point.at,
  started_at: point.started_at,
  cpu_ms: msOf(point.cpu_seconds),
  throttled_ms: msOf(point.throttled_seconds),
  memory_bytes: whole(point.memory_bytes),
  memory_limit: whole(point.memory_limit),
  restarts: whole(point.restarts),
  oom_kills: whole(point.oom_kills),
  net_rx: whole(point.net_rx),
  net_tx: whole(point.net_tx),
});

const pointOf = ({
  project_id: _p,
  step: _s,
  slot: _l,
  deployment_id: key,
  of_deployment,
  process,
  instance,
  cpu_ms,
  throttled_ms,
  ...row
}: PointRow): UsagePoint => ({
  ...row,
  deployment_id: of_deployment ?? key,
  instance_id: of_deployment === null ? null : key,
  process: process ?? WEB,
  number: instance ?? 1,
  cpu_seconds: secondsOf(cpu_ms),
  throttled_seconds: secondsOf(throttled_ms),
});
