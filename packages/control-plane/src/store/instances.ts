/** Reads and writes the instances beside the first one (domain/deployments/instance.ts). */
import { PROJECT_DEFAULTS } from '@berth/wire/project';
import {
  type InstanceChange,
  type InstanceRecord,
  isWanted,
  WEB,
  webCount,
} from '../domain/deployments/instance.ts';
import type { InstanceStore, UnmovedInstance } from '../domain/deployments/instance-store.ts';
import type { ProjectSettings, RouteServer } from '../domain/platform/records.ts';
import type { Database } from './engine/database.ts';
import type { Db, NewRow, Row, Tx } from './engine/tables.ts';
import { LIVE_STATES } from './states.ts';

const instanceOf = (row: Row<'instances'>): InstanceRecord => ({
  ...row,
  labelled: row.labelled !== 0,
  losses: JSON.parse(row.losses) as InstanceRecord['losses'],
  placement:
    row.placement === null ? null : (JSON.parse(row.placement) as InstanceRecord['placement']),
});

const columnsOf = (record: InstanceRecord): NewRow<'instances'> => ({
  ...record,
  labelled: Number(record.labelled),
  losses: JSON.stringify(record.losses),
  placement: record.placement === null ? null : JSON.stringify(record.placement),
});

export const createInstanceStore = ({ kysely, write }: Database): InstanceStore => ({
  repair: () => write(repairInstances),
  ofDeployments: (ids) => instancesOf(kysely, ids),
  async onNode(nodeId) {
    const rows = await kysely
      .selectFrom('instances')
      .selectAll()
      .where('node_id', '=', nodeId)
      .orderBy('number')
      .orderBy('id')
      .execute();
    return rows.map(instanceOf);
  },
  async scaled() {
    const rows = await kysely
      .selectFrom('projects')
      .innerJoin('deployments', 'deployments.project_id', 'projects.id')
      .select(['deployments.id', 'projects.processes'])
      .where('deployments.status', '=', 'running')
      .where('projects.stopped_at', 'is', null)
      .where('projects.deleting_at', 'is', null)
      .where((eb) =>
        eb.or([
          eb('projects.processes', '!=', JSON.stringify(PROJECT_DEFAULTS.processes)),
          eb('projects.id', 'in', eb.selectFrom('instances').select('instances.project_id')),
        ]),
      )
      .execute();
    return rows.map(({ id, processes }) => ({
      deployment_id: id,
      count: webCount({ processes: JSON.parse(processes) as ProjectSettings['processes'] }),
    }));
  },
  async draining() {
    const rows = await kysely
      .selectFrom('instances')
      .selectAll()
      .where('state', '=', 'draining')
      .orderBy('id')
      .execute();
    return rows.map(instanceOf);
  },
  unmoved: (nodeIds) => unmovedInstances(kysely, nodeIds),
  async all() {
    const rows = await kysely
      .selectFrom('instances')
      .selectAll()
      .orderBy('project_id')
      .orderBy('number')
      .orderBy('id')
      .execute();
    return rows.map(instanceOf);
  },
});

/** Maximum number of ids in one query. */
const AT_ONCE = 200;

async function unmovedInstances(db: Db, nodeIds: readonly string[]): Promise<UnmovedInstance[]> {
  const all: UnmovedInstance[] = [];
  for (let i = 0; i < nodeIds.length; i += AT_ONCE)
    all.push(...(await unmovedOn(db, nodeIds.slice(i, i + AT_ONCE))));
  return all;
}

async function unmovedOn(db: Db, nodeIds: string[]): Promise<UnmovedInstance[]> {
  const running = db
    .selectFrom('deployments as d')
    .innerJoin('projects as p', 'p.id', 'd.project_id')
    .where('d.status', '=', 'running')
    .where('p.stopped_at', 'is', null)
    .where('p.deleting_at', 'is', null);
  const firsts = await running
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
    .where('i.node_id', 'in', nodeIds)
    .where('i.state', 'in', ['serving', 'unhealthy', 'starting', 'lost'])
    .orderBy('p.name')
    .orderBy('i.number')
    .execute();
  const lost = others.filter(({ state }) => state === 'lost');
  const wanted = (await instancesOf(db, [...new Set(lost.map((i) => i.deployment_id))])).filter(
    isWanted,
  );
  const isReplaced = ({ deployment_id, number, first }: (typeof others)[number]): boolean =>
    number === first ||
    wanted.some((i) => i.deployment_id === deployment_id && i.number === number);
  return [
    ...firsts.map((first) => ({ ...first, process: WEB, is_lost: false })),
    ...others
      .filter((other) => other.state !== 'lost' || !isReplaced(other))
      .map(({ state, first: _, ...other }) => ({ ...other, is_lost: state === 'lost' })),
  ].flatMap(({ node_id, ...one }) => (node_id === null ? [] : [{ node_id, ...one }]));
}

async function repairInstances(tx: Tx): Promise<void> {
  await tx
    .deleteFrom('instances')
    .where('deployment_id', 'in', (eb) =>
      eb
        .selectFrom('deployments')
        .select('deployments.id')
        .where('deployments.status', 'not in', [...LIVE_STATES]),
    )
    .execute();
  const routes = await tx
    .selectFrom('routes')
    .select(['project_id', 'deployment_id', 'servers'])
    .where('servers', 'is not', null)
    .execute();
  const instances = await instancesOf(
    tx,
    routes.map((route) => route.deployment_id),
  );
  for (const { project_id, deployment_id, servers } of routes) {
    const listed = JSON.parse(servers ?? '[]') as RouteServer[];
    const own = listed.filter((server) =>
      instances.some((i) => i.id === server.instance_id && i.deployment_id === deployment_id),
    );
    if (own.length === listed.length) continue;
    await tx
      .updateTable('routes')
      .set({ servers: own.length === 0 ? null : JSON.stringify(own) })
      .where('project_id', '=', project_id)
      .where('servers', '=', servers)
      .execute();
  }
}

export async function instancesOf(
  db: Db | Tx,
  deployments: readonly string[],
): Promise<InstanceRecord[]> {
  if (deployments.length === 0) return [];
  const rows = await db
    .selectFrom('instances')
    .selectAll()
    .where('deployment_id', 'in', [...deployments])
    .orderBy('number')
    .orderBy('id')
    .execute();
  return rows.map(instanceOf);
}

/** Returns the instances of these deployments, and those that are assigned to the node. */
export async function instancesAround(
  db: Db,
  nodeId: string,
  deployments: readonly string[],
): Promise<InstanceRecord[]> {
  const rows = await db
    .selectFrom('instances')
    .selectAll()
    .where((eb) =>
      eb.or([
        eb('node_id', '=', nodeId),
        ...(deployments.length === 0 ? [] : [eb('deployment_id', 'in', [...deployments])]),
      ]),
    )
    .orderBy('number')
    .orderBy('id')
    .execute();
  return rows.map(instanceOf);
}

export async function changeInstance(tx: Tx, change: InstanceChange): Promise<void> {
  if ('remove' in change) {
    await tx.deleteFrom('instances').where('id', '=', change.remove).execute();
    return;
  }
  const { id, ...columns } = columnsOf(change.put);
  await tx
    .insertInto('instances')
    .values({ id, ...columns })
    .onConflict((oc) => oc.column('id').doUpdateSet(columns))
    .execute();
}
