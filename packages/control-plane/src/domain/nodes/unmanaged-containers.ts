/**
 * Containers that a contract-only agent might have started. Such an agent reports no containers and
 * removes only the one that it replaces, so Berth keeps this list: `svc-{domain_prefix}` by node
 * and project. Pure.
 *
 *   deploy task for a contract-only node ──▶ listed ──▶ it serves ──▶ it does not serve any more: a person must remove it
 *                                              ▲                       │ an admin confirms that it is gone, or the agent starts another
 *                                              └── a new deploy task ──┘ container of this name: `confirmed_at` is set
 */
import { finalName } from '../projects/container-name.ts';
import type { DeploymentRecord } from '../platform/records.ts';

export type UnmanagedContainer = {
  node_id: string;
  container: string;
  project_id: string;
  /** Name of the project, which might be deleted. */
  project: string;
  /** The deployment that started it last. */
  deployment_id: string;
  placed_at: number;
  /** A Berth agent started it, so the list of a Berth agent would have it. */
  labelled: boolean;
  /** It is gone: an admin said so, or another container has its name. */
  confirmed_at: number | null;
};

/**
 * `replaced`: a contract-only agent started a container of this name for this project, so it
 * removed all others of this name.
 */
export type UnmanagedChange =
  | { put: UnmanagedContainer }
  | { replaced: Pick<UnmanagedContainer, 'node_id' | 'container' | 'project_id'> };

type Live = Pick<DeploymentRecord, 'id' | 'project_id' | 'node_id' | 'status' | 'stopped_first'> & {
  settings: { domain_prefix: string };
};

/**
 * Returns whether a deployment that serves, or that is being deployed there, uses the container.
 */
const isInUse = (one: UnmanagedContainer, live: readonly Live[]): boolean =>
  live.some(
    (d) =>
      d.project_id === one.project_id &&
      d.node_id === one.node_id &&
      (d.status === 'deploying' || (d.status === 'running' && d.stopped_first === null)) &&
      (finalName(d.settings) === one.container || (one.labelled && d.id === one.deployment_id)),
  );

/** Returns the containers that nobody uses and that only a person can remove. */
export const leftOver = (
  all: readonly UnmanagedContainer[],
  live: readonly Live[],
): UnmanagedContainer[] => all.filter((one) => one.confirmed_at === null && !isInUse(one, live));
