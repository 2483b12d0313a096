/**
 * Usage points of containers (domain/nodes/usage.ts). A crash of the machine can lose the newest
 * points.
 */
import { METRIC_VALUES } from '@berth/wire/metrics';
import { sql } from 'kysely';
import {
  MINUTES,
  QUARTERS,
  USAGE_STEPS,
  type UsagePoint,
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
/** Maximum number of points that a scrape reads. A deployment has one point per minute. */
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
  points: readonly UsagePoint[],
): Promise<number> {
  if (points.length === 0) return 0;
  const named = [...new Set(points.map((point) => point.deployment_id))];
  const deployments = await db.kysely
    .selectFrom('deployments')
    .innerJoin('projects', 'projects.id', 'deployments.project_id')
    .select(['deployments.id', 'deployments.project_id'])
    .where('deployments.id', 'in', named)
    .where('deployments.node_id', '=', nodeId)
    .execute();
  const projectOf = new Map(deployments.map((d) => [d.id, d.project_id]));
  const accepted = points.flatMap((point) => {
    const project_id = projectOf.get(point.deployment_id);
    return project_id === undefined ? [] : [{ project_id, point }];
  });
  if (accepted.length === 0) return 0;
  await db.writeUnsynced(async (tx) => {
    for (const step of USAGE_STEPS) await write(tx, step, accepted);
  });
  return accepted.length;
}

async function readUsage(
  db: Database,
  { project_id, step, from, to }: { project_id: string; step: UsageStep; from: number; to: number },
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

/** The sum is null only if both values are unknown. */
const plus = (a: number | null, b: number | null): number | null => {
  if (a === null) return b;
  return b === null ? a : a + b;
};

const slotOf = (at: number, step: UsageStep): number => Math.floor(at / step.ms);

type Accepted = { project_id: string; point: UsagePoint };
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

const rowOf = ({ project_id, point }: Accepted, step: UsageStep): NewRow<'usage_points'> => ({
  project_id,
  step: step.ms,
  slot: slotOf(point.at, step),
  deployment_id: point.deployment_id,
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
  cpu_ms,
  throttled_ms,
  ...row
}: PointRow): UsagePoint => ({
  ...row,
  cpu_seconds: secondsOf(cpu_ms),
  throttled_seconds: secondsOf(throttled_ms),
});
