/**
 * Reports the volumes on this node with their sizes, and deletes or sets aside those that the
 * control plane names, unless a container mounts them. Sizes are counted in the background, because
 * `du` of a large volume takes minutes.
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
  /** Undefined if the disk does not answer: the report then leaves the volumes out. */
  reported(): Promise<VolumeReport | undefined>;
  /**
   * Deletes copies, and moves copies that a move left behind to .left, where no task mounts them.
   * In the background.
   */
  work(copies: { remove: readonly string[]; setAside: readonly string[] }): void;
  /** Resolves when running work has ended. */
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
/** How long the agent confirms a deletion. The control plane may be down meanwhile. */
const CONFIRMED_MS = 30 * 86_400_000;

export function createVolumeInventory(deps: VolumeInventoryDeps): VolumeInventory {
  const { listContainers, inherit, onChange, log, countEveryMs = COUNT_EVERY_MS } = deps;
  const folder = join(deps.root, 'volumes');
  const removing = join(folder, '.removing');
  const left = join(folder, '.left');
  /**
   * An empty file for each copy that was deleted, on the disk of the volumes: a disk that is not
   * mounted must not look like one on which the copies were deleted.
   */
  const removed = join(folder, '.removed');
  const ending = new AbortController();
  /** Bytes by path, from the last count. */
  let sizes = new Map<string, number>();
  let countedAt = Number.NEGATIVE_INFINITY;
  let counting: Promise<void> | null = null;
  let deleting: Promise<void> | null = null;

  /** Paths of the copies by their ids. */
  async function places(): Promise<Map<string, Place>> {
    const found = new Map<string, Place>();
    for (const parent of [folder, left])
      for (const name of await visible(parent)) {
        const path = join(parent, name);
        // A damaged mark fails deployments; a report leaves it out.
        const mark = await readMark(path).catch(() => null);
        if (mark !== null)
          found.set(mark.copy, { path, project_id: mark.project_id, inPlace: parent === folder });
      }
    return found;
  }

  async function list(): Promise<ReportedCopy[]> {
    const copies: ReportedCopy[] = [];
    for (const [copy, { path, project_id, inPlace }] of await places()) {
      const names = (await visible(path)).slice(0, MAX_FOLDERS);
      copies.push({
        copy,
        project_id,
        in_place: inPlace,
        folders: names.map((name) => ({ name, bytes: sizes.get(join(path, name)) ?? null })),
      });
    }
    return copies.toSorted((a, b) => (a.copy < b.copy ? -1 : 1)).slice(0, MAX_REPORTED_COPIES);
  }

  const removedCopies = async (): Promise<string[]> =>
    ((await nullIfMissing(readdir(removed))) ?? [])
      .filter((name) => !isTemporary(name))
      .toSorted()
      .slice(0, MAX_REPORTED_COPIES);

  async function dropOldConfirmations(): Promise<void> {
    for (const name of (await nullIfMissing(readdir(removed))) ?? []) {
      const path = join(removed, name);
      if (Date.now() - (await stat(path)).mtimeMs > CONFIRMED_MS) await rm(path, { force: true });
    }
  }

  async function count(): Promise<void> {
    const counted = new Map<string, number>();
    for (const { path } of (await places()).values())
      for (const name of await visible(path)) {
        const argv = [
          'du',
          '--summarize',
          '--one-file-system',
          '--block-size=1',
          '--',
          join(path, name),
        ];
        const { stdout } = await exec(argv, {
          env: { ...inherit, LC_ALL: 'C' },
          timeoutMs: DU_MS,
          signal: ending.signal,
        });
        const bytes = /^(\d+)\t/.exec(stdout)?.[1];
        if (bytes !== undefined) counted.set(join(path, name), Number(bytes));
      }
    const isNew = [...counted].some(([path]) => !sizes.has(path));
    sizes = counted;
    if (isNew) onChange();
  }

  async function doAll(remove: readonly string[], setAside: readonly string[]): Promise<void> {
    for (const path of [removing, left, removed]) await makePrivate(path);
    await dropOldConfirmations();
    const here = await places();
    for (const copy of [...setAside, ...remove]) {
      const place = here.get(copy);
      const isKept = setAside.includes(copy);
      if (place === undefined || (isKept && !place.inPlace)) continue;
      const users = await listContainers({ [LABELS.volumes]: copy }, ending.signal);
      if (users.length > 0) {
        log.warn(
          { copy, containers: users.map((c) => c.name) },
          'volumes are not deleted or set aside: a container still mounts them',
        );
        continue;
      }
      await rename(place.path, join(isKept ? left : removing, copy));
      if (!isKept) await writeWhole(join(removed, copy), '');
      log.info(
        { copy, project: place.project_id },
        isKept ? 'volumes set aside: their project uses another copy' : 'volumes deleted',
      );
    }
    // Also what an earlier process left there.
    for (const name of (await nullIfMissing(readdir(removing))) ?? [])
      await removeTree(join(removing, name));
    onChange();
  }

  return {
    async reported() {
      if (counting === null && performance.now() - countedAt > countEveryMs) {
        countedAt = performance.now();
        counting = count()
          .catch(
            (err: unknown) =>
              void (
                ending.signal.aborted || log.warn({ err }, 'counting the sizes of volumes failed')
              ),
          )
          .finally(() => (counting = null));
      }
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<undefined>(
        (resolve) => (timer = setTimeout(() => resolve(undefined), DISK_TIMEOUT_MS)),
      );
      try {
        // The confirmations first: a copy that is deleted meanwhile is in one of both.
        return await Promise.race([
          removedCopies().then(async (gone) => ({ volumes: await list(), removed_volumes: gone })),
          late,
        ]);
      } catch (err) {
        log.warn({ err }, 'listing volumes failed; registering without them');
        return undefined;
      } finally {
        clearTimeout(timer);
      }
    },
    work({ remove, setAside }) {
      if (remove.length + setAside.length === 0) return;
      deleting ??= doAll(remove, setAside)
        .catch(
          (err: unknown) =>
            void (
              ending.signal.aborted || log.warn({ err }, 'deleting volumes failed; will retry')
            ),
        )
        .finally(() => (deleting = null));
    },
    async stop() {
      ending.abort(new Error('the agent stops'));
      await Promise.all([counting, deleting]);
    },
  };
}
