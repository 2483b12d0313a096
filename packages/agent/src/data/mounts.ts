/**
 * Manages the symlinks from deployments to the versions that they use. A symlink also pins its
 * version against eviction by any agent on this SVC_ROOT, so an agent creates the symlink first and
 * checks its target afterwards.
 */
import { mkdir, readdir, readlink, rename, symlink, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { failPoint } from '@berth/kit/fail-point';
import { flush } from '@berth/kit/write-file';
import { errorCode, nullIfMissing, readJson, removeTree, writeWhole } from '../file-system.ts';
import { isId, keyOf, type Layout, targetOf, targetText } from './layout.ts';
import type { Pins } from './pins.ts';
import type { WorkFolders } from './work-folders.ts';

/**
 * The owner of a mount folder. `agent` survives a restart; `attempt` is the last attempt that
 * prepared the folder.
 */
export type MountOwner = {
  agent: string;
  process: string;
  project_id: string;
  generation: number;
  task_id: string;
  attempt: number;
};
export type Link = { name: string; datasetId: string; version: number };
export type MountFolder = { deploymentId: string; owner: MountOwner | null; links: Link[] };

export type Mounts = {
  /** Creates a deployment's folder, or takes over an existing one. */
  claim(deploymentId: string, owner: MountOwner): Promise<void>;
  /** Creates a symlink, flushes it to disk and returns its absolute path. */
  link(deploymentId: string, link: Link): Promise<string>;
  /**
   * Removes a deployment's symlinks to a version. The folder stays, so that the release still
   * counts as kept.
   */
  unlink(deploymentId: string, datasetId: string, version: number): Promise<void>;
  list(): Promise<MountFolder[]>;
  get(deploymentId: string): Promise<MountFolder>;
  /** Returns the keys (layout.ts `keyOf`) of all versions that a symlink points to. */
  linked(): Promise<Set<string>>;
  /**
   * Returns the keys of all versions that must stay: a symlink points to them,
   * or a project wants a copy.
   */
  pinned(): Promise<Set<string>>;
  /** Removes the folder. With `by`, keeps it if a later attempt has taken it over. */
  remove(deploymentId: string, by?: Pick<MountOwner, 'task_id' | 'attempt'>): Promise<void>;
};

const NO_PINS: Pick<Pins, 'keys'> = { keys: async () => new Set() };

export function createMounts(
  layout: Layout,
  work: WorkFolders,
  pins: Pick<Pins, 'keys'> = NO_PINS,
): Mounts {
  let count = 0;

  async function get(deploymentId: string): Promise<MountFolder> {
    const owner = (await readJson(layout.mountOwner(deploymentId))) as MountOwner | null;
    const links: Link[] = [];
    for (const name of (await nullIfMissing(readdir(layout.mount(deploymentId)))) ?? []) {
      if (name.startsWith('.')) continue;
      const target = targetOf((await linkText(join(layout.mount(deploymentId), name))) ?? '');
      if (target !== null) links.push({ name, ...target });
    }
    return { deploymentId, owner, links };
  }
  async function list(): Promise<MountFolder[]> {
    const ids = ((await nullIfMissing(readdir(layout.mounts))) ?? []).filter(isId);
    return Promise.all(ids.map(get));
  }
  async function linked(): Promise<Set<string>> {
    return new Set(
      (await list()).flatMap(({ links }) => links.map((l) => keyOf(l.datasetId, l.version))),
    );
  }
  return {
    get,
    list,
    claim: (deploymentId, owner) =>
      writeWhole(layout.mountOwner(deploymentId), JSON.stringify(owner)),
    async link(deploymentId, { name, datasetId, version }) {
      const path = layout.link(deploymentId, name);
      // Two instances of one deployment can link the same name at the same time.
      const temporary = join(
        layout.mount(deploymentId),
        `.${name}.${work.process}.${(count += 1)}`,
      );
      await mkdir(layout.mount(deploymentId), { recursive: true });
      await nullIfMissing(unlink(temporary));
      await symlink(targetText(datasetId, version), temporary);
      await rename(temporary, path);
      for (const folder of [layout.mount(deploymentId), layout.mounts]) await flush(folder);
      await failPoint('mount.linked');
      return path;
    },
    async unlink(deploymentId, datasetId, version) {
      const { links } = await get(deploymentId);
      for (const l of links)
        if (l.datasetId === datasetId && l.version === version)
          await nullIfMissing(unlink(layout.link(deploymentId, l.name)));
    },
    linked,
    pinned: async () => new Set([...(await linked()), ...(await pins.keys())]),
    async remove(deploymentId, by) {
      const path = layout.mount(deploymentId);
      if (by !== undefined && !isOf((await get(deploymentId)).owner, by)) return;
      const trashed = join(work.trash, `mount.${deploymentId}.${(count += 1)}`);
      if ((await nullIfMissing(rename(path, trashed).then(() => true))) === null) return;
      // Another attempt might have taken the folder over between the check and the rename.
      const owner = (await readJson(join(trashed, '.deployment.json'))) as MountOwner | null;
      if (by !== undefined && owner !== null && !isOf(owner, by)) {
        await rename(trashed, path);
        return;
      }
      await removeTree(trashed);
    },
  };
}

/**
 * Returns the target of a symlink; null if the path is not a symlink. Throws on a read error: a
 * mounted version must not count as unused.
 */
const linkText = (path: string): Promise<string | null> =>
  nullIfMissing(readlink(path)).catch((error: unknown) => {
    if (errorCode(error) === 'EINVAL') return null;
    throw error;
  });

const isOf = (
  owner: MountOwner | null,
  { task_id, attempt }: Pick<MountOwner, 'task_id' | 'attempt'>,
): boolean => owner?.task_id === task_id && owner.attempt === attempt;
