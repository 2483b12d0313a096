/**
 * Reports the volumes on this node with their sizes. Deletes or sets aside the volumes that the
 * control plane names, unless a container mounts them. Counts sizes in the background, because `du`
 * of a large volume takes minutes.
 */
import { readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { exec } from '@berth/kit/exec';
import type { Logger } from '@berth/kit/log';
import { isTemporary } from '@berth/kit/write-file';
import { LABELS } from '@berth/wire/vocabulary';
import { MAX_REPORTED_COPIES, type ReportedCopy } from '@berth/wire/volume';
import type { ListNodeContainers } from '../../engine/node-ids.ts';
import { makePrivate, nullIfMissing, removeTree, writeWhole } from '../../file-system.ts';
import { readMark, visible } from './volumes.ts';

export type VolumeReport = { volumes: ReportedCopy[]; removed_volumes: string[] };
export type VolumeInventory = {
  /**
   * Returns the report; undefined if the disk does not answer: the registration then omits the
   * volumes.
   */
  reported(): Promise<VolumeReport | undefined>;
  /**
   * Deletes copies, and moves copies that a move left behind to .left, where no task mounts them.
   * Runs in the background.
   */
  work(copies: { remove: readonly string[]; setAside: readonly string[] }): void;
  /** Resolves when the work in the background has finished. */
  stop(): Promise<void>;
};
export type VolumeInventoryDeps = {
  root: string;
  listContainers: ListNodeContainers;
  inherit: NodeJS.ProcessEnv;
  onChange: () => void;
  log: Logger;
  countEveryMs?: number;
};

type Place = { path: string; project_id: string; inPlace: boolean };

const DISK_TIMEOUT_MS = 10_000;
const COUNT_EVERY_MS = 10 * 60_000;
const DU_MS = 10 * 60_000;
const MAX_FOLDERS = 200;
/**
 * Time in ms during which the agent confirms a deletion, because the control plane can be down
 * meanwhile.
 */
const CONFIRMED_MS = 30 * 86_400_000;

/** State of the inventory: the folders and the work in the background. */
type Counting = VolumeInventoryDeps & {
  countEveryMs: number;
  folder: string;
  /** Folder of copies that are being deleted. */
  removing: string;
  /** Folder of copies that a move left behind. */
  setAside: string;
  /**
   * Folder with an empty file for each deleted copy. It is on the disk of the volumes: if that disk
   * is not mounted, its copies must not look deleted.
   */
  removed: string;
  ending: AbortController;
  /** Size in bytes by path, from the last count. */
  sizes: Map<string, number>;
  /** Time of the last count on the monotonic clock in ms. */
  countedAt: number;
  counting: Promise<void> | null;
  working: Promise<void> | null;
};

export function createVolumeInventory(deps: VolumeInventoryDeps): VolumeInventory {
  const folder = join(deps.root, 'volumes');
  const state: Counting = {
    ...deps,
    countEveryMs: deps.countEveryMs ?? COUNT_EVERY_MS,
    folder,
    removing: join(folder, '.removing'),
    setAside: join(folder, '.left'),
    removed: join(folder, '.removed'),
    ending: new AbortController(),
    sizes: new Map(),
    countedAt: Number.NEGATIVE_INFINITY,
    counting: null,
    working: null,
  };
  return {
    reported() {
      countInBackground(state);
      return reportInTime(state);
    },
    work({ remove, setAside }) {
      if (remove.length + setAside.length === 0) return;
      state.working ??= deleteAndSetAside(state, remove, setAside)
        .catch((err: unknown) => {
          if (!state.ending.signal.aborted)
            state.log.warn({ err }, 'deleting volumes failed; will retry');
        })
        .finally(() => (state.working = null));
    },
    async stop() {
      state.ending.abort(new Error('the agent stops'));
      await Promise.all([state.counting, state.working]);
    },
  };
}

async function reportInTime(state: Counting): Promise<VolumeReport | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>(
    (resolve) => (timer = setTimeout(() => resolve(undefined), DISK_TIMEOUT_MS)),
  );
  try {
    return await Promise.race([report(state), late]);
  } catch (err) {
    state.log.warn({ err }, 'listing volumes failed; registering without them');
    return undefined;
  } finally {
    clearTimeout(timer);
  }
}

async function report(state: Counting): Promise<VolumeReport> {
  // Read the confirmations first: a copy that is deleted meanwhile is then in one of the two lists.
  const removed_volumes = await removedCopies(state);
  return { volumes: await listCopies(state), removed_volumes };
}

const removedCopies = async ({ removed }: Counting): Promise<string[]> =>
  ((await nullIfMissing(readdir(removed))) ?? [])
    .filter((name) => !isTemporary(name))
    .toSorted()
    .slice(0, MAX_REPORTED_COPIES);

async function listCopies(state: Counting): Promise<ReportedCopy[]> {
  const copies: ReportedCopy[] = [];
  for (const [copy, { path, project_id, inPlace }] of await placesByCopy(state)) {
    const names = (await visible(path)).slice(0, MAX_FOLDERS);
    copies.push({
      copy,
      project_id,
      in_place: inPlace,
      folders: names.map((name) => ({ name, bytes: state.sizes.get(join(path, name)) ?? null })),
    });
  }
  return copies.toSorted((a, b) => (a.copy < b.copy ? -1 : 1)).slice(0, MAX_REPORTED_COPIES);
}

async function placesByCopy({ folder, setAside }: Counting): Promise<Map<string, Place>> {
  const places = new Map<string, Place>();
  for (const parent of [folder, setAside])
    for (const name of await visible(parent)) {
      const path = join(parent, name);
      // Leave out a damaged mark: deployments fail because of it anyway.
      const mark = await readMark(path).catch(() => null);
      if (mark !== null)
        places.set(mark.copy, { path, project_id: mark.project_id, inPlace: parent === folder });
    }
  return places;
}

function countInBackground(state: Counting): void {
  if (state.counting !== null || performance.now() - state.countedAt <= state.countEveryMs) return;
  state.countedAt = performance.now();
  state.counting = countSizes(state)
    .catch((err: unknown) => {
      if (!state.ending.signal.aborted)
        state.log.warn({ err }, 'counting the sizes of volumes failed');
    })
    .finally(() => (state.counting = null));
}

async function countSizes(state: Counting): Promise<void> {
  const sizes = new Map<string, number>();
  for (const { path } of (await placesByCopy(state)).values())
    for (const name of await visible(path)) {
      const bytes = await sizeOf(join(path, name), state);
      if (bytes !== null) sizes.set(join(path, name), bytes);
    }
  const hasNewFolder = [...sizes.keys()].some((path) => !state.sizes.has(path));
  state.sizes = sizes;
  if (hasNewFolder) state.onChange();
}

async function sizeOf(path: string, { inherit, ending }: Counting): Promise<number | null> {
  const argv = ['du', '--summarize', '--one-file-system', '--block-size=1', '--', path];
  const { stdout } = await exec(argv, {
    env: { ...inherit, LC_ALL: 'C' },
    timeoutMs: DU_MS,
    signal: ending.signal,
  });
  const bytes = /^(\d+)\t/.exec(stdout)?.[1];
  return bytes === undefined ? null : Number(bytes);
}

async function deleteAndSetAside(
  state: Counting,
  remove: readonly string[],
  setAside: readonly string[],
): Promise<void> {
  for (const path of [state.removing, state.setAside, state.removed]) await makePrivate(path);
  await dropOldConfirmations(state);
  const places = await placesByCopy(state);
  for (const copy of [...setAside, ...remove]) {
    const place = places.get(copy);
    const isKept = setAside.includes(copy);
    if (place === undefined || (isKept && !place.inPlace)) continue;
    if (await isMounted(state, copy)) continue;
    await rename(place.path, join(isKept ? state.setAside : state.removing, copy));
    if (!isKept) await writeWhole(join(state.removed, copy), '');
    state.log.info(
      { copy, project: place.project_id },
      isKept ? 'volumes set aside: their project uses another copy' : 'volumes deleted',
    );
  }
  // Also finish deletions that a previous process began.
  for (const name of (await nullIfMissing(readdir(state.removing))) ?? [])
    await removeTree(join(state.removing, name));
  state.onChange();
}

async function dropOldConfirmations({ removed }: Counting): Promise<void> {
  for (const name of (await nullIfMissing(readdir(removed))) ?? []) {
    const path = join(removed, name);
    if (Date.now() - (await stat(path)).mtimeMs > CONFIRMED_MS) await rm(path, { force: true });
  }
}

async function isMounted(
  { listContainers, ending, log }: Counting,
  copy: string,
): Promise<boolean> {
  const users = await listContainers({ [LABELS.volumes]: copy }, ending.signal);
  if (users.length === 0) return false;
  log.warn(
    { copy, containers: users.map((c) => c.name) },
    'volumes are not deleted or set aside: a container still mounts them',
  );
  return true;
}
