/**
 * Finds the folder of a dataset on the share. A child process with a deadline does the work,
 * because a hanging share would block the agent's own threads.
 */
import { join } from 'node:path';
import { exec } from '@berth/kit/exec';
import { AbandonedError, orAbandon } from '../abandon.ts';
import { outputTail, TaskFailure } from '../failures.ts';

/**
 * Returns the path of the folder. With `plain`, refuses symlinks in the path below the root of the
 * share.
 */
export type FindSource = (nfsPath: string, signal: AbortSignal, plain?: boolean) => Promise<string>;

const FIND_MS = 15_000;

/**
 * Returns the real path. Throws TaskFailure no_share, and dataset_unreachable if the folder does
 * not exist, is not a folder, lies outside the share, is not plain, or if the share does not
 * answer.
 */
export function createFindSource(
  base: string | undefined,
  inherit: NodeJS.ProcessEnv,
  findMs = FIND_MS,
): FindSource {
  return async (nfsPath, signal, plain = false) => {
    if (base === undefined) throw new TaskFailure('no_share', '');
    const path = `${base}/${nfsPath}`;
    // The trailing `/.` makes realpath fail on anything except a folder.
    const work = exec(['realpath', '--canonicalize-existing', '--zero', '--', base, `${path}/.`], {
      env: { ...inherit, LC_ALL: 'C' },
      signal,
      timeoutMs: findMs,
      killAfterMs: 500,
    });
    const result = await orAbandon(work, signal, findMs + 1_500, 1_500).catch((error: unknown) => {
      if (error instanceof AbandonedError) return null;
      throw error;
    });
    signal.throwIfAborted();
    if (result === null || result.ended === 'timeout')
      throw new TaskFailure(
        'dataset_unreachable',
        `${path} did not answer within ${Math.round(findMs / 1000)} s`,
      );
    if (result.code !== 0) throw new TaskFailure('dataset_unreachable', outputTail(result.stderr));
    const [realBase, realPath] = result.stdout.split('\0');
    if (realBase === undefined || realPath === undefined || !isInside(realBase, realPath))
      throw new TaskFailure(
        'dataset_unreachable',
        `${path} leads outside the shared storage, to ${realPath ?? 'an unknown path'}`,
      );
    if (plain && realPath !== join(realBase, nfsPath))
      throw new TaskFailure(
        'dataset_unreachable',
        `${path} contains a symlink and leads to ${realPath}; the path of a readwrite dataset ` +
          'must contain none',
      );
    return realPath;
  };
}

const isInside = (base: string, path: string): boolean =>
  path === base || path.startsWith(base === '/' ? '/' : `${base}/`);
