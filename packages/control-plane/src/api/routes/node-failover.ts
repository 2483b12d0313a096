/** The route with which a person starts a failover, and the field `failover` of nodes. */
import type { Node, NodeFailoverAnswer } from '@berth/wire/node';
import { isWanted, WEB } from '../../domain/deployments/instance.ts';
import type { InstanceStore, UnmovedInstance } from '../../domain/deployments/instance-store.ts';
import type { DeploymentStore } from '../../domain/deployments/deployment-store.ts';
import type { FailoverWatch } from '../../domain/nodes/failover-watch.ts';
import { DomainError } from '../../domain/platform/errors.ts';
import type { NodeStore } from '../../domain/nodes/node-store.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import { isStopFirst } from '../../domain/data/volumes.ts';
import { holdOfWriter } from '../../flow/lost-instance.ts';
import type { Driver } from '../../flow/driver.ts';
import type { Call, Define } from '../define.ts';
import { time } from '../views.ts';

export type Deps = {
  nodes: Pick<NodeStore, 'get' | 'getMany'>;
  instances: Pick<InstanceStore, 'ofDeployments' | 'unmoved'>;
  deployments: Pick<DeploymentStore, 'getMany'>;
  projects: Pick<ProjectStore, 'visible'>;
  failover: FailoverWatch;
  driver: Pick<Driver, 'advance'>;
  now: () => number;
};

export function nodeFailoverRoutes(route: Define, deps: Deps): void {
  route('failoverNode', (call) => failoverNode(deps, call));
}

async function failoverNode(
  deps: Deps,
  { params, body, access }: Call<'failoverNode'>,
): Promise<NodeFailoverAnswer> {
  const machine_is_off = body?.machine_is_off ?? false;
  const node = await deps.nodes.get(params.id);
  const silent = await deps.failover.silent();
  if (!silent.some(({ id }) => id === node.id))
    throw new DomainError(
      'wrong_state',
      `${node.hostname} is not silent, so a failover is not needed; to move its projects, drain it`,
    );
  const before = await deps.instances.unmoved([node.id]);
  if (before.length === 0)
    throw new DomainError('wrong_state', `no instance waits for ${node.hostname}`);
  const silentIds = silent.map(({ id }) => id);
  for (const id of new Set(before.map(({ deployment_id }) => deployment_id)))
    await deps.driver.advance(id, {
      type: 'node_lost',
      node_id: node.id,
      silent: silentIds,
      forced: { machine_is_off },
    });
  const seen = await deps.projects.visible(
    [...new Set(before.map(({ project_id }) => project_id))],
    access,
  );
  const shown = before.filter(({ project_id }) => seen.has(project_id));
  return { node_id: node.id, node: node.hostname, ...(await outcomeOf(deps, node.id, shown)) };
}

/** Returns which of the instances moved, and why the others wait. */
async function outcomeOf(
  deps: Deps,
  nodeId: string,
  before: readonly UnmovedInstance[],
): Promise<Pick<NodeFailoverAnswer, 'moved' | 'left'>> {
  const ids = [...new Set(before.map(({ deployment_id }) => deployment_id))];
  const deployments = new Map((await deps.deployments.getMany(ids)).map((d) => [d.id, d]));
  const others = (await deps.instances.ofDeployments(ids)).filter(isWanted);
  const unmoved = await deps.instances.unmoved([nodeId]);
  const placeOf = (one: UnmovedInstance): string | null => {
    const d = deployments.get(one.deployment_id);
    const isFirst = one.process === WEB && d?.instance_number === one.number;
    if (isFirst && d.lost_since === null) return d.node_id;
    return others.find((i) => isSame(i, one))?.node_id ?? null;
  };
  const nodes = await deps.nodes.getMany([...new Set(before.flatMap((i) => placeOf(i) ?? []))]);
  const nameOf = (id: string | null): string | null =>
    nodes.find((node) => node.id === id)?.hostname ?? null;
  const isLeft = (one: UnmovedInstance): boolean => unmoved.some((i) => isSame(i, one));
  const whyLeft = ({ deployment_id }: UnmovedInstance): string => {
    const d = deployments.get(deployment_id);
    return d !== undefined && isStopFirst(d.settings)
      ? holdOfWriter(d)
      : 'on_node_lost of the project is wait; --machine-is-off moves it';
  };
  return {
    moved: before
      .filter((one) => !isLeft(one))
      .map((one) => ({ ...shownOf(one), to: nameOf(placeOf(one)) })),
    left: before.filter(isLeft).map((one) => ({ ...shownOf(one), why: whyLeft(one) })),
  };
}

type Numbered = Pick<UnmovedInstance, 'deployment_id' | 'process' | 'number'>;
const isSame = (a: Numbered, b: Numbered): boolean =>
  a.deployment_id === b.deployment_id && a.process === b.process && a.number === b.number;

const shownOf = ({ project_id, project, process, number }: UnmovedInstance) => ({
  project_id,
  project,
  process,
  number,
});

/** Returns the field `failover` of those of these nodes that are silent. */
export async function failoverFields(
  { failover, instances, now }: Pick<Deps, 'failover' | 'instances' | 'now'>,
  nodeIds: readonly string[],
): Promise<Map<string, NonNullable<Node['failover']>>> {
  const silent = (await failover.silent()).filter(({ id }) => nodeIds.includes(id));
  if (silent.length === 0) return new Map();
  const waiting = Map.groupBy(
    await instances.unmoved(silent.map(({ id }) => id)),
    ({ node_id }) => node_id,
  );
  return new Map(
    silent.map(({ id, silentMs, brake }) => [
      id,
      {
        silent_since: time(now() - silentMs),
        held: brake !== null,
        silent_nodes: brake?.silent ?? 0,
        nodes: brake?.nodes ?? 0,
        waiting: waiting.get(id)?.length ?? 0,
      },
    ]),
  );
}
