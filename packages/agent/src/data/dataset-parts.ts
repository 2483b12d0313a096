/**
 * Wires the dataset parts of a deploy node (docs/data.md). Read this file first: the other files of
 * this folder receive each other as parameters, and only this file shows which one gets which.
 *
 *   deploy, sync ──> cache ──> transfer (shared by tasks) ──> copy rounds ──> versions
 *      │                          │
 *      └─ prepare: symlinks,      └─ disk/eviction ──> evict ──> versions that no symlink pins
 *         the share
 *   layout.ts: paths of all files
 *
 * volumes/ manages the volumes of projects, which are not datasets.
 */
import { createLimit } from '@berth/kit/limit';
import { defined } from '@berth/kit/defined';
import type { Logger } from '@berth/kit/log';
import type { Client } from '@berth/wire/client';
import type { Watermarks } from '@berth/wire/eviction';
import { createLocks } from '../locks.ts';
import type { ListNodeContainers } from '../engine/node-ids.ts';
import { retryUntilAnswered } from '../link/retry.ts';
import { createRoom, type DatasetSpace, type Room } from '../disk/eviction.ts';
import type { EngineSpace } from '../disk/engine-space.ts';
import type { StorageMeter } from '../disk/storage.ts';
import { createRsync, type RsyncSettings } from './rsync.ts';
import { createRefCounts } from '@berth/kit/ref-count';
import { type Cache, createCache } from './cache.ts';
import { createCopyRate } from './copy-rate.ts';
import { makePrivate } from '../file-system.ts';
import { createEvict, type Evict } from './evict.ts';
import { createInventory, type Inventory } from './inventory.ts';
import { createSweepMounts, type SweepMounts, type SweepMountsDeps } from './sweep-mounts.ts';
import { createRecopyable } from './recopyable.ts';
import { createLayout, type Layout } from './layout.ts';
import { createMounts } from './mounts.ts';
import { createPins, type Pins } from './pins.ts';
import { createPrepare, type Prepare } from './prepare.ts';
import { createRescan } from './rescan.ts';
import { createDatasetSpace } from './evictable-datasets.ts';
import { createFindSource } from './source.ts';
import type { CopyEnd } from './transfer.ts';
import { createTransfers, type Transfers } from './transfers.ts';
import { createTrees } from './trees.ts';
import { createTrim } from './trim.ts';
import { createVersions } from './versions.ts';
import { createWorkFolders } from './work-folders.ts';

export type DatasetPartsOptions = {
  client: Client;
  storage: StorageMeter;
  listContainers: ListNodeContainers;
  listRuns: SweepMountsDeps['listRuns'];
  log: Logger;
  /** The setting SVC_ROOT; the folder is created if it does not exist. */
  root: string;
  /** The setting DATASET_NFS_BASE_PATH. */
  share: string | undefined;
  /**
   * The agent's id, which survives a restart; it marks this agent's mount folders on a shared
   * SVC_ROOT.
   */
  agent: string;
  keepReleases: () => number;
  keepVersions: number;
  copiesAtOnce: number;
  /** Called after each copy of a version, with its result. */
  onCopyEnded?: (ended: CopyEnd) => void;
  watermarks: Watermarks;
  /**
   * Images and build cache, which share the disk budget. If absent, the agent does not evict them.
   */
  engine?: EngineSpace;
  rsync: RsyncSettings;
  /** Called when the set of cached versions has changed. */
  onChange: () => void;
  /** Interval in ms between checks for folders of dead processes. Default 60 s. */
  cleanupMs?: number;
  /**
   * A process in another pid namespace counts as dead after this time in ms without a heartbeat.
   * Default 2 min.
   */
  silentMs?: number;
};
export type DatasetParts = {
  room: Room;
  cache: Cache;
  prepare: Prepare;
  pins: Pins;
  inventory: Inventory;
  sweepMounts: SweepMounts;
  /**
   * Call this once at start, when the engine answers: removes what previous processes left behind.
   */
  removeLeftovers(signal: AbortSignal): Promise<void>;
  stop(): Promise<void>;
};

const TREES_MS = 60_000;
const CLEANUP_MS = 60_000;

async function makeFolders({ mounts, objects, pins, staging, trash }: Layout): Promise<void> {
  for (const folder of [mounts, objects, pins, staging, trash]) await makePrivate(folder);
}

export async function createDatasetParts(options: DatasetPartsOptions): Promise<DatasetParts> {
  const { client, storage, log, rsync, listContainers, listRuns } = options;
  const layout = createLayout(options.root);
  await makeFolders(layout);
  const work = await createWorkFolders(layout, defined({ silentMs: options.silentMs }));
  const versions = createVersions(layout);
  const pins = await createPins(layout, options.agent);
  const mounts = createMounts(layout, work, pins);
  const trees = createTrees(layout, fetchTrees(client));
  const protectedVersions = createRefCounts();
  const isProtected = protectedVersions.has;
  // Eviction and transfers depend on each other: eviction must keep the tree objects of a running
  // transfer.
  let transfers: Transfers | null = null;
  const evict = createEvict({
    layout,
    work,
    versions,
    mounts,
    trees,
    log,
    isProtected,
    rootsBeingCopied: (id) => transfers?.digestsInCopy(id) ?? [],
    onChange: options.onChange,
  });
  const deploymentsInUse = createRefCounts();
  const sweepMounts = createSweepMounts({
    mounts,
    work,
    agent: options.agent,
    listContainers,
    listRuns,
    keepReleases: options.keepReleases,
    deploymentsInUse,
  });
  const recopyableVersions = createRecopyable({
    client,
    mounts,
    pins,
    versions,
    agent: options.agent,
    listContainers,
    deploymentsInUse,
    log,
  });
  const room = roomOf(
    options,
    createDatasetSpace({
      versions,
      mounts,
      evict,
      sweepMounts,
      recopyableVersions,
      isProtected,
      log,
    }),
  );
  const findSource = createFindSource(options.share, rsync.inherit);
  const trim = createTrim({
    versions,
    mounts,
    evict,
    storage,
    keepVersions: options.keepVersions,
    log,
  });
  // Trimming runs in the background after a copy, so that tasks do not wait for it.
  let trimming = Promise.resolve();
  const rate = await createCopyRate(layout.copyRate);
  transfers = createTransfers(
    {
      layout,
      versions,
      trees,
      makeRoom: room.make,
      findSource,
      rsync: createRsync(rsync),
      inherit: rsync.inherit,
      staging: work.staging,
      storage,
      rescan: createRescan(client),
      copyRate: rate,
      onEnded: (ended) => options.onCopyEnded?.(ended),
      limit: createLimit(options.copiesAtOnce),
    },
    (ended) => {
      trimming = trimming.then(() => trim(ended.dataset_id, ended.version));
      options.onChange();
    },
  );
  const cache = createCache({ layout, versions, evict, protectedVersions, transfers });
  const prepare = createPrepare({
    cache,
    mounts,
    versions,
    work,
    findSource,
    deploymentsInUse,
    agent: options.agent,
  });
  const leftovers = sweepLeftovers(evict, options);
  return {
    room,
    cache,
    prepare,
    pins,
    inventory: createInventory({ versions, mounts, evict, recopyableVersions, storage, rate, log }),
    sweepMounts,
    async removeLeftovers(signal) {
      await evict.removeLeftovers();
      await sweepMounts(signal);
    },
    async stop() {
      await cache.stop();
      await trimming;
      await leftovers.stop();
      work.stop();
    },
  };
}

const roomOf = (
  { storage, engine, watermarks, log }: DatasetPartsOptions,
  datasets: DatasetSpace,
): Room =>
  createRoom({
    storage,
    datasets,
    engine: engine ?? null,
    engineMax: null,
    locks: createLocks(),
    watermarks,
    log,
  });

/** Fetches tree objects from the control plane, with retries until it answers. */
const fetchTrees =
  (client: Client): Parameters<typeof createTrees>[1] =>
  async (id, digests, signal) => {
    const body = { digests: [...digests] };
    const call = () =>
      client.call('agentTrees', { params: { id }, body, signal, timeoutMs: TREES_MS });
    return (await retryUntilAnswered(call, { signal })).objects;
  };

/**
 * Removes leftovers of dead processes periodically. One check at start is not enough: after a
 * reboot, or if another container runs on this machine, a dead process can still look alive.
 */
function sweepLeftovers(
  evict: Pick<Evict, 'removeLeftovers'>,
  { cleanupMs = CLEANUP_MS, log }: DatasetPartsOptions,
): { stop(): Promise<void> } {
  let sweeping: Promise<void> | null = null;
  const sweep = (): void => {
    sweeping ??= evict
      .removeLeftovers()
      .catch((err: unknown) =>
        log.warn({ err }, 'removing the leftover copies of dead processes failed; will retry'),
      )
      .finally(() => (sweeping = null));
  };
  const timer = setInterval(sweep, cleanupMs).unref();
  return {
    async stop() {
      clearInterval(timer);
      await sweeping;
    },
  };
}
