/**
 * Versions of datasets on this node: brought once, however many ask at once, and held while a task uses them.
 *
 * A version is here when `objects/{id}/v{n}` stands with the manifest that was asked for; there is no other state to keep.
 */
import type { DatasetSource } from '@berth/wire/dataset';
import { TaskFailure } from '../tools/failures.ts';
import type { Wanted } from './copy.ts';
import type { Evict } from './evict.ts';
import { keyOf, type Layout } from './layout.ts';
import { type Copied, startTransfer, type Transfer, type TransferDeps, type Watcher } from './transfer.ts';
import type { Versions } from './versions.ts';

/** It stands, and this process does not evict it until `release`. `copied` is null when it was here already. */
export type Held = { want: Wanted; copied: Pick<Copied, 'files' | 'bytes'> | null; release(): void };
export type Cache = {
  /**
   * TaskFailure dataset_not_ready, dataset_unreachable, dataset_moving, dataset_copy_failed, disk_full, no_room, no_share;
   * rejects with the signal's reason.
   */
  ensure(source: DatasetSource, watcher: Watcher, signal: AbortSignal): Promise<Held>;
  stop(): Promise<void>;
};
export type CacheDeps = { layout: Layout; versions: Versions; evict: Evict; holds: Holds; transfers: Transfers };

/** How often it may be gone, or another, when it has just been brought: each time somebody else was at work on it. */
const TRIES = 5;

export function createCache({ layout, versions, evict, holds, transfers }: CacheDeps): Cache {
  async function isHere(want: Wanted): Promise<boolean> {
    const there = await versions.get(want.dataset_id, want.version);
    if (there === null) return false;
    if (there.manifest_digest === want.manifest_digest) return true;
    // Another numbering (the control plane's database was restored), or a version that nothing is known of.
    if ((await evict.version(want.dataset_id, want.version)) !== null) return false;
    throw new TaskFailure(
      'dataset_copy_failed',
      `${layout.version(want.dataset_id, want.version)} holds something else than v${want.version} of ${want.name}, and is in use`,
    );
  }
  return {
    stop: () => transfers.stop(),
    async ensure(source, watcher, signal) {
      let want = wantedOf(source);
      const sum = { files: 0, bytes: 0 };
      let copied = false;
      for (let i = 0; i < TRIES; i += 1) {
        signal.throwIfAborted();
        // Looked at before it is held: what stands there may have to go.
        const here = await isHere(want);
        const release = holds.add(keyOf(want.dataset_id, want.version));
        if (here && (await versions.get(want.dataset_id, want.version)) !== null) {
          await versions.touch(want.dataset_id, want.version);
          return { want, copied: copied ? sum : null, release };
        }
        try {
          const arrived = await transfers.of(want).join(watcher, signal);
          copied = true;
          sum.files += arrived.files;
          sum.bytes += arrived.bytes;
          want = arrived.want;
        } finally {
          release();
        }
      }
      throw new TaskFailure('dataset_copy_failed', `${want.name} v${want.version} was taken away again each time it was there`);
    },
  };
}

function wantedOf({ dataset_id, name, nfs_path, version, manifest_digest }: DatasetSource): Wanted {
  if (version === null || manifest_digest === null) throw new TaskFailure('dataset_not_ready', name);
  return { dataset_id, name, nfs_path, version, manifest_digest };
}

/** What tasks of this process use: versions, or deployments. */
export type Holds = { add(key: string): () => void; has(key: string): boolean; all(): Set<string> };
export function createHolds(): Holds {
  const held = new Map<string, number>();
  return {
    has: (key) => held.has(key),
    all: () => new Set(held.keys()),
    add(key) {
      held.set(key, (held.get(key) ?? 0) + 1);
      let released = false;
      return () => {
        if (released) return;
        released = true;
        const left = (held.get(key) ?? 1) - 1;
        if (left > 0) held.set(key, left);
        else held.delete(key);
      };
    },
  };
}

/** One for each version that is under way. */
export type Transfers = {
  of(want: Wanted): Transfer;
  roots(datasetId: string): string[];
  stop(): Promise<void>;
};
export function createTransfers(deps: TransferDeps, onDone: (ended: Wanted) => void): Transfers {
  const running = new Map<string, Transfer>();
  const keyFor = (w: Wanted): string => `${keyOf(w.dataset_id, w.version)} ${w.manifest_digest}`;

  function of(want: Wanted): Transfer {
    const there = running.get(keyFor(want));
    if (there?.isEnding() === false) return there;
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

/** At most `most` at once, in the order of asking. */
export function createSlots(most: number): TransferDeps['slot'] {
  let free = most;
  const queue: (() => void)[] = [];
  return async (signal, work) => {
    signal.throwIfAborted();
    if (free === 0) await turn(queue, signal);
    else free -= 1;
    try {
      return await work();
    } finally {
      const next = queue.shift();
      if (next === undefined) free += 1;
      else next();
    }
  };
}

function turn(queue: (() => void)[], signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const begin = (): void => {
      signal.removeEventListener('abort', leave);
      resolve();
    };
    const leave = (): void => {
      const place = queue.indexOf(begin);
      if (place !== -1) queue.splice(place, 1);
      reject(signal.reason);
    };
    queue.push(begin);
    signal.addEventListener('abort', leave, { once: true });
  });
}
