/**
 * The running transfers of this process: one per version, shared by all tasks that wait for the
 * version.
 */
import { keyOf as versionKey } from './layout.ts';
import { startTransfer, type Transfer, type TransferDeps } from './transfer.ts';
import type { WantedVersion } from './wanted-version.ts';

export type Transfers = {
  /** Returns the running transfer of this version, or starts one. */
  of(want: WantedVersion): Transfer;
  /** Returns the manifest digests of the dataset's versions that are being copied. */
  digestsInCopy(datasetId: string): string[];
  stop(): Promise<void>;
};

export function createTransfers(
  deps: TransferDeps,
  onDone: (ended: WantedVersion) => void,
): Transfers {
  const running = new Map<string, Transfer>();
  const transferKey = (w: WantedVersion): string =>
    `${versionKey(w.dataset_id, w.version)} ${w.manifest_digest}`;

  function of(want: WantedVersion): Transfer {
    const current = running.get(transferKey(want));
    if (current?.isEnding() === false) return current;
    const keys = [transferKey(want)];
    // The source changed, so this transfer continues with `next`. Returns the transfer that already
    // copies `next`, or null.
    const transfer: Transfer = startTransfer(deps, want, (next) => {
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
