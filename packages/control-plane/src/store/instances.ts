/** Reads and writes the further instances (domain/deployments/instance.ts). */
import { type ConfigOrigin, hasWeb, PROJECT_DEFAULTS } from '@berth/wire/project';
import { sql } from 'kysely';
import type { InstanceChange, InstanceRecord } from '../domain/deployments/instance.ts';
import { countFor } from '../domain/deployments/instance-count.ts';
import type {
  InstanceFilter,
  InstanceStore,
  ScaledDeployment,
} from '../domain/deployments/instance-store.ts';
import { countIn, workersIn } from '../domain/projects/processes.ts';
import type { ProjectAccess } from '../domain/identity/access.ts';
import type { Page, Paged } from '../domain/platform/page.ts';
import type { ProjectRecord, ProjectSettings, RouteServer } from '../domain/platform/records.ts';
import type { Database } from './engine/database.ts';
import type { Db, NewRow, Row, Tx } from './engine/tables.ts';
import { keyAfter, paged } from './pages.ts';
import { fewVisible, visible } from './project-access.ts';
import { settingsOf } from './rows/deployment.ts';
import { isStoppedByPerson } from './rows/project.ts';
import { LIVE_STATES } from './states.ts';
import { routedTo, unmovedInstances } from './unmoved-instances.ts';

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
      .select([
        'deployments.id',
        'deployments.settings',
        'deployments.config',
        'deployments.instance_number',
        'deployments.lost_since',
        'projects.processes',
        'projects.on_node_lost',
        'projects.scaled',
        'projects.stopped_at',
        'projects.stopped_by_person',
      ])
      .where('deployments.status', '=', 'running')
      .where('projects.deleting_at', 'is', null)
      .where((eb) =>
        eb.or([
          eb('projects.processes', '!=', JSON.stringify(PROJECT_DEFAULTS.processes)),
          eb('deployments.config', 'is not', null),
          eb('projects.id', 'in', eb.selectFrom('instances').select('instances.project_id')),
        ]),
      )
      .execute();
    return rows.flatMap((row) => scaledDeployment(row));
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
  routedTo: (nodeIds) => routedTo(kysely, nodeIds),
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
  list: (filter, page, access) => listInstances(kysely, filter, page, access),
});

type ScaledRow = Pick<
  Row<'deployments'>,
  'config' | 'id' | 'settings' | 'instance_number' | 'lost_since'
> &
  Pick<
    Row<'projects'>,
    'processes' | 'on_node_lost' | 'scaled' | 'stopped_at' | 'stopped_by_person'
  >;

/** Returns the counts of a deployment; empty if a person stopped its project. */
function scaledDeployment(row: ScaledRow): ScaledDeployment[] {
  const { settings: text, processes: json, on_node_lost, stopped_at, stopped_by_person } = row;
  const { id, instance_number, lost_since } = row;
  const project = {
    processes: JSON.parse(json) as ProjectSettings['processes'],
    scaled: JSON.parse(row.scaled) as ProjectRecord['scaled'],
    stopped_at,
  };
  if (isStoppedByPerson(project, stopped_by_person)) return [];
  const settings = settingsOf(text);
  const config = row.config === null ? null : (JSON.parse(row.config) as ConfigOrigin);
  const release = { settings, config };
  const workers = workersIn(settings).map(
    (one) => [one.name, countIn(project, one, release)] as const,
  );
  if (stopped_at !== null && workers.length === 0) return [];
  return [
    {
      id,
      instance_number,
      lost_since,
      // The containers of `web` of a project that is scaled to 0 are no instances to count. A release
      // without `web` has none.
      count: stopped_at === null && hasWeb(settings) ? countFor(release, project) : null,
      workers: Object.fromEntries(workers),
      is_held: on_node_lost === 'wait',
    },
  ];
}

async function listInstances(
  db: Db,
  { project_id, node_id }: InstanceFilter,
  page: Page,
  access: ProjectAccess | undefined,
): Promise<Paged<{ deployment_id: string; project: string }>> {
  const after = keyAfter(page.cursor, ['string', 'number']);
  const few = await fewVisible(db, access);
  if (few?.length === 0) return { items: [], next: null };
  const seen = visible(access, 'projects.id');
  let query = db
    .selectFrom('deployments')
    .innerJoin('projects', 'projects.id', 'deployments.project_id')
    .select(['deployments.id', 'deployments.generation', 'projects.name'])
    .where('deployments.status', 'in', ['deploying', 'running']);
  if (project_id !== undefined) query = query.where('projects.id', '=', project_id);
  if (node_id !== undefined)
    query = query.where((eb) =>
      eb.or([
        eb('deployments.node_id', '=', node_id),
        eb(
          'deployments.id',
          'in',
          eb.selectFrom('instances').select('deployment_id').where('node_id', '=', node_id),
        ),
      ]),
    );
  if (few !== null) query = query.where('projects.id', 'in', few);
  else if (seen !== null) query = query.where(seen);
  if (after !== null)
    query = query.where(
      sql<boolean>`(projects.name, deployments.generation) > (${after[0]}, ${after[1]})`,
    );
  const rows = await query
    .orderBy('projects.name')
    .orderBy('deployments.generation')
    .limit(page.limit + 1)
    .execute();
  return paged(
    rows,
    page,
    ({ name, generation }) => [name, generation],
    ({ id, name }) => ({ deployment_id: id, project: name }),
  );
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
