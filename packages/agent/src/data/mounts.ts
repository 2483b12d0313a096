/**
 * The symlinks of deployments to the versions that they use. Each is also what keeps its version from being evicted, for every
 * agent on this SVC_ROOT: made first, and only then looked at what it points to.
 */
import { mkdir, readdir, readlink, rename, symlink, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { failPoint } from '@berth/kit/fail-point';
import { errorCode, orNull, readJson, removeTree, syncFolder, writeWhole } from './disk.ts';
import { isId, keyOf, type Layout, targetOf, targetText } from './layout.ts';
import type { WorkFolders } from './work-folders.ts';

/** Whose folder it is. `agent` outlives the process; `attempt` is the last one that prepared it. */
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
  /** Begins or takes over a deployment's folder. */
  own(deploymentId: string, owner: MountOwner): Promise<void>;
  /** Absolute path of the symlink, on the disk before it resolves. */
  link(deploymentId: string, link: Link): Promise<string>;
  /** Removes a deployment's symlinks to a version; the folder stays, and with it the release counts among those that are kept. */
  unlink(deploymentId: string, datasetId: string, version: number): Promise<void>;
  list(): Promise<MountFolder[]>;
  get(deploymentId: string): Promise<MountFolder>;
  /** Keys (layout.ts) of all versions that some symlink points to. */
  pinned(): Promise<Set<string>>;
  /** By an attempt: only while no later one has taken the folder over. */
  remove(deploymentId: string, by?: Pick<MountOwner, 'task_id' | 'attempt'>): Promise<void>;
};

export function createMounts(layout: Layout, work: WorkFolders): Mounts {
  let count = 0;

  async function get(deploymentId: string): Promise<MountFolder> {
    const owner = (await readJson(layout.mountOwner(deploymentId))) as MountOwner | null;
    const links: Link[] = [];
    for (const name of (await orNull(readdir(layout.mount(deploymentId)))) ?? []) {
      if (name.startsWith('.')) continue;
      const target = targetOf((await linkText(join(layout.mount(deploymentId), name))) ?? '');
      if (target !== null) links.push({ name, ...target });
    }
    return { deploymentId, owner, links };
  }
  async function list(): Promise<MountFolder[]> {
    const ids = ((await orNull(readdir(layout.mounts))) ?? []).filter(isId);
    return Promise.all(ids.map(get));
  }
  return {
    get,
    list,
    own: (deploymentId, owner) => writeWhole(layout.mountOwner(deploymentId), JSON.stringify(owner)),
    async link(deploymentId, { name, datasetId, version }) {
      const path = layout.link(deploymentId, name);
      const temporary = join(layout.mount(deploymentId), `.${name}.${work.process}`);
      await mkdir(layout.mount(deploymentId), { recursive: true });
      await orNull(unlink(temporary));
      await symlink(targetText(datasetId, version), temporary);
      await rename(temporary, path);
      for (const folder of [layout.mount(deploymentId), layout.mounts]) await syncFolder(folder);
      await failPoint('mount.linked');
      return path;
    },
    async unlink(deploymentId, datasetId, version) {
      const { links } = await get(deploymentId);
      for (const l of links)
        if (l.datasetId === datasetId && l.version === version) await orNull(unlink(layout.link(deploymentId, l.name)));
    },
    async pinned() {
      return new Set((await list()).flatMap(({ links }) => links.map((l) => keyOf(l.datasetId, l.version))));
    },
    async remove(deploymentId, by) {
      const path = layout.mount(deploymentId);
      if (by !== undefined && !isOf((await get(deploymentId)).owner, by)) return;
      const aside = join(work.trash, `mount.${deploymentId}.${(count += 1)}`);
      if ((await orNull(rename(path, aside).then(() => true))) === null) return;
      // Taken over in this moment.
      const owner = (await readJson(join(aside, '.deployment.json'))) as MountOwner | null;
      if (by !== undefined && owner !== null && !isOf(owner, by)) {
        await rename(aside, path);
        return;
      }
      await removeTree(aside);
    },
  };
}

/** Null: no symlink, and so none of ours. A disk that cannot be read is an error: what is mounted would count as not in use. */
const linkText = (path: string): Promise<string | null> =>
  orNull(readlink(path)).catch((error: unknown) => {
    if (errorCode(error) === 'EINVAL') return null;
    throw error;
  });

const isOf = (owner: MountOwner | null, { task_id, attempt }: Pick<MountOwner, 'task_id' | 'attempt'>): boolean =>
  owner?.task_id === task_id && owner.attempt === attempt;
