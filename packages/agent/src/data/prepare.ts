/**
 * Prepares the mounts of a deployment's container: symlinks to versions in the cache, or folders of
 * the share itself.
 *
 * The agent creates the symlink first and checks its target afterwards. While the symlink exists no
 * agent evicts the version, and an agent that was evicting it puts it back. A deployment's folder
 * is removed with its last container (sweep-mounts.ts) or with the attempt that failed.
 */
import type { CopyProgress, DatasetMount } from '@berth/wire/dataset';
import type { TaskOf, TaskReport } from '@berth/wire/task';
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

/** The part of a task's context (tasks/task.ts) that the mounts need. */
export type PrepareContext = {
  attempt: number;
  signal: AbortSignal;
  logStep(step: string, text: string): void;
  progress(datasets: readonly CopyProgress[]): void;
};
export type Prepared = { mounts: Mount[]; datasets: NonNullable<TaskReport['datasets']> };
export type Prepare = {
  /**
   * Copies missing versions and links them. Throws TaskFailure as Cache.ensure does, and
   * dataset_unreachable, no_share.
   */
  mounts(task: TaskOf<'deploy'>, deploymentId: string, context: PrepareContext): Promise<Prepared>;
  /**
   * Checks the folders of the share again, right before the container starts: the engine follows
   * symlinks, and a program that writes to the share might have made one in the meantime. Throws
   * TaskFailure dataset_unreachable.
   */
  checkWritten(
    task: TaskOf<'deploy'>,
    mounts: readonly Mount[],
    signal: AbortSignal,
  ): Promise<void>;
  /** Returns the mounts of an adopted container; its folder belongs to this attempt from now on. */
  mounted(
    task: TaskOf<'deploy'>,
    deploymentId: string,
    attempt: number,
  ): Promise<Prepared['datasets']>;
  /** Removes the folder of a failed attempt, unless a later attempt has taken it over. */
  undo(task: TaskOf<'deploy'>, deploymentId: string, attempt: number): Promise<void>;
  /**
   * Keeps the deployment's folder from being removed by a sweep until the returned function is
   * called.
   */
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

export function createPrepare({
  cache,
  mounts,
  versions,
  work,
  findSource,
  deploymentsInUse,
  agent,
}: PrepareDeps): Prepare {
  const claim = (task: TaskOf<'deploy'>, deploymentId: string, attempt: number): Promise<void> => {
    const { project_id, generation } = task.payload;
    return mounts.claim(deploymentId, {
      agent,
      process: work.process,
      project_id,
      generation,
      task_id: task.id,
      attempt,
    });
  };
  const hasFolder = async (projectId: string): Promise<boolean> =>
    (await mounts.list()).some((f) => f.owner?.project_id === projectId);
  async function dependency(
    row: DatasetMount,
    deploymentId: string,
    context: PrepareContext,
    listener: CopyListener,
  ): Promise<Mount & { version: number }> {
    for (let i = 0; i < MAX_TRIES; i += 1) {
      const { want, copied, release } = await cache.ensure(row, listener, context.signal);
      try {
        if (copied === null)
          context.logStep('data', `${versionText(want)} is already cached on this node`);
        const link = { name: row.name, datasetId: want.dataset_id, version: want.version };
        const source = await mounts.link(deploymentId, link);
        // Another agent might have evicted the version between the copy and the link.
        const linked = await versions.get(want.dataset_id, want.version);
        if (linked?.manifest_digest === want.manifest_digest)
          return { source, target: row.mount_path, readonly: true, version: want.version };
      } finally {
        release();
      }
    }
    throw new TaskFailure(
      'dataset_copy_failed',
      `${row.name} was evicted ${MAX_TRIES} times before it could be mounted; try again`,
    );
  }
  async function readwrite(row: DatasetMount, { signal, logStep }: PrepareContext): Promise<Mount> {
    const source = await findSource(row.nfs_path, signal, true);
    logStep(
      'data',
      `${row.name}: mounting ${source} of the shared storage directly, for reading and writing`,
    );
    return { source, target: row.mount_path, readonly: false };
  }

  return {
    async mounts(task, deploymentId, context) {
      const rows = task.payload.datasets;
      // A release without datasets still counts as a kept release (sweep-mounts.ts) if earlier
      // releases of the project had some.
      if (rows.length === 0 && !(await hasFolder(task.payload.project_id)))
        return { mounts: [], datasets: [] };
      await claim(task, deploymentId, context.attempt);
      const reporters = createReporters(context);
      // The first failure aborts the other copies: the deployment cannot use them.
      const failed = new AbortController();
      const signal = AbortSignal.any([context.signal, failed.signal]);
      const mounting = rows.map(async (row) => {
        try {
          if (row.mode === 'readwrite')
            return { row, mount: await readwrite(row, { ...context, signal }), version: null };
          const { version, ...mount } = await dependency(
            row,
            deploymentId,
            { ...context, signal },
            reporters.of(row.name),
          );
          return { row, mount, version };
        } catch (error) {
          failed.abort(error);
          throw error;
        }
      });
      const results = await Promise.allSettled(mounting);
      context.signal.throwIfAborted();
      failed.signal.throwIfAborted();
      const done = results.flatMap((r) => (r.status === 'fulfilled' ? [r.value] : []));
      return {
        mounts: done.map((d) => d.mount),
        datasets: done.map(({ row, version }) => ({ dataset_id: row.dataset_id, version })),
      };
    },
    async checkWritten(task, mounts, signal) {
      for (const row of task.payload.datasets.filter((d) => d.mode === 'readwrite')) {
        const source = await findSource(row.nfs_path, signal, true);
        const before = mounts.find((m) => m.target === row.mount_path)?.source;
        if (source !== before)
          throw new TaskFailure(
            'dataset_unreachable',
            `${row.name}: its folder is now ${source} and was ${before}; deploy again`,
          );
      }
    },
    async mounted(task, deploymentId, attempt) {
      if (task.payload.datasets.length === 0) return [];
      await claim(task, deploymentId, attempt);
      const { links } = await mounts.get(deploymentId);
      const linked = new Map(links.map(({ name, version }) => [name, version]));
      return task.payload.datasets.map(({ dataset_id, mode, name, version }) => ({
        dataset_id,
        version: mode === 'readwrite' ? null : (linked.get(name) ?? version),
      }));
    },
    undo: (task, deploymentId, attempt) =>
      mounts.remove(deploymentId, { task_id: task.id, attempt }),
    protect: deploymentsInUse.add,
  };
}

/** Collects the progress of several copies into one report. */
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
