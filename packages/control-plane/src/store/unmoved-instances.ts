/** Finds what silent nodes have: instances that would start elsewhere, and requests. */
import { isWanted, WEB } from '../domain/deployments/instance.ts';
import type { UnmovedInstance } from '../domain/deployments/instance-store.ts';
import type { Db } from './engine/tables.ts';

/** Maximum number of ids in one query. */
const AT_ONCE = 200;

export async function unmovedInstances(
  db: Db,
  nodeIds: readonly string[],
): Promise<UnmovedInstance[]> {
  const all: UnmovedInstance[] = [];
  for (let i = 0; i < nodeIds.length; i += AT_ONCE)
    all.push(...(await unmovedOn(db, nodeIds.slice(i, i + AT_ONCE))));
  return all;
}

export async function routedTo(
  db: Db,
  nodeIds: readonly string[],
): Promise<{ deployment_id: string; node_id: string }[]> {
  const all: { deployment_id: string; node_id: string }[] = [];
  for (let i = 0; i < nodeIds.length; i += AT_ONCE) {
    const some = nodeIds.slice(i, i + AT_ONCE);
    const routes = db
      .selectFrom('routes as r')
      .innerJoin('deployments as d', 'd.id', 'r.deployment_id')
      .where('d.status', '=', 'running')
      .where('r.stopped', '=', 0);
    const firsts = await routes
      .select(['r.deployment_id', 'r.node_id'])
      .where('r.node_id', 'in', some)
      .execute();
    const others = await routes
      .innerJoin('instances as i', 'i.deployment_id', 'r.deployment_id')
      .select(['r.deployment_id', 'i.node_id'])
      .where('i.node_id', 'in', some)
      .where('i.state', '=', 'serving')
      .execute();
    for (const { deployment_id, node_id } of [...firsts, ...others])
      if (node_id !== null) all.push({ deployment_id, node_id });
  }
  return all;
}

async function unmovedOn(db: Db, nodeIds: string[]): Promise<UnmovedInstance[]> {
  const running = db
    .selectFrom('deployments as d')
    .innerJoin('projects as p', 'p.id', 'd.project_id')
    .where('d.status', '=', 'running')
    .where('p.deleting_at', 'is', null);
  const firsts = await running
    .where('p.stopped_at', 'is', null)
    .select(['d.node_id', 'd.id as deployment_id', 'p.id as project_id', 'p.name as project'])
    .select('d.instance_number as number')
    .where('d.node_id', 'in', nodeIds)
    .where('d.lost_since', 'is', null)
    .orderBy('p.name')
    .execute();
  const others = await running
    .innerJoin('instances as i', 'i.deployment_id', 'd.id')
    .select(['i.node_id', 'd.id as deployment_id', 'p.id as project_id', 'p.name as project'])
    .select(['i.process', 'i.number', 'i.state', 'd.instance_number as first'])
    // A project at count 0 of `web` keeps its other processes; one that a person stopped has none.
    .where((eb) => eb.or([eb('p.stopped_at', 'is', null), eb('i.process', '!=', WEB)]))
    .where('i.node_id', 'in', nodeIds)
    .where('i.state', 'in', ['serving', 'unhealthy', 'starting', 'lost'])
    .orderBy('p.name')
    .orderBy('i.number')
    .execute();
  const lost = others.filter(({ state }) => state === 'lost');
  const wanted = await wantedOf(db, [...new Set(lost.map((i) => i.deployment_id))]);
  const isReplaced = (one: (typeof others)[number]): boolean =>
    (one.process === WEB && one.number === one.first) ||
    wanted.some(
      (i) =>
        i.deployment_id === one.deployment_id &&
        i.process === one.process &&
        i.number === one.number,
    );
  return [
    ...firsts.map((first) => ({ ...first, process: WEB, is_lost: false })),
    ...others
      .filter((other) => other.state !== 'lost' || !isReplaced(other))
      .map(({ state, first: _, ...other }) => ({ ...other, is_lost: state === 'lost' })),
  ].flatMap(({ node_id, ...one }) => (node_id === null ? [] : [{ node_id, ...one }]));
}

async function wantedOf(
  db: Db,
  deployments: string[],
): Promise<{ deployment_id: string; process: string; number: number }[]> {
  if (deployments.length === 0) return [];
  const rows = await db
    .selectFrom('instances')
    .select(['deployment_id', 'process', 'number', 'state'])
    .where('deployment_id', 'in', deployments)
    .execute();
  return rows.filter(isWanted);
}
