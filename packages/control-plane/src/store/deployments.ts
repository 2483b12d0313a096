import { DEPLOYMENT_ACTIONS } from '@berth/wire/can';
import type { DeploymentState } from '@berth/wire/vocabulary';
import { type RawBuilder, sql } from 'kysely';
import type {
  DeploymentFilter,
  DeploymentStore,
  Span,
} from '../domain/deployments/deployment-store.ts';
import type { Guarded, ProjectAccess } from '../domain/identity/access.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { Page, Paged } from '../domain/platform/page.ts';
import type {
  DeploymentRecord,
  DeploymentSummary,
  EventRecord,
  NodeRecord,
  PinnedDataset,
  RouteRecord,
} from '../domain/platform/records.ts';
import type { Database } from './engine/database.ts';
import type { Db } from './engine/tables.ts';
import { deploymentsOf } from './kept-settings.ts';
import type { NodeMemory } from './memory/node-memory.ts';
import type { NodeQueryCache } from './memory/node-query-cache.ts';
import { keyAfter, paged } from './pages.ts';
import { fewVisible, visible } from './project-access.ts';
import { deploymentOf, eventOf, SUMMARY_COLUMNS, summaryOf } from './rows/deployment.ts';
import { guardedOf } from './rows/project.ts';
import { routeOf } from './rows/route.ts';
import { UNSETTLED_STATES } from './states.ts';
import { createStatusCounts } from './status-counts.ts';

/** Maximum number of deployments that a rollback without a body searches. */
const MAX_RAN = 1_000;

/**
 * Must equal the expression in the indexes of migration 0006. Rows of an older version have no
 * ordinal.
 */
const ORDINAL = sql<number>`coalesce(ordinal, created_at)`;

/**
 * Selects deployments that need attention: reads one row for each project and for each running
 * deployment, and no further history.
 */
const needAttention = (db: Db) =>
  db
    .selectFrom('projects')
    .innerJoin('deployments as newest', (join) =>
      join
        .onRef('newest.project_id', '=', 'projects.id')
        .onRef('newest.generation', '=', 'projects.last_generation'),
    )
    .where('newest.status', '=', 'failed')
    .select('newest.id')
    .unionAll(
      db
        .selectFrom('deployments as live')
        .where('live.status', '=', 'running')
        .where('live.health_status', '!=', 'healthy')
        .select('live.id'),
    );

/**
 * Selects the newest `most` deployments of each project. They include the newest of all projects
 * together, because the ordinals of a project rise with its generations.
 */
function newestOfEach(
  projects: readonly string[],
  most: number,
  status: string | undefined,
  older: RawBuilder<boolean> | null,
) {
  const ofStatus = status === undefined ? sql`` : sql` and status = ${status}`;
  const ofPage = older === null ? sql`` : sql` and ${older}`;
  const parts = projects.map(
    (id) => sql`select id from (
      select id from deployments where project_id = ${id}${ofStatus}${ofPage}
      order by generation desc limit ${most}) as newest`,
  );
  return sql.join(parts, sql` union all `);
}

export function createDeploymentStore(
  db: Database,
  memory: NodeMemory,
  queryCache: NodeQueryCache,
): DeploymentStore {
  return {
    get: (id) => getDeployment(db, id),
    countByStatus: createStatusCounts(db.kysely),
    projectOf: (id) => projectOfDeployment(db, id),
    list: (filter, page, access) => listDeployments(db, filter, page, access),
    events: (ids) => readStory(db, ids),
    inProgress: () => deploymentsInProgress(db),
    awaitingRoute: () => deploymentsAwaitingRoute(db),
    servingOn: (nodeId) => deploymentsServingOn(db, nodeId),
    concerning: (node, named) => deploymentsConcerning(db, queryCache, node, named),
    onSilentNodes: (seen, uptime) => deploymentsOnSilentNodes(db, memory, seen, uptime),
    ran: (projectId) => hasRun(db, projectId),
    runningWith: (datasetId) => deploymentsRunningWith(db, datasetId),
    mountedNow: () => datasetsMountedNow(db),
    getMany: (ids) => getDeployments(db, ids),
  };
}

async function getDeployment(db: Database, id: string): Promise<DeploymentRecord> {
  const [record] = await getDeployments(db, [id]);
  if (record === undefined) throw new DomainError('not_found', `no deployment has the id ${id}`);
  return record;
}

async function projectOfDeployment(db: Database, id: string): Promise<Guarded | null> {
  const row = await db.kysely
    .selectFrom('deployments')
    .innerJoin('projects', 'projects.id', 'deployments.project_id')
    .select(['projects.id', 'projects.members'])
    .where('deployments.id', '=', id)
    .executeTakeFirst();
  return row === undefined ? null : guardedOf(row);
}

async function listDeployments(
  db: Database,
  filter: DeploymentFilter,
  page: Page,
  access: ProjectAccess | undefined,
): Promise<Paged<DeploymentSummary>> {
  let query = db.kysely
    .selectFrom('deployments')
    .select(SUMMARY_COLUMNS)
    .limit(page.limit + 1);
  if (filter.ids !== undefined) query = query.where('id', 'in', [...filter.ids]);
  if (filter.attention === true) query = query.where('id', 'in', needAttention(db.kysely));
  if (filter.dataset_id !== undefined)
    query = query.where('datasets', 'like', `%"dataset_id":"${filter.dataset_id}"%`);
  const seen = visible(access, 'deployments.project_id');
  // Sorts by generation, the order of the requests, because the machine's clock might have been set
  // back between two requests.
  if (filter.project_id !== undefined) {
    const before = keyAfter(page.cursor, ['number']);
    query = query.where('project_id', '=', filter.project_id).orderBy('generation', 'desc');
    if (filter.status !== undefined) query = query.where('status', '=', filter.status);
    if (seen !== null) query = query.where(seen);
    if (before !== null) query = query.where('generation', '<', before[0]);
    return paged(await query.execute(), page, (row) => [row.generation], summaryOf);
  }
  const before = keyAfter(page.cursor, ['number', 'string']);
  const older =
    before === null ? null : sql<boolean>`(${ORDINAL}, id) < (${before[0]}, ${before[1]})`;
  const few = await fewVisible(db.kysely, access);
  if (few?.length === 0) return { items: [], next: null };
  // Few rows match these filters, and the newest deployments of each project might include none of
  // them.
  const isNarrow =
    filter.ids !== undefined || filter.attention === true || filter.dataset_id !== undefined;
  if (few === null || isNarrow) {
    if (filter.status !== undefined) query = query.where('status', '=', filter.status);
    if (seen !== null) query = query.where(seen);
    if (older !== null) query = query.where(older);
  } else
    query = query.where(
      sql<boolean>`id in (${newestOfEach(few, page.limit + 1, filter.status, older)})`,
    );
  const rows = await query.orderBy(ORDINAL, 'desc').orderBy('id', 'desc').execute();
  return paged(rows, page, (row) => [row.ordinal ?? row.created_at, row.id], summaryOf);
}

async function readStory(
  db: Database,
  ids: readonly string[],
): Promise<Map<string, EventRecord[]>> {
  const stories = new Map<string, EventRecord[]>(ids.map((id) => [id, []]));
  if (ids.length === 0) return stories;
  const rows = await db.kysely
    .selectFrom('deployment_events')
    .selectAll()
    .where('deployment_id', 'in', [...ids])
    .orderBy('id')
    .execute();
  for (const row of rows) stories.get(row.deployment_id)?.push(eventOf(row));
  return stories;
}

function deploymentsInProgress(
  db: Database,
): Promise<{ id: string; project_id: string; status: DeploymentState }[]> {
  return db.kysely
    .selectFrom('deployments')
    .select(['id', 'project_id', 'status'])
    .where('status', 'in', [...UNSETTLED_STATES])
    .orderBy(ORDINAL)
    .orderBy('id')
    .execute();
}

async function deploymentsAwaitingRoute(
  db: Database,
): Promise<{ id: string; route_published_at: number; health_path: string | null }[]> {
  const rows = await db.kysely
    .selectFrom('deployments')
    .select(['id', 'route_published_at', 'settings'])
    .where('status', '=', 'deploying')
    .where('route_published_at', 'is not', null)
    .orderBy('route_published_at')
    .execute();
  return rows.map(({ id, route_published_at, settings }) => ({
    id,
    route_published_at: route_published_at ?? 0,
    health_path: (JSON.parse(settings) as Pick<DeploymentRecord['settings'], 'health_path'>)
      .health_path,
  }));
}

async function deploymentsServingOn(db: Database, nodeId: string): Promise<DeploymentRecord[]> {
  const rows = await db.kysely
    .selectFrom('deployments')
    .selectAll()
    .where('node_id', '=', nodeId)
    .where((eb) =>
      eb.or([
        eb('status', '=', 'running'),
        eb(
          'id',
          'in',
          eb.selectFrom('routes').select('deployment_id').where('node_id', '=', nodeId),
        ),
      ]),
    )
    .orderBy('created_at')
    .orderBy('id')
    .execute();
  return deploymentsOf(db.kysely, rows);
}

async function deploymentsConcerning(
  db: Database,
  queryCache: NodeQueryCache,
  node: NodeRecord,
  named: readonly string[],
): Promise<{
  known: DeploymentRecord[];
  serving: DeploymentRecord[];
  routes: ReadonlyMap<string, RouteRecord>;
  elsewhere: RouteRecord[];
  markReconciled: () => void;
} | null> {
  if (queryCache.isReconciled(node)) return null;
  const markReconciled = queryCache.startReconciledQuery(node);
  const [known, serving] = [
    await getDeployments(db, named),
    await deploymentsServingOn(db, node.id),
  ];
  const { routes, elsewhere } = await routesAround(db.kysely, node, [...known, ...serving]);
  return { known, serving, routes, elsewhere, markReconciled: () => markReconciled(known) };
}

async function deploymentsOnSilentNodes(
  db: Database,
  memory: NodeMemory,
  { before, after }: Span,
  uptime: Span = { before, after },
): Promise<string[]> {
  await memory.flush();
  const rows = await db.kysely
    .selectFrom('deployments')
    .innerJoin('nodes', 'nodes.id', 'deployments.node_id')
    .select('deployments.id')
    .where('deployments.status', '=', 'running')
    // Excludes stopped projects, which have no health.
    .where((eb) =>
      eb.not(eb.and([eb('stopped_first', 'is not', null), eb('health_status', 'is', null)])),
    )
    .where((eb) =>
      eb.or([
        eb('nodes.observed_at', 'is', null),
        eb('nodes.observed_at', '<', uptime.before),
        eb('nodes.observed_at', '>', uptime.after),
      ]),
    )
    // Excludes deployments that went live after `before`: they answered a probe then, so their
    // health is known.
    .where((eb) =>
      eb.or([
        eb('deployments.finished_at', 'is', null),
        eb('deployments.finished_at', '<', before),
        eb('deployments.finished_at', '>', after),
      ]),
    )
    .where((eb) => eb.or([eb('health_status', 'is', null), eb('health_status', '!=', 'unknown')]))
    .orderBy('deployments.created_at')
    .execute();
  return rows.map((row) => row.id);
}

function hasRun(
  db: Database,
  projectId: string,
): Promise<Pick<DeploymentRecord, 'id' | 'generation' | 'rollback_of' | 'trigger'>[]> {
  return db.kysely
    .selectFrom('deployments')
    .select(['id', 'generation', 'rollback_of', 'trigger'])
    .where('project_id', '=', projectId)
    .where('status', 'in', DEPLOYMENT_ACTIONS.rollback_to)
    .orderBy('generation', 'desc')
    .limit(MAX_RAN)
    .execute();
}

async function deploymentsRunningWith(
  db: Database,
  datasetId: string,
): Promise<DeploymentRecord[]> {
  const rows = await db.kysely
    .selectFrom('deployments')
    .selectAll()
    .where('status', '=', 'running')
    .where('datasets', 'like', `%"${datasetId}"%`)
    .orderBy('created_at')
    .orderBy('id')
    .execute();
  // Filters again, because the LIKE also matches the id inside a longer text, such as a name.
  return rows
    .map(deploymentOf)
    .filter((d) => d.datasets?.some((pinned) => pinned.dataset_id === datasetId));
}

async function datasetsMountedNow(db: Database): Promise<PinnedDataset[][]> {
  const rows = await db.kysely
    .selectFrom('deployments')
    .select('datasets')
    .where('status', '=', 'running')
    .where('datasets', 'is not', null)
    .execute();
  return rows.map(({ datasets }) => JSON.parse(datasets ?? '[]') as PinnedDataset[]);
}

async function getDeployments(db: Database, ids: readonly string[]): Promise<DeploymentRecord[]> {
  if (ids.length === 0) return [];
  const rows = await db.kysely
    .selectFrom('deployments')
    .selectAll()
    .where('id', 'in', [...ids])
    .execute();
  const byId = new Map((await deploymentsOf(db.kysely, rows)).map((record) => [record.id, record]));
  return ids.flatMap((id) => byId.get(id) ?? []);
}

/**
 * Reads the routes of the projects of these deployments, and the routes of other nodes that have
 * the same address as this node.
 */
async function routesAround(
  db: Db,
  { id, host_ip }: NodeRecord,
  deployments: readonly DeploymentRecord[],
): Promise<{ routes: Map<string, RouteRecord>; elsewhere: RouteRecord[] }> {
  const projects = new Set(deployments.map((d) => d.project_id));
  const rows = await db
    .selectFrom('routes')
    .selectAll()
    .where((eb) =>
      eb.or([
        eb('host_ip', '=', host_ip),
        ...(projects.size === 0 ? [] : [eb('project_id', 'in', [...projects])]),
      ]),
    )
    .execute();
  const all = rows.map(routeOf);
  return {
    routes: new Map(
      all
        .filter((route) => projects.has(route.project_id))
        .map((route) => [route.project_id, route]),
    ),
    elsewhere: all.filter(
      (route) => route.host_ip === host_ip && route.node_id !== id && route.stopped !== true,
    ),
  };
}
