/** The running transfers of this process: one for each version, however many tasks wait for it. */
import { keyOf } from './layout.ts';
import { startTransfer, type Transfer, type TransferDeps } from './transfer.ts';
import type { WantedVersion } from './wanted-version.ts';

export type Transfers = {
  /** Returns the running transfer of this version, or starts one. */
  of(want: WantedVersion): Transfer;
  /** Manifest digests of the dataset's versions that are being copied. */
  roots(datasetId: string): string[];
  stop(): Promise<void>;
};

export function createTransfers(deps: TransferDeps, onDone: (ended: WantedVersion) => void): Transfers {
  const running = new Map<string, Transfer>();
  const keyFor = (w: WantedVersion): string => `${keyOf(w.dataset_id, w.version)} ${w.manifest_digest}`;

  function of(want: WantedVersion): Transfer {
    const current = running.get(keyFor(want));
    if (current?.isEnding() === false) return current;
    const keys = [keyFor(want)];
    const transfer: Transfer = startTransfer(deps, want, (next) => {
      const other = running.get(keyFor(next));
      if (other?.isEnding() === false && other !== transfer) return other;
      keys.push(keyFor(next));
      running.set(keyFor(next), transfer);
      return null;
    });
    running.set(keyFor(want), transfer);
    void transfer.done.then(() => {
      for (const key of keys) if (running.get(key) === transfer) running.delete(key);
      onDone(transfer.want());
    });
    return transfer;
  }
  return {
    of,
    roots: (datasetId) =>
      [...running.values()]
        .map((t) => t.want())
        .filter((w) => w.dataset_id === datasetId)
        .map((w) => w.manifest_digest),
    async stop() {
      await Promise.all([...running.values()].map((t) => t.done));
    },
  };
}
