/** Reads everything that a decision about one project needs, and writes its plan. */
import { defined } from '@berth/kit/defined';
import { type DatasetFact, DEFAULT_LIMITS, type NodeFact } from '../domain/deployments/facts.ts';
import type { FlowStore, StoredFacts } from '../domain/deployments/flow-store.ts';
import { needsRoom } from '../domain/nodes/room.ts';
import type { GitCredentials } from '../domain/nodes/build-needs.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { DatasetVersionRecord, DeploymentRecord } from '../domain/platform/records.ts';
import { isMisnamedOn } from '../domain/projects/container-name.ts';
import type { Claiming } from './claiming.ts';
import { holdsBuilds } from './clean-ups.ts';
import { commitPlan } from './commit-plan.ts';
import { datasetFacts } from './datasets/dataset-facts.ts';
import { endedWork } from './ended-work.ts';
import type { Database } from './engine/database.ts';
import type { Tx } from './engine/tables.ts';
import type { NodeMemory } from './memory/node-memory.ts';
import type { NodeQueryCache } from './memory/node-query-cache.ts';
import { roomOf } from './room.ts';
import { deploymentOf } from './rows/deployment.ts';
import { projectOf } from './rows/project.ts';
import { routeOf } from './rows/route.ts';
import { taskOf } from './rows/task.ts';
import { instancesOf } from './instances.ts';
import { runsOnNodes } from './runs.ts';
import { secretsOf } from './secrets.ts';
import { LIVE_STATES } from './states.ts';
import { unmanagedOf } from './unmanaged.ts';
import { volumesOf } from './volumes.ts';

export function createFlowStore(
  claiming: Claiming,
  memory: NodeMemory,
  queryCache: NodeQueryCache,
  now: () => number,
): FlowStore {
  const { db } = claiming;
  return {
    facts: (projectId, datasetIds) => readFacts(memory, now, db, projectId, datasetIds),
    commit: (plan) => commitPlan(claiming, queryCache, plan, null),
    commitWithKey: (plan, key) => commitPlan(claiming, queryCache, plan, key),
    watch: () => queryCache.watch(),
    findKey: (projectId, key, now) => findIdempotencyKey(db, projectId, key, now),
  };
}

function readFacts(
  memory: NodeMemory,
  now: () => number,
  db: Database,
  projectId: string,
  datasetIds: readonly string[] = [],
): Promise<StoredFacts> {
  return db.snapshot(async (tx) => {
    const project = await tx
      .selectFrom('projects')
      .selectAll()
      .where('id', '=', projectId)
      .executeTakeFirst();
    if (project === undefined) throw new DomainError('not_found', 'the project does not exist');
    const live = await tx
      .selectFrom('deployments')
      .selectAll()
      .where('project_id', '=', projectId)
      .where('status', 'in', [...LIVE_STATES])
      .execute();
    const tasks = await tx
      .selectFrom('tasks')
      .selectAll()
      .where('project_id', '=', projectId)
      .where('finished_at', 'is', null)
      .orderBy('seq')
      .execute();
    const route = await tx
      .selectFrom('routes')
      .selectAll()
      .where('project_id', '=', projectId)
      .executeTakeFirst();
    const record = projectOf(project);
    const deployments = live.map(deploymentOf);
    const used = [record, ...deployments.map((d) => d.settings)].flatMap((settings) =>
      settings.datasets.map((use) => use.dataset_id),
    );
    const nodes = await nodeFacts(tx, memory);
    const hasVolumes = [record, ...deployments.map((d) => d.settings)].some(
      (settings) => settings.volumes.length > 0,
    );
    const needsEnds =
      record.stopped_at !== null ||
      [record, ...deployments.map((d) => d.settings)].some(
        (settings) => settings.replace === 'recreate',
      ) ||
      deployments.some((d) => d.stopped_first !== null || isMisnamedOn(nodes, d));
    const runs = hasVolumes ? await runsOnNodes(tx, projectId) : [];
    const unmanaged = await unmanagedOf(tx, projectId);
    const datasets = await datasetFacts(tx, [...used, ...datasetIds]);
    const versions = await pinnedVersions(tx, deployments, datasets);
    const instances = await instancesOf(
      tx,
      deployments.map((d) => d.id),
    );
    // Each event can start an instance of a version, on another node too.
    const placing = deployments.some((d) => needsRoom(d.settings));
    return {
      project: record,
      datasets,
      // Sorted here: with an ORDER BY, SQLite would read all deployments that the project ever had.
      live: deployments.sort((a, b) => a.generation - b.generation),
      ...defined({ versions: versions.length === 0 ? undefined : versions }),
      ...defined({ instances: instances.length === 0 ? undefined : instances }),
      tasks: tasks.map(taskOf),
      route: route === undefined ? null : routeOf(route),
      nodes,
      endedWork: needsEnds ? await endedWork(tx, projectId, now()) : [],
      secrets: record.secrets_version === 0 ? [] : await secretsOf(tx, projectId),
      ...defined({ unmanaged: unmanaged.length === 0 ? undefined : unmanaged }),
      ...defined({
        room: placing ? await roomOf(tx, nodes, DEFAULT_LIMITS.leaseMs) : undefined,
      }),
      volumes: hasVolumes ? await volumesOf(tx, projectId) : [],
      ...defined({ runs: runs.length === 0 ? undefined : runs }),
      lastBuilderId: await lastBuilder(tx, projectId),
      gitCredentials: deployments.some((d) => d.status === 'pending')
        ? await gitCredentials(tx, projectId)
        : null,
      buildsHeld: deployments.some((d) => d.status === 'pending') && (await holdsBuilds(tx)),
    };
  });
}

/** Reads the versions that running deployments pin and that are not the newest of their dataset. */
async function pinnedVersions(
  tx: Tx,
  deployments: readonly DeploymentRecord[],
  datasets: readonly DatasetFact[],
): Promise<DatasetVersionRecord[]> {
  const pins = deployments
    .filter(({ status }) => status === 'running')
    .flatMap((d) => d.datasets ?? [])
    .filter(
      ({ dataset_id, version }) =>
        version !== null && datasets.some((d) => d.id === dataset_id && d.version !== version),
    );
  if (pins.length === 0) return [];
  return tx
    .selectFrom('dataset_versions')
    .selectAll()
    .where((eb) =>
      eb.or(
        pins.map(({ dataset_id, version }) =>
          eb.and([eb('dataset_id', '=', dataset_id), eb('version', '=', version ?? 0)]),
        ),
      ),
    )
    .execute();
}

async function findIdempotencyKey(
  db: Database,
  projectId: string,
  key: string,
  now: number,
): Promise<{ body_hash: string; deployment_id: string } | null> {
  const row = await db.kysely
    .selectFrom('idempotency_keys')
    .select(['body_hash', 'deployment_id'])
    .where('project_id', '=', projectId)
    .where('key', '=', key)
    .where('expires_at', '>', now)
    .executeTakeFirst();
  return row ?? null;
}

async function nodeFacts(tx: Tx, memory: NodeMemory): Promise<NodeFact[]> {
  const nodes = await memory.all(tx);
  const builds = await tx
    .selectFrom('tasks')
    .select((eb) => ['node_id', eb.fn.countAll<number>().as('open_builds')])
    .where('kind', '=', 'build')
    .where('finished_at', 'is', null)
    .groupBy('node_id')
    .execute();
  const openBuilds = new Map(builds.map((row) => [row.node_id, row.open_builds]));
  return nodes.map((node) => ({ ...node, open_builds: openBuilds.get(node.id) ?? 0 }));
}

async function gitCredentials(tx: Tx, projectId: string): Promise<GitCredentials> {
  const key = await tx
    .selectFrom('deploy_keys')
    .select('project_id')
    .where('project_id', '=', projectId)
    .executeTakeFirst();
  const token = await tx
    .selectFrom('git_tokens')
    .select('host')
    .where('project_id', '=', projectId)
    .executeTakeFirst();
  return { deployKey: key !== undefined, tokenHost: token?.host ?? null };
}

async function lastBuilder(tx: Tx, projectId: string): Promise<string | null> {
  const build = await tx
    .selectFrom('tasks')
    .select('node_id')
    .where('project_id', '=', projectId)
    .where('kind', '=', 'build')
    .where('status', '=', 'completed')
    .orderBy('finished_at', 'desc')
    .orderBy('seq', 'desc')
    .limit(1)
    .executeTakeFirst();
  return build?.node_id ?? null;
}
