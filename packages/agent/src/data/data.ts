/**
 * Datasets on a deploy node, put together (docs/data.md).
 *
 *   deploy, sync ──> cache ──> transfer (shared) ──> copy rounds ──> versions          layout.ts: which files are where
 *      │                                  │
 *      └─ prepare: symlinks, the share     └─ room ──> evict ──> what nothing pins
 */
import { mkdir } from 'node:fs/promises';
import type { Logger } from '@berth/kit/log';
import type { Client } from '@berth/wire/client';
import type { Watermarks } from '@berth/wire/eviction';
import { createLocks } from '../locks.ts';
import type { ListOurs } from '../node-ids.ts';
import { untilAnswered } from '../retry.ts';
import type { StorageMeter } from '../storage.ts';
import { createRsync, type RsyncSettings } from '../tools/rsync.ts';
import { type Cache, createCache, createHolds, createSlots, createTransfers, type Transfers } from './cache.ts';
import { createCopyRate } from './copy-rate.ts';
import { createEvict } from './evict.ts';
import { createInventory, type Inventory } from './inventory.ts';
import { createSweepMounts, type SweepMounts } from './keep.ts';
import { createKept } from './kept.ts';
import { createLayout } from './layout.ts';
import { createMounts } from './mounts.ts';
import { createPrepare, type Prepare } from './prepare.ts';
import { createRescan } from './rescan.ts';
import { createMakeRoom } from './room.ts';
import { createFindSource } from './source.ts';
import type { CopyEnd } from './transfer.ts';
import { createTrees } from './trees.ts';
import { createTrim } from './trim.ts';
import { createVersions } from './versions.ts';
import { createWorkFolders } from './work-folders.ts';

export type DataOptions = {
  client: Client;
  storage: StorageMeter;
  ours: ListOurs;
  log: Logger;
  /** SVC_ROOT; made when it is not there. */
  root: string;
  /** DATASET_NFS_BASE_PATH. */
  share: string | undefined;
  /** Of this agent, over its restarts: whose mount folders are whose on a SVC_ROOT that several share. */
  agent: string;
  keepReleases: number;
  keepVersions: number;
  copiesAtOnce: number;
  onCopyEnded?: (ended: CopyEnd) => void;
  watermarks: Watermarks;
  rsync: RsyncSettings;
  /** The cache is another than it was. */
  onChange: () => void;
  /** How often folders of dead processes are searched for. Default 60 s. */
  tidyMs?: number;
  /** After how long without a heartbeat a process that cannot be seen from here counts as dead. Default 2 min. */
  silentMs?: number;
};
export type Data = {
  cache: Cache;
  prepare: Prepare;
  inventory: Inventory;
  sweepMounts: SweepMounts;
  /** At start, once the engine can be asked: what earlier processes left. */
  tidy(signal: AbortSignal): Promise<void>;
  stop(): Promise<void>;
};

const TREES_MS = 60_000;
const TIDY_MS = 60_000;

export async function createData(options: DataOptions): Promise<Data> {
  const { client, storage, log, rsync } = options;
  const layout = createLayout(options.root);
  await mkdir(layout.mounts, { recursive: true });
  for (const folder of [layout.objects, layout.staging, layout.trash]) await mkdir(folder, { recursive: true, mode: 0o700 });
  const work = await createWorkFolders(layout, options.silentMs === undefined ? {} : { silentMs: options.silentMs });
  const versions = createVersions(layout);
  const mounts = createMounts(layout, work);
  const trees = createTrees(layout, async (id, digests, signal) => {
    const body = { digests: [...digests] };
    const call = () => client.call('agentTrees', { params: { id }, body, signal, timeoutMs: TREES_MS });
    return (await untilAnswered(call, { signal })).objects;
  });
  const holds = createHolds();
  const isHeld = holds.has;
  // The two know each other: what is being copied keeps its tree objects when something else is evicted.
  let transfers: Transfers | null = null;
  const evict = createEvict({
    layout,
    work,
    versions,
    mounts,
    trees,
    log,
    isHeld,
    rootsUnderWay: (id) => transfers?.roots(id) ?? [],
    onChange: options.onChange,
  });
  const atWork = createHolds();
  const sweepMounts = createSweepMounts({
    mounts,
    work,
    agent: options.agent,
    ours: options.ours,
    keepReleases: options.keepReleases,
    atWork,
  });
  const kept = createKept({ client, mounts, versions, agent: options.agent, ours: options.ours, atWork, log });
  const makeRoom = createMakeRoom({
    storage,
    versions,
    mounts,
    evict,
    sweepMounts,
    kept,
    locks: createLocks(),
    isHeld,
    watermarks: options.watermarks,
    log,
  });
  const findSource = createFindSource(options.share, rsync.inherit);
  const trim = createTrim({ versions, mounts, evict, storage, keep: options.keepVersions, log });
  // Nobody who waits for a copy waits for this too.
  let trimming = Promise.resolve();
  const rate = await createCopyRate(layout.copyRate);
  transfers = createTransfers(
    {
      layout,
      versions,
      trees,
      makeRoom,
      findSource,
      rsync: createRsync(rsync),
      inherit: rsync.inherit,
      staging: work.staging,
      storage,
      rescan: createRescan(client),
      copyRate: rate,
      onEnded: (ended) => options.onCopyEnded?.(ended),
      slot: createSlots(options.copiesAtOnce),
    },
    (ended) => {
      trimming = trimming.then(() => trim(ended.dataset_id, ended.version));
      options.onChange();
    },
  );
  const cache = createCache({ layout, versions, evict, holds, transfers });
  const prepare = createPrepare({ cache, mounts, versions, work, findSource, atWork, agent: options.agent });
  // At the start a process of before may still seem to live: a machine that restarted, a container beside us.
  let tidying: Promise<void> | null = null;
  const tidyAgain = (): void => {
    tidying ??= evict
      .leftovers()
      .catch((err: unknown) => log.warn({ err }, 'cannot remove what dead processes left of their copies; will retry'))
      .finally(() => (tidying = null));
  };
  const timer = setInterval(tidyAgain, options.tidyMs ?? TIDY_MS).unref();
  return {
    cache,
    prepare,
    inventory: createInventory({ versions, mounts, evict, kept, storage, rate, log }),
    sweepMounts,
    async tidy(signal) {
      await evict.leftovers();
      await sweepMounts(signal);
    },
    async stop() {
      await cache.stop();
      await trimming;
      clearInterval(timer);
      await tidying;
      work.stop();
    },
  };
}
