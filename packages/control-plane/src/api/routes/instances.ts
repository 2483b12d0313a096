/** Routes of instances: the list of instances, and why each one runs on its node. */
import type { InstanceItem, ProjectPlacement } from '@berth/wire/instance';
import { defined } from '@berth/kit/defined';
import type { DeploymentStore } from '../../domain/deployments/deployment-store.ts';
import { allInstances, type InstanceRecord } from '../../domain/deployments/instance.ts';
import type { InstanceStore } from '../../domain/deployments/instance-store.ts';
import type { NodeStore } from '../../domain/nodes/node-store.ts';
import type { DeploymentRecord } from '../../domain/platform/records.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import type { Call, Define } from '../define.ts';
import { pageOf } from '../page.ts';
import { type InstanceContext, instanceItems, placementsView } from '../views.ts';

export type Deps = {
  projects: Pick<ProjectStore, 'get'>;
  deployments: Pick<DeploymentStore, 'getMany'>;
  instances: Pick<InstanceStore, 'list' | 'ofDeployments'>;
  nodes: Pick<NodeStore, 'getMany'>;
};

export function instanceRoutes(route: Define, deps: Deps): void {
  route('listInstances', (call) => listInstances(deps, call));
  route('projectPlacement', (call) => projectPlacement(deps, call));
}

/** Reads the instances of several deployments, and their nodes. */
export async function instancesWithNodes(
  {
    instances,
    nodes,
  }: { instances: Pick<InstanceStore, 'ofDeployments'>; nodes: Pick<NodeStore, 'getMany'> },
  deployments: readonly DeploymentRecord[],
): Promise<(d: DeploymentRecord) => InstanceContext> {
  const others = Map.groupBy(
    await instances.ofDeployments(deployments.map(({ id }) => id)),
    ({ deployment_id }) => deployment_id,
  );
  const of = ({ id }: DeploymentRecord): readonly InstanceRecord[] => others.get(id) ?? [];
  const ids = deployments.flatMap((d) =>
    allInstances(d, of(d)).flatMap(({ node_id }) => node_id ?? []),
  );
  const byId = new Map((await nodes.getMany([...new Set(ids)])).map((node) => [node.id, node]));
  return (d) => ({ others: of(d), nodes: byId });
}

async function listInstances(
  deps: Deps,
  { query, access }: Call<'listInstances'>,
): Promise<{ items: InstanceItem[]; next_cursor: string | null }> {
  const { project_id, node_id } = query;
  const filter = defined({ project_id, node_id });
  const { items, next } = await deps.instances.list(filter, pageOf(query), access);
  const records = await deps.deployments.getMany(items.map((row) => row.deployment_id));
  const byId = new Map(records.map((d) => [d.id, d]));
  const contextOf = await instancesWithNodes(deps, records);
  const rows = items.flatMap(({ deployment_id, project }) => {
    const d = byId.get(deployment_id);
    return d === undefined ? [] : instanceItems(d, contextOf(d), project);
  });
  return {
    items: node_id === undefined ? rows : rows.filter((row) => row.node_id === node_id),
    next_cursor: next,
  };
}

/** Explains the instances of the version that serves, or else of the one that is starting. */
async function projectPlacement(
  deps: Deps,
  { params }: Call<'projectPlacement'>,
): Promise<ProjectPlacement> {
  const project = await deps.projects.get(params.id);
  const { items } = await deps.instances.list(
    { project_id: project.id },
    { limit: 10, cursor: null },
    undefined,
  );
  const live = await deps.deployments.getMany(items.map((row) => row.deployment_id));
  const d = live.find(({ status }) => status === 'running') ?? live[0];
  if (d === undefined) return { deployment_id: null, items: [] };
  const contextOf = await instancesWithNodes(deps, [d]);
  return { deployment_id: d.id, items: placementsView(d, contextOf(d), project) };
}
