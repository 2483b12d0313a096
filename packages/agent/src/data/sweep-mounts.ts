/**
 * Removes mount folders that no deployment needs; a removed folder no longer pins its versions. A
 * folder stays in each of these cases:
 * - its deployment has a container, running or stopped;
 * - it is one of the newest generations of a project that has a container, as a rollback target;
 * - a task is preparing it;
 * - another agent on this SVC_ROOT created it.
 */
import { LABELS } from '@berth/wire/vocabulary';
import type { ListNodeContainers } from '../engine/node-ids.ts';
import type { Container } from '../engine/docker.ts';
import type { RefCounts } from '@berth/kit/ref-count';
import type { MountFolder, Mounts } from './mounts.ts';
import type { WorkFolders } from './work-folders.ts';

export type SweepMountsDeps = {
  mounts: Mounts;
  work: WorkFolders;
  /** The agent's id, which survives a restart. */
  agent: string;
  listContainers: ListNodeContainers;
  /** Lists the containers of runs (tasks/run.ts), which `listContainers` does not contain. */
  listRuns: (signal: AbortSignal) => Promise<Container[]>;
  keepReleases: () => number;
  /** Deployments for which a task of this process is running. */
  deploymentsInUse: RefCounts;
};
/** Removes unused mount folders. Rejects, and removes none, if the engine does not answer. */
export type SweepMounts = (signal: AbortSignal) => Promise<void>;

export function createSweepMounts({
  mounts,
  work,
  agent,
  listContainers,
  listRuns,
  keepReleases,
  deploymentsInUse,
}: SweepMountsDeps): SweepMounts {
  async function mayRemove({ owner }: MountFolder): Promise<boolean> {
    if (owner === null || owner.agent !== agent) return false;
    // A second process with the same state folder can be using the folder.
    return owner.process === work.process || !(await work.isAlive(owner.process));
  }
  return async (signal) => {
    // Keep this order. If a task ends between two of these calls, its deployment is in
    // `inUseBefore` or has a container.
    const folders = await mounts.list();
    const inUseBefore = deploymentsInUse.keys();
    const kept = keptDeployments(folders, await listContainers({}, signal), keepReleases());
    for (const { labels } of await listRuns(signal)) kept.add(labels[LABELS.run] ?? '');
    for (const folder of folders) {
      const { deploymentId } = folder;
      if (kept.has(deploymentId) || inUseBefore.has(deploymentId) || !(await mayRemove(folder)))
        continue;
      // Check again right before the removal: a task might have begun to use the folder.
      if (!deploymentsInUse.has(deploymentId)) await mounts.remove(deploymentId);
    }
  };
}

export function keptDeployments(
  folders: readonly MountFolder[],
  containers: readonly Container[],
  keepReleases: number,
): Set<string> {
  const kept = new Set(containers.map((c) => c.labels[LABELS.deployment] ?? ''));
  for (const project of new Set(containers.map((c) => c.labels[LABELS.project]))) {
    const newest = folders
      // The folder of a run has generation 0: it is no release to roll back to.
      .filter((f) => f.owner?.project_id === project && (f.owner?.generation ?? 0) > 0)
      .sort((a, b) => (b.owner?.generation ?? 0) - (a.owner?.generation ?? 0))
      .slice(0, keepReleases);
    for (const { deploymentId } of newest) kept.add(deploymentId);
  }
  return kept;
}
