/**
 * What a deployment's container mounts: symlinks to versions in the cache, or folders of the share itself.
 *
 * The symlink is made first and only then its target looked at: from then on no agent evicts it, and one that was about to puts
 * it back. A deployment's folder goes with its last container (keep.ts), or with the attempt that failed.
 */
import type { CopyProgress, DatasetMount } from '@berth/wire/dataset';
import type { TaskOf, TaskReport } from '@berth/wire/task';
import type { TaskContext } from '../tasks/task.ts';
import type { Mount } from '../tools/docker.ts';
import { TaskFailure } from '../tools/failures.ts';
import type { Cache, Holds } from './cache.ts';
import type { Mounts } from './mounts.ts';
import type { FindSource } from './source.ts';
import type { Watcher } from './transfer.ts';
import type { Versions } from './versions.ts';
import type { WorkFolders } from './work-folders.ts';

export type Prepared = { mounts: Mount[]; datasets: NonNullable<TaskReport['datasets']> };
export type Prepare = {
  /** Brings what is missing and links it. TaskFailure as Cache.ensure, dataset_unreachable, no_share. */
  mounts(task: TaskOf<'deploy'>, deploymentId: string, context: TaskContext): Promise<Prepared>;
  /**
   * Right before the container starts: the engine follows symlinks, and a program that writes on the share may have put one there since.
   * TaskFailure dataset_unreachable.
   */
  checkWritten(task: TaskOf<'deploy'>, mounts: readonly Mount[], signal: AbortSignal): Promise<void>;
  /** What an earlier attempt mounted, for a container that this one goes on with; its folder is this one's now. */
  mounted(task: TaskOf<'deploy'>, deploymentId: string, attempt: number): Promise<Prepared['datasets']>;
  /** The attempt failed: nobody else's folder is touched. */
  undo(task: TaskOf<'deploy'>, deploymentId: string, attempt: number): Promise<void>;
  /** Until the returned function is called no sweep removes the deployment's folder. */
  hold(deploymentId: string): () => void;
};
export type PrepareDeps = {
  cache: Cache;
  mounts: Mounts;
  versions: Versions;
  work: WorkFolders;
  findSource: FindSource;
  atWork: Holds;
  agent: string;
};

const TRIES = 3;

export function createPrepare({ cache, mounts, versions, work, findSource, atWork, agent }: PrepareDeps): Prepare {
  const own = (task: TaskOf<'deploy'>, deploymentId: string, attempt: number): Promise<void> => {
    const { project_id, generation } = task.payload;
    return mounts.own(deploymentId, { agent, process: work.process, project_id, generation, task_id: task.id, attempt });
  };
  const hasFolder = async (projectId: string): Promise<boolean> => (await mounts.list()).some((f) => f.owner?.project_id === projectId);
  async function dependency(
    row: DatasetMount,
    deploymentId: string,
    context: TaskContext,
    report: Watcher,
  ): Promise<Mount & { version: number }> {
    for (let i = 0; i < TRIES; i += 1) {
      const { want, copied, release } = await cache.ensure(row, report, context.signal);
      try {
        if (copied === null) context.say('data', `${want.name} v${want.version} is here already`);
        const link = { name: row.name, datasetId: want.dataset_id, version: want.version };
        const source = await mounts.link(deploymentId, link);
        // Between being brought and being linked another agent may have evicted it.
        const there = await versions.get(want.dataset_id, want.version);
        if (there?.manifest_digest === want.manifest_digest)
          return { source, target: row.mount_path, readonly: true, version: want.version };
      } finally {
        release();
      }
    }
    throw new TaskFailure('dataset_copy_failed', `${row.name} was evicted each time before it could be mounted`);
  }
  async function readwrite(row: DatasetMount, { signal, say }: TaskContext): Promise<Mount> {
    const source = await findSource(row.nfs_path, signal, true);
    say('data', `${row.name}: ${source} of the shared storage is mounted itself, to be read and written`);
    return { source, target: row.mount_path, readonly: false };
  }

  return {
    async mounts(task, deploymentId, context) {
      const rows = task.payload.datasets;
      // A release without datasets counts among those that are kept (keep.ts), where earlier ones of the project had some.
      if (rows.length === 0 && !(await hasFolder(task.payload.project_id))) return { mounts: [], datasets: [] };
      await own(task, deploymentId, context.attempt);
      const reporters = createReporters(context);
      // One that fails ends the others: their copies would be waited for in vain.
      const failed = new AbortController();
      const signal = AbortSignal.any([context.signal, failed.signal]);
      const mounting = rows.map(async (row) => {
        try {
          if (row.mode === 'readwrite') return { row, mount: await readwrite(row, { ...context, signal }), version: null };
          const { version, ...mount } = await dependency(row, deploymentId, { ...context, signal }, reporters.of(row.name));
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
      return { mounts: done.map((d) => d.mount), datasets: done.map(({ row, version }) => ({ dataset_id: row.dataset_id, version })) };
    },
    async checkWritten(task, mounts, signal) {
      for (const row of task.payload.datasets.filter((d) => d.mode === 'readwrite')) {
        const source = await findSource(row.nfs_path, signal, true);
        const before = mounts.find((m) => m.target === row.mount_path)?.source;
        if (source !== before) throw new TaskFailure('dataset_unreachable', `${row.name} lies at ${source} by now, not at ${before}`);
      }
    },
    async mounted(task, deploymentId, attempt) {
      if (task.payload.datasets.length === 0) return [];
      await own(task, deploymentId, attempt);
      const { links } = await mounts.get(deploymentId);
      return task.payload.datasets.map((row) => ({
        dataset_id: row.dataset_id,
        version: row.mode === 'readwrite' ? null : (links.find((l) => l.name === row.name)?.version ?? row.version),
      }));
    },
    undo: (task, deploymentId, attempt) => mounts.remove(deploymentId, { task_id: task.id, attempt }),
    hold: atWork.add,
  };
}

/** Rows of several copies, told together. */
export function createReporters(context: Pick<TaskContext, 'progress' | 'say'>): { of(name: string): Watcher } {
  const rows = new Map<string, CopyProgress>();
  return {
    of: (name) => ({
      onProgress(progress) {
        rows.set(name, progress);
        context.progress([...rows.values()]);
      },
      say: (text) => context.say('data', text),
    }),
  };
}
