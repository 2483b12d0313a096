/** The folder of a dataset on the share, looked at by a child with a deadline: a share that hangs would hold our own threads for ever. */
import { join } from 'node:path';
import { exec } from '@berth/kit/exec';
import { AbandonedError, orAbandon } from '../abandon.ts';
import { lastWords, TaskFailure } from '../tools/failures.ts';

/** `plain`: no part of the path below the share's root may be a symlink. */
export type FindSource = (nfsPath: string, signal: AbortSignal, plain?: boolean) => Promise<string>;

const LOOK_MS = 15_000;

/** Gives the real path. TaskFailure no_share, dataset_unreachable (missing, no folder, leads out of the share, not plain, does not answer). */
export function createFindSource(base: string | undefined, inherit: NodeJS.ProcessEnv, lookMs = LOOK_MS): FindSource {
  return async (nfsPath, signal, plain = false) => {
    if (base === undefined) throw new TaskFailure('no_share', '');
    const path = `${base}/${nfsPath}`;
    // With `/.` at its end it is a folder, or an error.
    const work = exec(['realpath', '--canonicalize-existing', '--zero', '--', base, `${path}/.`], {
      env: { ...inherit, LC_ALL: 'C' },
      signal,
      timeoutMs: lookMs,
      killAfterMs: 500,
    });
    const result = await orAbandon(work, signal, lookMs + 1_500, 1_500).catch((error: unknown) => {
      if (error instanceof AbandonedError) return null;
      throw error;
    });
    signal.throwIfAborted();
    if (result === null || result.ended === 'timeout')
      throw new TaskFailure('dataset_unreachable', `${path} does not answer within ${Math.round(lookMs / 1000)} s`);
    if (result.code !== 0) throw new TaskFailure('dataset_unreachable', lastWords(result.stderr));
    const [realBase, realPath] = result.stdout.split('\0');
    if (realBase === undefined || realPath === undefined || !isInside(realBase, realPath))
      throw new TaskFailure('dataset_unreachable', `${path} leads out of the shared storage, to ${realPath ?? 'nowhere'}`);
    if (plain && realPath !== join(realBase, nfsPath))
      throw new TaskFailure(
        'dataset_unreachable',
        `${path} leads over a symlink, to ${realPath}; a dataset that is mounted readwrite must lie where its path says`,
      );
    return realPath;
  };
}

const isInside = (base: string, path: string): boolean => path === base || path.startsWith(base === '/' ? '/' : `${base}/`);
