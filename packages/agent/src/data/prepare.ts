/**
 * Prepares the mounts of a deployment's container: symlinks to cached versions, or folders of the
 * share itself. The agent creates a symlink first and checks its target afterwards. While the
 * symlink exists, no agent evicts the version, and an agent that has begun an eviction moves the
 * version back. The folder of a deployment is removed with its last container (sweep-mounts.ts), or
 * after a failed attempt.
 */
import type { CopyProgress, DatasetMount } from '@berth/wire/dataset';
import type { TaskReport } from '@berth/wire/task';
import type { Mount } from '../engine/docker.ts';
import { TaskFailure } from '../failures.ts';
import type { RefCounts } from '@berth/kit/ref-count';
import type { Cache } from './cache.ts';
import type { Mounts } from './mounts.ts';
import type { FindSource } from './source.ts';
import type { CopyListener } from './transfer.ts';
import type { Versions } from './versions.ts';
import { versionText } from './wanted-version.ts';
import type { WorkFolders } from './work-folders.ts';

/** The part of a task's context (tasks/task.ts) that this file uses. */
export type PrepareContext = {
  attempt: number;
  signal: AbortSignal;
  logStep(step: string, text: string): void;
  progress(datasets: readonly CopyProgress[]): void;
};
/** The part of a task that mounts datasets. `generation` is 0 for a run, which is no release. */
export type MountTask = {
  id: string;
  payload: { project_id: string; generation: number; datasets: readonly DatasetMount[] };
};
export type Prepared = { mounts: Mount[]; datasets: NonNullable<TaskReport['datasets']> };
export type Prepare = {
  /**
   * Copies missing versions and links them. Throws TaskFailure as Cache.ensure does, and
   * dataset_unreachable, no_share.
   */
  mounts(task: MountTask, deploymentId: string, context: PrepareContext): Promise<Prepared>;
  /**
   * Checks the folders of the share again, right before the container starts. The engine follows
   * symlinks, and a program with write access to the share might have created one meanwhile. Throws
   * TaskFailure dataset_unreachable.
   */
  checkWritten(task: MountTask, mounts: readonly Mount[], signal: AbortSignal): Promise<void>;
  /** Returns the mounts of an adopted container. Its folder then belongs to this attempt. */
  mounted(task: MountTask, deploymentId: string, attempt: number): Promise<Prepared['datasets']>;
  /**
   * Removes the folder of a failed attempt, unless a later attempt has taken it over or the task of
   * another instance uses it. The caller protects the folder.
   */
  undo(task: MountTask, deploymentId: string, attempt: number): Promise<void>;
  /** Removes the folder of a run that is over. */
  remove(runId: string): Promise<void>;
  /** Protects the deployment's folder from sweeps until the returned function is called. */
  protect(deploymentId: string): () => void;
};
export type PrepareDeps = {
  cache: Cache;
  mounts: Mounts;
  versions: Versions;
  work: WorkFolders;
  findSource: FindSource;
  deploymentsInUse: RefCounts;
  agent: string;
};

const MAX_TRIES = 3;

export function createPrepare(deps: PrepareDeps): Prepare {
  const { mounts, deploymentsInUse } = deps;
  return {
    mounts: (task, deploymentId, context) => prepareMounts(deps, task, deploymentId, context),
    checkWritten: (task, mounts, signal) => checkWritten(deps, task, mounts, signal),
    mounted: (task, deploymentId, attempt) => takeOverMounts(deps, task, deploymentId, attempt),
    async undo(task, deploymentId, attempt) {
      if (deploymentsInUse.count(deploymentId) > 1) return;
      await mounts.remove(deploymentId, { task_id: task.id, attempt });
    },
    remove: (runId) => mounts.remove(runId),
    protect: deploymentsInUse.add,
  };
}

async function prepareMounts(
  deps: PrepareDeps,
  task: MountTask,
  deploymentId: string,
  context: PrepareContext,
): Promise<Prepared> {
  const rows = task.payload.datasets;
  // A release without datasets still counts as a kept release (sweep-mounts.ts) if older releases
  // of the project had datasets.
  if (rows.length === 0 && !(await hasFolder(deps, task.payload.project_id)))
    return { mounts: [], datasets: [] };
  await claim(deps, task, deploymentId, context.attempt);
  const reporters = createReporters(context);
  // Abort the remaining copies at the first failure, because the deployment has failed.
  const failed = new AbortController();
  const signal = AbortSignal.any([context.signal, failed.signal]);
  const mounting = rows.map(async (row) => {
    try {
      const listener = reporters.of(row.name);
      return await mountDataset(deps, row, deploymentId, { ...context, signal }, listener);
    } catch (error) {
      failed.abort(error);
      throw error;
    }
  });
  const results = await Promise.allSettled(mounting);
  context.signal.throwIfAborted();
  failed.signal.throwIfAborted();
  const mounted = results.flatMap((r) => (r.status === 'fulfilled' ? [r.value] : []));
  return {
    mounts: mounted.map(({ mount }) => mount),
    datasets: mounted.map(({ row, version }) => ({ dataset_id: row.dataset_id, version })),
  };
}

async function hasFolder({ mounts }: PrepareDeps, projectId: string): Promise<boolean> {
  return (await mounts.list()).some((folder) => folder.owner?.project_id === projectId);
}

function claim(
  { mounts, agent, work }: PrepareDeps,
  task: MountTask,
  deploymentId: string,
  attempt: number,
): Promise<void> {
  const { project_id, generation } = task.payload;
  const owner = { agent, process: work.process, project_id, generation, task_id: task.id, attempt };
  return mounts.claim(deploymentId, owner);
}

type Mounted = {
  row: DatasetMount;
  mount: Mount;
  /** Version number; null for a folder of the share. */
  version: number | null;
};

const mountDataset = (
  deps: PrepareDeps,
  row: DatasetMount,
  deploymentId: string,
  context: PrepareContext,
  listener: CopyListener,
): Promise<Mounted> =>
  row.mode === 'readwrite'
    ? mountShareFolder(deps, row, context)
    : mountCachedVersion(deps, row, deploymentId, context, listener);

async function mountShareFolder(
  { findSource }: PrepareDeps,
  row: DatasetMount,
  { signal, logStep }: PrepareContext,
): Promise<Mounted> {
  const source = await findSource(row.nfs_path, signal, true);
  logStep(
    'data',
    `${row.name}: mounting ${source} of the shared storage directly, for reading and writing`,
  );
  return { row, mount: { source, target: row.mount_path, readonly: false }, version: null };
}

async function mountCachedVersion(
  { cache, mounts, versions }: PrepareDeps,
  row: DatasetMount,
  deploymentId: string,
  { signal, logStep }: PrepareContext,
  listener: CopyListener,
): Promise<Mounted> {
  for (let i = 0; i < MAX_TRIES; i += 1) {
    const { want, copied, release } = await cache.ensure(row, listener, signal);
    try {
      if (copied === null) logStep('data', `${versionText(want)} is already cached on this node`);
      const { dataset_id: datasetId, version } = want;
      const source = await mounts.link(deploymentId, { name: row.name, datasetId, version });
      // Another agent might have evicted the version between the copy and the link.
      const linked = await versions.get(datasetId, version);
      if (linked?.manifest_digest === want.manifest_digest)
        return { row, mount: { source, target: row.mount_path, readonly: true }, version };
    } finally {
      release();
    }
  }
  throw new TaskFailure(
    'dataset_copy_failed',
    `${row.name} was evicted ${MAX_TRIES} times before it could be mounted; try again`,
  );
}

async function checkWritten(
  { findSource }: PrepareDeps,
  task: MountTask,
  mounts: readonly Mount[],
  signal: AbortSignal,
): Promise<void> {
  for (const row of task.payload.datasets.filter((d) => d.mode === 'readwrite')) {
    const source = await findSource(row.nfs_path, signal, true);
    const mountedSource = mounts.find((m) => m.target === row.mount_path)?.source;
    if (source !== mountedSource)
      throw new TaskFailure(
        'dataset_unreachable',
        `${row.name}: its folder is now ${source} and was ${mountedSource}; deploy again`,
      );
  }
}

async function takeOverMounts(
  deps: PrepareDeps,
  task: MountTask,
  deploymentId: string,
  attempt: number,
): Promise<Prepared['datasets']> {
  if (task.payload.datasets.length === 0) return [];
  await claim(deps, task, deploymentId, attempt);
  const { links } = await deps.mounts.get(deploymentId);
  const linked = new Map(links.map(({ name, version }) => [name, version]));
  return task.payload.datasets.map(({ dataset_id, mode, name, version }) => ({
    dataset_id,
    version: mode === 'readwrite' ? null : (linked.get(name) ?? version),
  }));
}

/** Combines the progress of several copies into one report. */
export function createReporters(context: Pick<PrepareContext, 'progress' | 'logStep'>): {
  of(name: string): CopyListener;
} {
  const rows = new Map<string, CopyProgress>();
  return {
    of: (name) => ({
      onProgress(progress) {
        rows.set(name, progress);
        context.progress([...rows.values()]);
      },
      logLine: (text) => context.logStep('data', text),
    }),
  };
}
