/** When the source moved on while it was copied: have it scanned, and wait for the version that it has become. */
import type { DatasetStanding } from '@berth/wire/dataset';
import { ApiError, type Client } from '@berth/wire/client';
import { untilAnswered } from '../retry.ts';
import { pause } from '../stopped.ts';
import { TaskFailure } from '../tools/failures.ts';

export type Rescan = (datasetId: string, signal: AbortSignal) => Promise<DatasetStanding>;

const WAIT_MS = 10 * 60_000;
const LOOK_MS = [250, 500, 1_000, 2_000] as const;

/**
 * The dataset after a scan that began after the call. TaskFailure dataset_unreachable (the scan could not read it, or found it
 * emptied), dataset_moving (no scan was done in time), dataset_copy_failed (the dataset is gone).
 */
export function createRescan(client: Client, waitMs = WAIT_MS): Rescan {
  return async (datasetId, signal) => {
    const params = { id: datasetId };
    const until = Date.now() + waitMs;
    try {
      const asked = await untilAnswered(() => client.call('agentRescan', { params, signal }), { signal });
      for (let i = 0; Date.now() < until; i += 1) {
        await pause(LOOK_MS[i] ?? LOOK_MS[3], signal);
        const now = await untilAnswered(() => client.call('agentDataset', { params, signal }), { signal });
        if (now.scanning || now.last_scanned_at === asked.last_scanned_at) continue;
        if (now.status === 'unreachable' || now.status === 'suspicious')
          throw new TaskFailure('dataset_unreachable', `${now.name}: ${now.problem ?? now.status}`);
        return now;
      }
    } catch (error) {
      if (error instanceof ApiError && error.status === 404)
        throw new TaskFailure('dataset_copy_failed', 'the dataset is not known any more', { cause: error });
      throw error;
    }
    throw new TaskFailure('dataset_moving', `it was not scanned again within ${Math.round(waitMs / 1000)} s`);
  };
}
