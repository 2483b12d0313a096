/**
 * Caches which nodes are reconciled: every container on the node is as its deployment requires, and
 * every route leads to its own container. An agent that repeats its last report then causes no
 * query. docs/adr/0010-what-our-performance-goals-cost.md has the gain.
 *
 * Entry: `startReconciledQuery`, after a query has shown that the node is reconciled. Exit: a
 * commit that touches the node or a route at its address (`onCommit`), a changed report of the node
 * (`forget`), a commit of another control plane (`watch`). Invariant: no commit known to this
 * process has touched the node since its query began.
 *
 * With one control plane, every change of deployments passes `onCommit`, so the cache is exact.
 * With several control planes, an entry is dropped at most WATCH_MS after another control plane
 * commits, because each commit increases the flow_version of its project. Until then, this control
 * plane can answer a registration from the old entry; the next registration of that node gets the
 * right answer. If the last `watch` is older than WATCH_MS, the cache is not used, and the caller
 * queries. So a failing watch never prolongs a wrong answer.
 */
import type { Plan } from '../../domain/deployments/plan.ts';
import type { NodeRecord } from '../../domain/platform/records.ts';
import type { Database } from '../engine/database.ts';
import { LIVE_STATES } from '../states.ts';

/** Maximum age in ms of the last `watch` for which the cache is used. */
const WATCH_MS = 10_000;

/**
 * `containers`: the reported array itself, compared by identity. `deployments`, `projects`: ids.
 */
type Reconciled = {
  containers: NodeRecord['containers'];
  host_ip: string;
  deployments: string[];
  projects: Set<string>;
};
type DeploymentKey = { id: string; project_id: string };

export type NodeQueryCache = {
  isReconciled(node: NodeRecord): boolean;
  /**
   * Call it before the query for the node's deployments. If all containers match, call the returned
   * function with the deployments.
   */
  startReconciledQuery(node: NodeRecord): (deployments: readonly DeploymentKey[]) => void;
  /**
   * Call it after a plan was committed or might have been. `nodes`: the current nodes of the
   * deployments that the plan changed.
   */
  onCommit(plan: Plan, nodes: readonly string[]): void;
  /** Call it when the node's report has changed, or the node was removed. */
  forget(nodeId: string): void;
  /** Finds commits of other control planes; does nothing if the engine allows only one. */
  watch(): Promise<void>;
};

/** The state of the cache (see the top of this file). */
type Cache = {
  readonly db: Database;
  /** Whether other control planes use the same database. */
  readonly shared: boolean;
  /** The reconciled nodes by id. */
  readonly reconciled: Map<string, Reconciled>;
  /** Number of commits so far: the result of a query that overlaps a commit is not cached. */
  commits: number;
  /** Maps a deployment to the reconciled node that has its container. */
  readonly nodeOf: Map<string, string>;
  /** `flow_version` of each project at the last `watch`. */
  versions: Map<string, number>;
  /** Start of the last successful `watch`, on the monotonic clock in ms. */
  watchedAt: number;
};

export function createNodeQueryCache(db: Database): NodeQueryCache {
  const cache: Cache = {
    db,
    shared: db.capabilities.sharedByControlPlanes,
    reconciled: new Map(),
    commits: 0,
    nodeOf: new Map(),
    versions: new Map(),
    watchedAt: Number.NEGATIVE_INFINITY,
  };
  return {
    isReconciled: (node) => isNodeReconciled(cache, node),
    startReconciledQuery: (node) => startReconciledQuery(cache, node),
    onCommit: (plan, nodes) => dropCommitted(cache, plan, nodes),
    forget: (nodeId) => dropReconciled(cache, nodeId),
    watch: () => watchCommits(cache),
  };
}

function dropReconciled(cache: Cache, nodeId: string): void {
  for (const id of cache.reconciled.get(nodeId)?.deployments ?? [])
    if (cache.nodeOf.get(id) === nodeId) cache.nodeOf.delete(id);
  cache.reconciled.delete(nodeId);
}

/**
 * Drops the nodes that might have a container of the project, and the nodes at the address of its
 * new route.
 */
function dropRouted(cache: Cache, projectId: string, host_ip: string | null): void {
  for (const [nodeId, one] of [...cache.reconciled])
    if (one.projects.has(projectId) || one.host_ip === host_ip) dropReconciled(cache, nodeId);
}

async function dropChangedProjects(cache: Cache): Promise<void> {
  const rows = await cache.db.kysely
    .selectFrom('projects')
    .select(['id', 'flow_version'])
    .execute();
  const present = new Map(rows.map((row) => [row.id, row.flow_version]));
  const changed = new Set(
    [...present.keys(), ...cache.versions.keys()].filter(
      (id) => present.get(id) !== cache.versions.get(id),
    ),
  );
  if (changed.size > 0) {
    cache.commits++;
    for (const [nodeId, { projects }] of [...cache.reconciled])
      if ([...projects].some((id) => changed.has(id))) dropReconciled(cache, nodeId);
    const placed = await cache.db.kysely
      .selectFrom('deployments')
      .select('node_id')
      .distinct()
      .where('project_id', 'in', [...changed])
      .where('status', 'in', [...LIVE_STATES])
      .where('node_id', 'is not', null)
      .execute();
    const instances = await cache.db.kysely
      .selectFrom('instances')
      .select('node_id')
      .distinct()
      .where('project_id', 'in', [...changed])
      .where('node_id', 'is not', null)
      .execute();
    for (const { node_id } of [...placed, ...instances]) dropReconciled(cache, node_id ?? '');
  }
  cache.versions = present;
}

function isNodeReconciled(cache: Cache, node: NodeRecord): boolean {
  if (cache.shared && performance.now() - cache.watchedAt > WATCH_MS) return false;
  return cache.reconciled.get(node.id)?.containers === node.containers;
}

function startReconciledQuery(
  cache: Cache,
  node: NodeRecord,
): (deployments: readonly DeploymentKey[]) => void {
  const before = cache.commits;
  return (deployments) => {
    if (cache.commits !== before) return;
    dropReconciled(cache, node.id);
    cache.reconciled.set(node.id, {
      containers: node.containers,
      host_ip: node.host_ip,
      deployments: deployments.map((d) => d.id),
      projects: new Set(deployments.map((d) => d.project_id)),
    });
    for (const { id } of deployments) cache.nodeOf.set(id, node.id);
  };
}

function dropCommitted(cache: Cache, plan: Plan, nodes: readonly string[]): void {
  cache.commits++;
  for (const { id } of plan.changeDeployments) dropReconciled(cache, cache.nodeOf.get(id) ?? '');
  for (const id of nodes) dropReconciled(cache, id);
  dropReconciled(cache, plan.createDeployment?.node_id ?? '');
  for (const change of plan.instances ?? [])
    if ('put' in change) dropReconciled(cache, change.put.node_id ?? '');
  if (plan.instances !== undefined) dropRouted(cache, plan.project.id, null);
  if (plan.route !== null)
    dropRouted(cache, plan.project.id, 'set' in plan.route ? plan.route.set.host_ip : null);
}

async function watchCommits(cache: Cache): Promise<void> {
  if (!cache.shared) return;
  try {
    const startedAt = performance.now();
    await dropChangedProjects(cache);
    cache.watchedAt = startedAt;
  } catch (error) {
    cache.commits++;
    cache.reconciled.clear();
    cache.nodeOf.clear();
    throw error;
  }
}
