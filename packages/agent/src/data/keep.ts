/**
 * Which deployments' mount folders stay: those with a container, running or not; the newest few generations of each project
 * that has one (a rollback goes there); those that a task is preparing. What another agent made on this SVC_ROOT is its own to
 * remove. All other folders go, and with them what they kept from being evicted.
 */
import { LABELS } from '@berth/wire/vocabulary';
import type { ListOurs } from '../node-ids.ts';
import type { Container } from '../tools/docker.ts';
import type { Holds } from './cache.ts';
import type { MountFolder, Mounts } from './mounts.ts';
import type { WorkFolders } from './work-folders.ts';

export type KeepDeps = {
  mounts: Mounts;
  work: WorkFolders;
  /** Of this agent, over its restarts. */
  agent: string;
  ours: ListOurs;
  keepReleases: number;
  /** Deployments that tasks of this process are at work on. */
  atWork: Holds;
};
/** Removes the folders that nothing needs. Rejects, having removed nothing, when the engine does not answer. */
export type SweepMounts = (signal: AbortSignal) => Promise<void>;

export function createSweepMounts({ mounts, work, agent, ours, keepReleases, atWork }: KeepDeps): SweepMounts {
  async function isOurs({ owner }: MountFolder): Promise<boolean> {
    if (owner === null || owner.agent !== agent) return false;
    // A twin with our own state folder is at work on it, perhaps.
    return owner.process === work.process || !(await work.isAlive(owner.process));
  }
  return async (signal) => {
    // In this order: what a task finishes meanwhile is in one of the three.
    const folders = await mounts.list();
    const before = atWork.all();
    const kept = keptDeployments(folders, await ours({}, signal), keepReleases);
    for (const folder of folders) {
      const { deploymentId } = folder;
      if (kept.has(deploymentId) || before.has(deploymentId) || !(await isOurs(folder))) continue;
      // Last, with nothing in between: a task may have begun with it.
      if (!atWork.has(deploymentId)) await mounts.remove(deploymentId);
    }
  };
}

export function keptDeployments(folders: readonly MountFolder[], containers: readonly Container[], keepReleases: number): Set<string> {
  const kept = new Set(containers.map((c) => c.labels[LABELS.deployment] ?? ''));
  for (const project of new Set(containers.map((c) => c.labels[LABELS.project]))) {
    const newest = folders
      .filter((f) => f.owner?.project_id === project)
      .sort((a, b) => (b.owner?.generation ?? 0) - (a.owner?.generation ?? 0))
      .slice(0, keepReleases);
    for (const { deploymentId } of newest) kept.add(deploymentId);
  }
  return kept;
}
