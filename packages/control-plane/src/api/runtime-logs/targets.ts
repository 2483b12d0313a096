/** Finds which instances of a project have a log to read now, and on which nodes. */
import { hasWeb } from '@berth/wire/project';
import { LOGS_CAPABILITY } from '@berth/wire/runtime';
import { isTerminal } from '@berth/wire/vocabulary';
import {
  type InstanceRecord,
  isAskedFor,
  isWanted,
  ownLabel,
  WEB,
} from '../../domain/deployments/instance.ts';
import { isOnline } from '../../domain/nodes/placement.ts';
import { DomainError } from '../../domain/platform/errors.ts';
import type { DeploymentRecord, NodeRecord } from '../../domain/platform/records.ts';
import type { RuntimeLogDeps } from './deps.ts';
import type { LogQuery } from './lines.ts';
import { time } from '../views.ts';

/** One instance of a deployment (domain/deployments/instance.ts). */
export type Target = {
  /** Identifies the instance among all targets. */
  key: string;
  deployment_id: string;
  /** Label of its container; null: its container has no label of an instance. */
  instance: string | null;
  process: string;
  number: number;
  node_id: string | null;
  ended: boolean;
};

/** Maximum number of deployments of one project whose instances are read. */
const MOST_DEPLOYMENTS = 6;
/** Maximum number of instances that a stream follows at once. */
export const MOST_SOURCES = 12;

export async function deploymentOf(
  { stores }: RuntimeLogDeps,
  projectId: string,
  id: string,
): Promise<DeploymentRecord> {
  const deployment = await stores.deployments.get(id).catch((error: unknown) => {
    if (error instanceof DomainError && error.code === 'not_found') return null;
    throw error;
  });
  // A deployment of a project that the caller cannot see gets the same answer as a missing one.
  if (deployment?.project_id !== projectId)
    throw new DomainError('not_found', 'the project has no such deployment');
  return deployment;
}

/**
 * Returns the instances that match the query and whose containers can print now: those of the named
 * deployment, otherwise those of the project.
 */
export async function targetsOf(
  deps: RuntimeLogDeps,
  projectId: string,
  query: LogQuery,
): Promise<Target[]> {
  const { stores } = deps;
  const deployments =
    query.deployment_id === undefined
      ? await presentDeployments(deps, projectId)
      : [await deploymentOf(deps, projectId, query.deployment_id)];
  const others = await stores.instances.ofDeployments(deployments.map(({ id }) => id));
  const targets = deployments
    .flatMap((d) => [...(hasWeb(d.settings) ? [firstTarget(d)] : []), ...otherTargets(d, others)])
    .filter((target) => target.ended || isAskedFor(query, target));
  return [
    ...new Map(targets.toReversed().map((target) => [target.key, target])).values(),
  ].toReversed();
}

async function presentDeployments(
  { stores }: RuntimeLogDeps,
  projectId: string,
): Promise<DeploymentRecord[]> {
  const pages = await Promise.all(
    (['running', 'deploying'] as const).map((status) =>
      stores.deployments.list(
        { project_id: projectId, status },
        { limit: MOST_DEPLOYMENTS, cursor: null },
      ),
    ),
  );
  const ids = pages.flatMap(({ items }) => items).map(({ id }) => id);
  const byId = new Map((await stores.deployments.getMany(ids)).map((d) => [d.id, d]));
  return ids.flatMap((id) => byId.get(id) ?? []);
}

const firstTarget = (d: DeploymentRecord): Target => ({
  key: d.instance_id ?? d.id,
  deployment_id: d.id,
  instance: ownLabel(d),
  process: WEB,
  number: d.instance_number,
  node_id: d.node_id,
  ended: isTerminal(d.status),
});

/** A lost instance is left out if another one replaces it. */
function otherTargets(d: DeploymentRecord, all: readonly InstanceRecord[]): Target[] {
  const others = isTerminal(d.status) ? [] : all.filter((one) => one.deployment_id === d.id);
  const isReplaced = ({ process, number }: InstanceRecord): boolean =>
    (process === WEB && number === d.instance_number) ||
    others.some((one) => isWanted(one) && one.process === process && one.number === number);
  return others
    .filter((one) => one.node_id !== null && !(one.state === 'lost' && isReplaced(one)))
    .map(({ id, labelled, process, number, node_id }) => ({
      key: labelled ? id : d.id,
      deployment_id: d.id,
      instance: labelled ? id : null,
      process,
      number,
      node_id,
      ended: false,
    }));
}

/** Returns the text in front of a problem that names the instance, if there are several. */
export const nameBefore = ({ process, number }: Target, count: number): string =>
  count > 1 ? `${process} ${number}: ` : '';

/** Returns the node, or why its logs cannot be read now. */
export async function readableNode(
  { stores, now, limits }: RuntimeLogDeps,
  id: string | null,
): Promise<{ node: NodeRecord; problem: null } | { node: NodeRecord | null; problem: string }> {
  const [node] = id === null ? [] : await stores.nodes.getMany([id]);
  if (node === undefined) return { node: null, problem: 'its node does not exist any more' };
  if (node.capabilities?.includes(LOGS_CAPABILITY) !== true)
    return { node, problem: `the agent of node ${node.hostname} sends no logs` };
  if (!isOnline(node, now(), limits))
    return { node, problem: `node ${node.hostname} is offline since ${time(node.last_seen_at)}` };
  return { node, problem: null };
}
