/**
 * Task `sync`: copies one dataset into this node's cache before a deployment needs it (prewarming),
 * or as one of the copies that a project wants (`background`).
 */
import type { Cache } from '../data/cache.ts';
import type { Pins } from '../data/pins.ts';
import { createReporters } from '../data/prepare.ts';
import { versionText } from '../data/wanted-version.ts';
import { TaskFailure } from '../failures.ts';
import { type Handler, NO_DATASETS, nothingToDiscard } from './task.ts';

export type SyncDeps = {
  /** Null on a node without datasets, like `pins`. */
  cache: Cache | null;
  pins: Pick<Pins, 'add'> | null;
};

export function createSyncHandler({ cache, pins }: SyncDeps): Handler<'sync'> {
  return async (task, context) => {
    if (cache === null) throw new TaskFailure('dataset_copy_failed', NO_DATASETS);
    const { dataset, background = false } = task.payload;
    // Pin the version before the copy, so that nothing evicts it until the next registration.
    if (background && dataset.version !== null)
      await pins?.add({ dataset_id: dataset.dataset_id, version: dataset.version });
    const { want, copied, release } = await cache.ensure(
      dataset,
      createReporters(context).of(dataset.name),
      context.signal,
      { background },
    );
    release();
    if (copied === null)
      context.logStep('data', `${versionText(want)} is already cached on this node`);
    const result: Record<string, unknown> = {
      dataset_id: want.dataset_id,
      version: want.version,
      bytes_copied: copied?.bytes ?? 0,
      files_copied: copied?.files ?? 0,
    };
    return {
      report: {
        status: 'completed',
        result,
        datasets: [{ dataset_id: want.dataset_id, version: want.version }],
      },
      discard: nothingToDiscard,
    };
  };
}
