/** Finds which deployments of a project have a log to read now, and on which nodes. */
import { LOGS_CAPABILITY } from '@berth/wire/runtime';
import { isTerminal } from '@berth/wire/vocabulary';
import { isOnline } from '../../domain/nodes/placement.ts';
import { DomainError } from '../../domain/platform/errors.ts';
import type { DeploymentRecord, NodeRecord } from '../../domain/platform/records.ts';
import type { RuntimeLogDeps } from './deps.ts';
import { time } from '../views.ts';

export type Target = { id: string; node_id: string | null; ended: boolean };

/** Maximum number of deployments of one project that a stream follows at once. */
export const MOST_SOURCES = 6;

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

/** Returns the deployments whose containers can print now, or the named one. */
export async function targetsOf(
  deps: RuntimeLogDeps,
  projectId: string,
  named: string | undefined,
): Promise<Target[]> {
  if (named !== undefined) {
    const { id, node_id, status } = await deploymentOf(deps, projectId, named);
    return [{ id, node_id, ended: isTerminal(status) }];
  }
  const pages = await Promise.all(
    (['running', 'deploying'] as const).map((status) =>
      deps.stores.deployments.list(
        { project_id: projectId, status },
        { limit: MOST_SOURCES, cursor: null },
      ),
    ),
  );
  return pages
    .flatMap(({ items }) => items)
    .filter(({ node_id }) => node_id !== null)
    .map(({ id, node_id }) => ({ id, node_id, ended: false }));
}

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
