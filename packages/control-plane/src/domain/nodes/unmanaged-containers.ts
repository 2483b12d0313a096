/**
 * Containers that a contract-only agent might have started. Such an agent reports no containers and
 * removes only the container that it replaces, so Berth keeps this list of container names
 * (`svc-{domain_prefix}`) by node and project. Pure.
 *
 *   deploy task for a contract-only node ──▶ listed ──▶ serves ──▶ unused
 *   unused ── an admin confirms the removal, or the agent starts another container with this name
 *          ──▶ confirmed (`confirmed_at`)
 *   confirmed ── a new deploy task ──▶ listed
 */
import { finalName } from '../projects/container-name.ts';
import type { DeploymentRecord } from '../platform/records.ts';

export type UnmanagedContainer = {
  node_id: string;
  container: string;
  project_id: string;
  /** Name of the project, which might be deleted. */
  project: string;
  /** The last deployment that started it. */
  deployment_id: string;
  placed_at: number;
  /** True if a Berth agent started it; a Berth agent on this node would then report it. */
  labelled: boolean;
  /**
   * When the container was confirmed as removed, by an admin or because another container took its
   * name; null: not confirmed.
   */
  confirmed_at: number | null;
};

/**
 * `replaced`: a contract-only agent started a container with this name for this project, and
 * thereby removed all others with this name.
 */
export type UnmanagedChange =
  | { put: UnmanagedContainer }
  | { replaced: Pick<UnmanagedContainer, 'node_id' | 'container' | 'project_id'> };

type Live = Pick<DeploymentRecord, 'id' | 'project_id' | 'node_id' | 'status' | 'stopped_first'> & {
  settings: { domain_prefix: string };
};

/** Returns whether a deployment that serves or is being deployed on the node uses the container. */
const isInUse = (one: UnmanagedContainer, live: readonly Live[]): boolean =>
  live.some(
    (d) =>
      d.project_id === one.project_id &&
      d.node_id === one.node_id &&
      (d.status === 'deploying' || (d.status === 'running' && d.stopped_first === null)) &&
      (finalName(d.settings) === one.container || (one.labelled && d.id === one.deployment_id)),
  );

/** Returns the unused containers, which only a person can remove. */
export const leftOver = (
  all: readonly UnmanagedContainer[],
  live: readonly Live[],
): UnmanagedContainer[] => all.filter((one) => one.confirmed_at === null && !isInUse(one, live));
