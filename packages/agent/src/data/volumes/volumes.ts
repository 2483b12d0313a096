/**
 * Manages the volumes on this node: folders that outlive deployments.
 *
 *   volumes/{project_id}/{name}        mounted into the containers of the project
 *   volumes/{project_id}/.copy.json    the mark: the id of this copy, out of reach of containers
 *                                      (control-plane/src/domain/data/volumes.ts)
 *   volumes/.incoming/{copy}/          a copy that is being received; it is published by one rename
 *   volumes/.left/{copy}/              an older copy of a returned project; deleted only on request
 *
 * A folder is mounted only if its mark has the copy id of the task. A missing folder is created
 * only if the task says that it never existed, so that a project never starts with an empty or
 * older folder in place of its own.
 *
 * Only the agent's user can enter `volumes` and the folders directly below it. Otherwise, a program
 * that a container marks setuid would run as root for every user of the node. Containers do not
 * need to enter these folders, because the engine mounts the folder of the volume.
 */
import { chmod, chown, lstat, mkdir, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { failPoint } from '@berth/kit/fail-point';
import { flush, writeFileWhole } from '@berth/kit/write-file';
import type { MoveResult, VolumeMounts } from '@berth/wire/volume';
import type { Mount } from '../../engine/docker.ts';
import { TaskFailure } from '../../failures.ts';
import { makePrivate, removeTree, writeWhole } from '../../file-system.ts';
import { isId } from '../layout.ts';

export type Volumes = {
  /**
   * Returns the mounts, and creates folders that never existed. `uid` returns the owner of a new
   * folder. Throws TaskFailure volume_missing, volume_failed.
   */
  mounts(projectId: string, wanted: VolumeMounts, uid: () => Promise<number>): Promise<Mount[]>;
  /** Returns the folders of a copy that is to be sent. Throws TaskFailure volume_missing. */
  outgoing(projectId: string, copy: string): Promise<Folders>;
  /**
   * Returns the result of a copy that a previous attempt verified and moved to its place, or null.
   */
  arrived(projectId: string, copy: string): Promise<MoveResult | null>;
  /** Returns the folder in which a copy is received. */
  incoming(copy: string): Incoming;
  /**
   * Moves a received copy to its place, and an older copy of the project to .left. Throws
   * TaskFailure volume_failed.
   */
  finish(projectId: string, copy: string, result: MoveResult): Promise<void>;
  /** Removes partly received copies, except those of open tasks. */
  removeIncoming(except: readonly string[]): Promise<void>;
};

/** Folders of a copy below `root`. */
export type Folders = { root: string; names: string[] };
export type Incoming = {
  /** Empties the folder and returns its path. */
  begin(): Promise<string>;
  /** Records that all files have been received and flushed to disk. */
  complete(): Promise<void>;
  /** Returns the folders if a previous attempt received all files, else null. */
  whole(): Promise<Folders | null>;
  discard(): Promise<void>;
};

export type Mark = {
  copy: string;
  project_id: string;
  created_at: string;
  /** Result of the move, if the copy came from another node. */
  moved?: MoveResult;
};
const MARK = '.copy.json';
const COMPLETE = '.complete';
const NAME = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

export async function createVolumes(root: string): Promise<Volumes> {
  const folder = join(root, 'volumes');
  await makePrivate(folder);
  await tightenEarlierFolders(folder);
  return {
    mounts: (projectId, wanted, uid) => mountsOf(folder, projectId, wanted, uid),
    outgoing: async (projectId, copy) => outgoing(projectFolder(folder, projectId), copy),
    async arrived(projectId, copy) {
      const mark = await readMark(projectFolder(folder, projectId));
      return mark?.copy === copy ? (mark.moved ?? null) : null;
    },
    incoming: (copy) => createIncoming(copyFolder(folder, '.incoming', copy)),
    finish: (projectId, copy, result) => finish(folder, projectId, copy, result),
    async removeIncoming(except) {
      // Finish interrupted deletions.
      await removeTree(join(folder, '.removing'));
      for (const copy of await visible(join(folder, '.incoming')))
        if (!except.includes(copy)) await removeTree(join(folder, '.incoming', copy));
    },
  };
}

/** Restricts the access to folders of older versions, which every user of the node could enter. */
async function tightenEarlierFolders(folder: string): Promise<void> {
  for (const name of await readdir(folder)) await tighten(join(folder, name));
  for (const parent of ['.incoming', '.left', '.removing'])
    for (const name of (await readdir(join(folder, parent)).catch(ignoreMissing)) ?? [])
      await tighten(join(folder, parent, name));
}

function projectFolder(folder: string, projectId: string): string {
  if (!isId(projectId)) throw new Error('not an id of a project');
  return join(folder, projectId);
}

function copyFolder(folder: string, parent: '.incoming' | '.left', copy: string): string {
  if (!isId(copy)) throw new Error('not an id of a copy');
  return join(folder, parent, copy);
}

async function mountsOf(
  folder: string,
  projectId: string,
  { copy, mounts }: VolumeMounts,
  uid: () => Promise<number>,
): Promise<Mount[]> {
  const project = projectFolder(folder, projectId);
  const mark = await readMark(project);
  if (mark === null) {
    refuseLostFolders(project, mounts);
    await beginProject(folder, projectId, copy);
  } else if (mark.copy !== copy) {
    throw new TaskFailure(
      'volume_missing',
      `${project} holds another copy (${mark.copy}, of ${mark.created_at}); the project uses ` +
        `copy ${copy}, so Berth does not mount the folder`,
    );
  }
  const engineMounts: Mount[] = [];
  for (const mount of mounts) {
    const source = await volumeFolder(project, mount, uid);
    engineMounts.push({ source, target: mount.mount_path, readonly: false });
  }
  return engineMounts;
}

/** Throws volume_missing if the folder of a project is lost although it should contain volumes. */
function refuseLostFolders(project: string, mounts: VolumeMounts['mounts']): void {
  const missing = mounts.filter((m) => !m.create).map((m) => m.name);
  if (missing.length === 0) return;
  throw new TaskFailure(
    'volume_missing',
    `${project} does not exist, but it should have ${missing.join(', ')}; restore it`,
  );
}

/** Creates the folder of a project that has no volumes yet. */
async function beginProject(folder: string, projectId: string, copy: string): Promise<void> {
  const project = projectFolder(folder, projectId);
  await makePrivate(project);
  const unmarked = await visible(project);
  if (unmarked.length > 0)
    throw new TaskFailure(
      'volume_missing',
      `${project} has folders (${unmarked.slice(0, 3).join(', ')}) but no ${MARK}; Berth does ` +
        'not know them. Move them away or restore the file',
    );
  await writeMark(project, { copy, project_id: projectId, created_at: new Date().toISOString() });
  await flush(folder);
}

/** Returns the folder of a volume; creates it if it never existed. */
async function volumeFolder(
  project: string,
  { name, create: neverExisted }: VolumeMounts['mounts'][number],
  uid: () => Promise<number>,
): Promise<string> {
  if (!NAME.test(name)) throw new Error('not the name of a volume');
  const source = join(project, name);
  const stat = await lstat(source).catch(ignoreMissing);
  if (stat === null && !neverExisted)
    throw new TaskFailure(
      'volume_missing',
      `${source} does not exist; restore it. Berth does not start the project with an empty one`,
    );
  if (stat !== null && !stat.isDirectory())
    throw new TaskFailure('volume_failed', `${source} is not a folder`);
  if (stat === null) await createVolumeFolder(project, name, await uid());
  return source;
}

/** Creates a volume with its owner, and makes it visible by one rename. */
async function createVolumeFolder(project: string, name: string, uid: number): Promise<void> {
  const fresh = join(project, `.new-${name}`);
  await rm(fresh, { recursive: true, force: true });
  await mkdir(fresh, { mode: 0o755 });
  try {
    await chown(fresh, uid, uid);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') throw error;
    // Without CAP_CHOWN, the agent cannot set the owner, but the container's user must be able to
    // write.
    await chmod(fresh, 0o777);
  }
  await rename(fresh, join(project, name));
}

async function outgoing(project: string, copy: string): Promise<Folders> {
  const mark = await readMark(project);
  const names = await visible(project);
  if (mark?.copy !== copy || names.length === 0)
    throw new TaskFailure(
      'volume_missing',
      `${project} ${mark === null ? 'does not exist' : `is not the copy ${copy}`}; restore it`,
    );
  return { root: project, names };
}

const createIncoming = (place: string): Incoming => ({
  async begin() {
    await removeTree(place);
    await makePrivate(place);
    return place;
  },
  async complete() {
    await writeWhole(join(place, COMPLETE), '');
  },
  async whole() {
    if ((await lstat(join(place, COMPLETE)).catch(ignoreMissing)) === null) return null;
    return { root: place, names: await visible(place) };
  },
  discard: async () => void (await removeTree(place)),
});

async function finish(
  folder: string,
  projectId: string,
  copy: string,
  result: MoveResult,
): Promise<void> {
  const project = projectFolder(folder, projectId);
  const received = copyFolder(folder, '.incoming', copy);
  await writeMark(received, {
    copy,
    project_id: projectId,
    created_at: new Date().toISOString(),
    moved: result,
  });
  const older = await readMark(project);
  if (older !== null) {
    await makePrivate(join(folder, '.left'));
    await rename(project, copyFolder(folder, '.left', older.copy));
  } else if ((await visible(project)).length > 0)
    throw new TaskFailure(
      'volume_failed',
      `${project} has folders but no ${MARK}; Berth does not know them. Move them away`,
    );
  await failPoint('move.displaced');
  await rename(received, project);
  await flush(folder);
  await rm(join(project, COMPLETE), { force: true });
}

async function tighten(path: string): Promise<void> {
  const stats = await lstat(path).catch(ignoreMissing);
  if (stats?.isDirectory() === true && (stats.mode & 0o777) !== 0o700) await chmod(path, 0o700);
}

/** Returns the names of the volume folders below `path`. */
export const visible = async (path: string): Promise<string[]> =>
  ((await readdir(path).catch(ignoreMissing)) ?? [])
    .filter((name) => !name.startsWith('.'))
    .toSorted();

const writeMark = (project: string, mark: Mark): Promise<void> =>
  writeFileWhole(join(project, MARK), JSON.stringify(mark));

export async function readMark(project: string): Promise<Mark | null> {
  const text = await readFile(join(project, MARK), 'utf8').catch(ignoreMissing);
  if (text === null) return null;
  try {
    const mark = JSON.parse(text) as Partial<Mark>;
    if (
      typeof mark.copy === 'string' &&
      typeof mark.created_at === 'string' &&
      typeof mark.project_id === 'string'
    )
      return mark as Mark;
  } catch {
    // Fall through to the error below.
  }
  throw new TaskFailure('volume_failed', `${join(project, MARK)} is damaged; restore it`);
}

function ignoreMissing(error: unknown): null {
  if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
  throw error;
}
