/**
 * The running transfers of this process: one per version, shared by all tasks that wait for the
 * version.
 */
import { createLimit } from '@berth/kit/limit';
import { keyOf as versionKey } from './layout.ts';
import { type CopyOptions, startTransfer, type Transfer, type TransferDeps } from './transfer.ts';
import type { WantedVersion } from './wanted-version.ts';

export type Transfers = {
  /** Returns the running transfer of this version, or starts one. */
  of(want: WantedVersion, options?: CopyOptions): Transfer;
  /** Returns the manifest digests of the dataset's versions that are being copied. */
  digestsInCopy(datasetId: string): string[];
  stop(): Promise<void>;
};

export function createTransfers(
  deps: TransferDeps,
  onDone: (ended: WantedVersion) => void,
): Transfers {
  const running = new Map<string, Transfer>();
  // The control plane requests one background copy at a time, so a deployment that joins one does
  // not wait for another one.
  const inBackground = createLimit(1);
  const transferKey = (w: WantedVersion): string =>
    `${versionKey(w.dataset_id, w.version)} ${w.manifest_digest}`;

  function of(want: WantedVersion, options: CopyOptions = {}): Transfer {
    const current = running.get(transferKey(want));
    if (current?.isEnding() === false) return current;
    const keys = [transferKey(want)];
    // The source changed, so this transfer continues with `next`. Returns the transfer that already
    // copies `next`, or null.
    const ofTransfer = options.background === true ? { ...deps, limit: inBackground } : deps;
    const transfer: Transfer = startTransfer(ofTransfer, want, (next) => {
      const other = running.get(transferKey(next));
      if (other?.isEnding() === false && other !== transfer) return other;
      keys.push(transferKey(next));
      running.set(transferKey(next), transfer);
      return null;
    });
    running.set(transferKey(want), transfer);
    void transfer.done.then(() => {
      for (const key of keys) if (running.get(key) === transfer) running.delete(key);
      onDone(transfer.want());
    });
    return transfer;
  }
  return {
    of,
    digestsInCopy: (datasetId) =>
      [...running.values()]
        .map((t) => t.want())
        .filter((w) => w.dataset_id === datasetId)
        .map((w) => w.manifest_digest),
    async stop() {
      await Promise.all([...running.values()].map((t) => t.done));
    },
  };
}
