/**
 * Requests a scan of a dataset whose files changed during the copy, and waits for the new version.
 */
import type { DatasetStanding } from '@berth/wire/dataset';
import { ApiError, type Client } from '@berth/wire/client';
import { retryUntilAnswered } from '../link/retry.ts';
import { pause } from '../stopped.ts';
import { TaskFailure } from '../failures.ts';

export type Rescan = (datasetId: string, signal: AbortSignal) => Promise<DatasetStanding>;

const WAIT_MS = 10 * 60_000;
const POLL_MS = [250, 500, 1_000, 2_000] as const;

/**
 * Requests a scan, waits until it has finished and returns the dataset. Throws TaskFailure
 * dataset_unreachable (the scan could not read the folder, or found it empty), dataset_moving (no
 * scan finished within `waitMs`), dataset_copy_failed (the dataset was deleted).
 */
export function createRescan(client: Client, waitMs = WAIT_MS): Rescan {
  return async (datasetId, signal) => {
    const params = { id: datasetId };
    const until = performance.now() + waitMs;
    try {
      const before = await retryUntilAnswered(
        () => client.call('agentRescan', { params, signal }),
        { signal },
      );
      for (let i = 0; performance.now() < until; i += 1) {
        await pause(POLL_MS[i] ?? POLL_MS[3], signal);
        const current = await retryUntilAnswered(
          () => client.call('agentDataset', { params, signal }),
          { signal },
        );
        if (current.scanning || current.last_scanned_at === before.last_scanned_at) continue;
        if (current.status === 'unreachable' || current.status === 'suspicious')
          throw new TaskFailure(
            'dataset_unreachable',
            `${current.name}: ${current.problem ?? current.status}`,
          );
        return current;
      }
    } catch (error) {
      if (error instanceof ApiError && error.status === 404)
        throw new TaskFailure(
          'dataset_copy_failed',
          'the control plane does not know the dataset; it was deleted',
          { cause: error },
        );
      throw error;
    }
    throw new TaskFailure(
      'dataset_moving',
      `the rescan did not finish within ${Math.round(waitMs / 1000)} s`,
    );
  };
}
