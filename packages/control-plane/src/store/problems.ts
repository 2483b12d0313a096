/**
 * The problems that Berth found: one row for each kind and subject. A lock ensures that only one
 * control plane at a time updates them.
 */
import { WEB } from '@berth/wire/project';
import { sql } from 'kysely';
import {
  type Clock,
  ENDED_KEPT_MS,
  judge,
  KEPT_CHANGES,
  type LostNode,
  type Observation,
  problemKey,
  type ProblemRecord,
  type ProblemStore,
  type ProjectStanding,
} from '../domain/notifications/problems.ts';
import type { PinnedDataset } from '../domain/platform/records.ts';
import type { Database } from './engine/database.ts';
import type { Row, Tx } from './engine/tables.ts';

/**
 * Maximum number of observations in one transaction: 10,000 problems at once must not block other
 * requests.
 */
const AT_ONCE = 200;
const SWEPT_AT_ONCE = 500;
/** States that show whether the last attempt succeeded. */
const JUDGED = ['running', 'retired', 'failed'] as const;

const recordOf = (row: Row<'problems'>): ProblemRecord => ({
  ...row,
  seen: JSON.parse(row.seen) as ProblemRecord['seen'],
});

export const createProblemStore = (db: Database): ProblemStore => ({
  open: () => openProblems(db),
  observe: (observations, clock) => observeProblems(db, observations, clock),
  projects: (ids) => projectsWithProblems(db, ids),
  lostNodes: () => nodesWithLost(db),
  onNodes: (nodeIds) => problemsOnNodes(db, nodeIds),
  onDatasets: (datasetIds) => problemsOnDatasets(db, datasetIds),
  sweep: (now) => sweepProblems(db, now),
});

async function openProblems(db: Database): Promise<Map<string, ProblemRecord>> {
  const rows = await db.kysely
    .selectFrom('problems')
    .selectAll()
    .where('ended_at', 'is', null)
    .execute();
  return new Map(rows.map((row) => [problemKey(row), recordOf(row)]));
}

async function observeProblems(
  db: Database,
  observations: readonly Observation[],
  clock: Clock,
): Promise<number> {
  let changes = 0;
  for (let i = 0; i < observations.length; i += AT_ONCE) {
    const some = observations.slice(i, i + AT_ONCE);
    changes += await db.write(async (tx) => {
      await db.capabilities.lockName(tx, 'problems');
      return observeSome(tx, some, clock);
    });
  }
  return changes;
}

async function projectsWithProblems(
  db: Database,
  ids: readonly string[] | null,
): Promise<ProjectStanding[]> {
  const standings: ProjectStanding[] = [];
  for (let i = 0; i < (ids?.length ?? 1); i += AT_ONCE) {
    const some = ids?.slice(i, i + AT_ONCE) ?? null;
    standings.push(...(await standingsOf(db, some)));
  }
  return standings;
}

async function problemsOnNodes(
  db: Database,
  nodeIds: readonly string[],
): Promise<Map<string, { id: string; name: string }[]>> {
  const byNode = new Map<string, { id: string; name: string }[]>();
  for (let i = 0; i < nodeIds.length; i += AT_ONCE) {
    const rows = await db.kysely
      .selectFrom('deployments as d')
      .innerJoin('projects as p', 'p.id', 'd.project_id')
      .select(['d.node_id', 'p.id', 'p.name'])
      .distinct()
      .where('d.status', '=', 'running')
      .where('d.node_id', 'in', nodeIds.slice(i, i + AT_ONCE))
      .orderBy('p.name')
      .execute();
    for (const { node_id, id, name } of rows) {
      const list = byNode.get(node_id ?? '') ?? [];
      byNode.set(node_id ?? '', list);
      list.push({ id, name });
    }
  }
  return byNode;
}

async function nodesWithLost(db: Database): Promise<LostNode[]> {
  const running = db.kysely
    .selectFrom('deployments as d')
    .innerJoin('projects as p', 'p.id', 'd.project_id')
    .where('d.status', '=', 'running');
  const firsts = await running
    .leftJoin('nodes as n', 'n.id', 'd.node_id')
    .select(['d.node_id as node', 'n.hostname', 'p.id', 'p.name'])
    .where('d.lost_since', 'is not', null)
    .execute();
  const others = await running
    .innerJoin('instances as i', 'i.deployment_id', 'd.id')
    .leftJoin('nodes as n', 'n.id', 'i.node_id')
    .select(['i.node_id as node', 'n.hostname', 'p.id', 'p.name'])
    .where('i.state', '=', 'lost')
    .execute();
  const nodes = new Map<string, LostNode>();
  for (const { node, hostname, ...project } of [...firsts, ...others]) {
    if (node === null) continue;
    const lost = nodes.get(node) ?? { id: node, hostname, projects: [] };
    nodes.set(node, lost);
    if (!lost.projects.some(({ id }) => id === project.id)) lost.projects.push(project);
  }
  for (const { projects } of nodes.values()) projects.sort((a, b) => (a.name < b.name ? -1 : 1));
  return [...nodes.values()];
}

async function problemsOnDatasets(
  db: Database,
  datasetIds: readonly string[],
): Promise<Map<string, string[]>> {
  const rows = await db.kysely
    .selectFrom('deployments')
    .select(['project_id', 'datasets'])
    .where('status', '=', 'running')
    .where('datasets', 'is not', null)
    .execute();
  const users = new Map<string, Set<string>>(datasetIds.map((id) => [id, new Set()]));
  for (const { project_id, datasets } of rows)
    for (const { dataset_id } of JSON.parse(datasets ?? '[]') as PinnedDataset[])
      users.get(dataset_id)?.add(project_id);
  return new Map([...users].map(([id, projects]) => [id, [...projects]]));
}

async function sweepProblems(db: Database, now: number): Promise<number> {
  const ended = await db.kysely
    .selectFrom('problems')
    .select(['kind', 'subject'])
    .where('ended_at', '<', now - ENDED_KEPT_MS)
    .limit(SWEPT_AT_ONCE)
    .execute();
  if (ended.length > 0)
    await db.write(async (tx) => {
      for (const { kind, subject } of ended)
        await tx
          .deleteFrom('problems')
          .where('kind', '=', kind)
          .where('subject', '=', subject)
          .where('ended_at', '<', now - ENDED_KEPT_MS)
          .execute();
    });
  const last = await db.kysely
    .selectFrom('problem_changes')
    .select('seq')
    .orderBy('seq', 'desc')
    .limit(1)
    .executeTakeFirst();
  const old = await db.kysely
    .selectFrom('problem_changes')
    .select('seq')
    .where('seq', '<=', (last?.seq ?? 0) - KEPT_CHANGES)
    .orderBy('seq')
    .limit(SWEPT_AT_ONCE)
    .execute();
  const until = old.at(-1)?.seq;
  if (until !== undefined)
    await db.writeOne((kysely) =>
      kysely.deleteFrom('problem_changes').where('seq', '<=', until).execute(),
    );
  return ended.length + old.length;
}

async function observeSome(
  tx: Tx,
  observations: readonly Observation[],
  clock: Parameters<typeof judge>[2],
): Promise<number> {
  const subjects = [...new Set(observations.map(({ subject }) => subject))];
  const rows = await tx
    .selectFrom('problems')
    .selectAll()
    .where('subject', 'in', subjects)
    .execute();
  const present = new Map(rows.map((row) => [problemKey(row), recordOf(row)]));
  let changes = 0;
  for (const observation of observations) {
    const key = problemKey(observation);
    const judged = judge(present.get(key) ?? null, observation, clock);
    if (judged === null) continue;
    present.set(key, judged.record);
    const row = { ...judged.record, seen: JSON.stringify(judged.record.seen) };
    await tx
      .insertInto('problems')
      .values(row)
      .onConflict((oc) => oc.columns(['kind', 'subject']).doUpdateSet(row))
      .execute();
    if (judged.change === null) continue;
    const { is_over, seen, ...change } = judged.change;
    await tx
      .insertInto('problem_changes')
      .values({ ...change, seen: JSON.stringify(seen), is_over: is_over ? 1 : 0 })
      .execute();
    changes += 1;
  }
  return changes;
}

async function standingsOf(
  db: Database,
  ids: readonly string[] | null,
): Promise<ProjectStanding[]> {
  const newest = await db.kysely
    .selectFrom('projects as p')
    .leftJoin('deployments as d', (join) =>
      join
        .onRef('d.project_id', '=', 'p.id')
        .on('d.generation', '=', (eb) =>
          eb
            .selectFrom('deployments as o')
            .select(sql<number>`max(o.generation)`.as('newest'))
            .whereRef('o.project_id', '=', 'p.id')
            .where('o.status', 'in', JUDGED),
        ),
    )
    .select([
      'p.id',
      'p.name',
      'd.id as deployment_id',
      'd.generation',
      'd.status',
      'd.error_code',
      'd.error_message',
    ])
    .where('p.deleting_at', 'is', null)
    .$if(ids !== null, (q) => q.where('p.id', 'in', ids ?? []))
    .execute();
  const running = await db.kysely
    .selectFrom('deployments')
    .select(['id', 'project_id', 'health_status', 'health_detail'])
    .where('status', '=', 'running')
    // Excludes stopped deployments, which have no health.
    .where((eb) => eb.or([eb('stopped_first', 'is', null), eb('health_status', 'is not', null)]))
    .$if(ids !== null, (q) => q.where('project_id', 'in', ids ?? []))
    .orderBy('generation')
    .execute();
  const failing = await db.kysely
    .selectFrom('instances as i')
    .innerJoin('deployments as d', 'd.id', 'i.deployment_id')
    .select(['i.project_id', 'i.process', 'i.number', 'i.detail'])
    .where('d.status', '=', 'running')
    .where('i.process', '!=', WEB)
    .where('i.state', '=', 'unhealthy')
    .$if(ids !== null, (q) => q.where('i.project_id', 'in', ids ?? []))
    .orderBy('i.process', 'desc')
    .orderBy('i.number', 'desc')
    .execute();
  const failingById = new Map(
    failing.map(({ project_id, process, number, detail }) => [
      project_id,
      { process, number, detail },
    ]),
  );
  // Later rows overwrite earlier ones in the map, so the newest deployment of a project wins.
  const runs = new Map(
    running.map((row) => [
      row.project_id,
      { id: row.id, health: row.health_status, detail: row.health_detail },
    ]),
  );
  return newest.map(
    ({ id, name, deployment_id, generation, status, error_code, error_message }) => ({
      id,
      name,
      newest:
        deployment_id === null
          ? null
          : {
              id: deployment_id,
              generation: generation ?? 0,
              status: status ?? '',
              error_code,
              error_message,
            },
      running: runs.get(id) ?? null,
      failing: failingById.get(id) ?? null,
    }),
  );
}
