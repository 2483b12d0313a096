/**
 * Task `clean`: deletes images from the registry, and runs its garbage collection. Each step can be
 * repeated.
 */
import { failPoint } from '@berth/kit/fail-point';
import { type CleanResult, MAX_MISSING, type RepositoryImages } from '@berth/wire/clean-up';
import type { Locks } from '../locks.ts';
import type { RegistryApi } from '../registry/api.ts';
import type { Collector } from '../registry/collect.ts';
import type { RegistryConfigFile } from '../registry/config-file.ts';
import { TaskFailure } from '../failures.ts';
import { type Handler, nothingToDiscard } from './task.ts';

/** The parts that clean the registry; null on an agent without REGISTRY_CONFIG. */
export type RegistryParts = {
  api: RegistryApi;
  collector: Collector;
  file: RegistryConfigFile;
  /** REGISTRY_URL; if undefined, REGISTRY_ADDR is used. */
  url: string | undefined;
};

/** Lock key: only one holder at a time can change the registry's configuration. */
export const REGISTRY_LOCK = 'registry';

export function createCleanHandler({
  registry,
  locks,
}: {
  registry: RegistryParts | null;
  locks: Locks;
}): Handler<'clean'> {
  return async (task, { signal, logStep }) => {
    if (registry === null)
      throw new TaskFailure('task_failed', 'REGISTRY_CONFIG is not set on this agent');
    const { api, collector, file, url } = registry;
    // A previous attempt in this process might still be undoing its changes.
    const release = await locks.acquire(REGISTRY_LOCK, signal);
    try {
      await file.adopt();
      await collector.recover(signal);
      if (await file.isReadOnlyByOperator())
        throw new TaskFailure(
          'registry_refused',
          `${file.path} makes the registry read-only; unless that is wanted, remove ` +
            'storage.maintenance.readonly and restart the registry',
        );
      if (!(await api.allowsDeletion(signal)))
        throw new TaskFailure(
          'registry_delete_disabled',
          `set storage.delete.enabled: true in ${file.path} and restart the registry`,
        );
      const result: CleanResult = {
        removed: 0,
        missing: [],
        blobs: null,
        bytes_before: null,
        bytes_after: null,
      };
      let [kept, found] = [0, 0];
      for (const images of task.payload.repositories) {
        result.removed += await removeImages(api, images, signal);
        for (const digest of images.keep) {
          kept += 1;
          if (result.missing.length >= MAX_MISSING) continue;
          if (await api.has(images.repository, digest, signal)) found += 1;
          else result.missing.push({ repository: images.repository, digest });
        }
      }
      // If all kept images are missing, the address is probably wrong. A report would then refuse
      // every rollback.
      if (
        url !== undefined &&
        kept > 0 &&
        result.removed === 0 &&
        result.missing.length === Math.min(kept, MAX_MISSING)
      )
        throw new TaskFailure(
          'registry_other',
          `${url} has none of the ${kept} images that releases need`,
        );
      logStep('clean', `${result.removed} images deleted`);
      const mayBeEmpty = found === 0 && result.removed === 0;
      const { blobs, bytesBefore, bytesAfter } = await collector.collect(
        (line) => logStep('collect', line),
        mayBeEmpty,
        signal,
      );
      Object.assign(result, {
        blobs,
        bytes_before: bytesBefore,
        bytes_after: bytesAfter,
      } satisfies Partial<CleanResult>);
      return {
        report: { status: 'completed', result: result as Record<string, unknown> },
        discard: nothingToDiscard,
      };
    } finally {
      release();
    }
  };
}

async function removeImages(
  api: RegistryApi,
  { repository, remove, keep, keep_tags }: RepositoryImages,
  signal: AbortSignal,
): Promise<number> {
  if (remove.length === 0) return 0;
  const kept = new Set(keep);
  for (const tag of keep_tags) {
    const digest = await api.digestOf(repository, tag, signal);
    if (digest !== null) kept.add(digest);
  }
  let removed = 0;
  for (const digest of remove) {
    if (await api.remove(repository, digest, kept, signal)) removed += 1;
    await failPoint('clean.deleted');
  }
  return removed;
}
