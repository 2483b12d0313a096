/**
 * Manages file secrets: a tmpfs folder for each container of a deployment (`ownerOf`), which it
 * mounts read-only at /run/secrets. The agent fills the folder before the container starts; a tmpfs
 * mounted by the engine would still be empty at that time.
 * After a reboot, tmpfs is empty, and the engine starts containers without a task. STATE_DIR
 * therefore has an encrypted copy, from which the agent fills the folder when it starts
 * (`restore`). Until then such a container cannot start; revive.ts starts it afterwards.
 */
import { randomBytes } from 'node:crypto';
// The folders are on tmpfs: a power failure leaves nothing of them.
import {
  access,
  chown,
  mkdir,
  readdir,
  readFile,
  // oxlint-disable-next-line berth/write-file-whole
  rename,
  rm,
  statfs,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { failPoint } from '@berth/kit/fail-point';
import type { Logger } from '@berth/kit/log';
import { messageOf } from '@berth/kit/message-of';
import { createRefCounts } from '@berth/kit/ref-count';
import { seal, type SealFormat, unseal } from '@berth/kit/seal';
import { createSecretFile, readSecretFile, type SecretFile } from '@berth/kit/secret-file';
import { removeTemporary, writeFileWhole } from '@berth/kit/write-file';
import { LABELS } from '@berth/wire/vocabulary';
import { nullIfMissing } from '../file-system.ts';
import { nearest } from '../state/private-folder.ts';
import { TaskFailure } from '../failures.ts';

/** The engine: lists the containers with these labels; null matches any value. */
type Containers = {
  list(labels: Record<string, null>): Promise<readonly { labels: Record<string, string> }[]>;
};
export type SecretMount = { source: string; target: string; readonly: true };
export type FileSecret = { name: string; value: string };
export type SecretFiles = {
  /** Why this node cannot mount file secrets; null if it can. */
  problem: string | null;
  /**
   * Fills the folder of `owner` (`ownerOf`) with files owned by `uid`, and returns its mount. Throws
   * TaskFailure agent_cannot.
   */
  fill(owner: string, files: readonly FileSecret[], uid: number): Promise<SecretMount>;
  /** Returns the values in the folder of `owner`; an empty list if it has no folder. */
  values(owner: string): Promise<string[]>;
  /**
   * Keeps the folder of `owner`, whose container is about to start, until the returned function is
   * called.
   */
  protect(owner: string): () => void;
  /**
   * Call this at start: fills folders that are missing after a reboot, and removes folders without
   * a container.
   */
  restore(): Promise<void>;
  /** Schedules the removal of folders without a container, in the background. */
  cleanLater(): void;
  /** Resolves when no background work is running. */
  stop(): Promise<void>;
};

/**
 * Returns the name of the folder of a container: the id of its instance or run, or of its
 * deployment for the first instance. Two containers of one deployment can run on this node, with secrets of
 * different times.
 */
export const ownerOf = (labels: Readonly<Record<string, string>>): string =>
  labels[LABELS.instance] ?? labels[LABELS.run] ?? labels[LABELS.deployment] ?? '';

const TARGET = '/run/secrets';
/** File name suffix of the encrypted copies. */
const SEALED = '.sealed';
/** File system types in memory (statfs(2)). */
const TMPFS = 0x01_02_19_94;
const RAMFS = 0x85_84_58_f6;

type Copy = { uid: number; files: readonly FileSecret[] };
export type SecretFilesOptions = {
  /** Folder on tmpfs that only this agent uses. */
  folder: string;
  /** Folder with the encrypted copies. */
  copies: string;
  docker: Containers;
  log: Logger;
};

/** State of the store: the folders, and which of them are in use. */
type Store = SecretFilesOptions & {
  problem: string | null;
  /** Deployments whose container is about to start. */
  inUse: ReturnType<typeof createRefCounts>;
  cleaning: Promise<void> | null;
  /** True if a clean-up was requested while the current one runs. */
  again: boolean;
  key: Promise<Buffer> | null;
};

export async function createSecretFiles(options: SecretFilesOptions): Promise<SecretFiles> {
  const problem = await whyUnusable(options.folder);
  const inUse = createRefCounts();
  const store: Store = { ...options, problem, inUse, cleaning: null, again: false, key: null };
  return {
    problem,
    fill: (deployment, files, uid) => fill(store, deployment, { uid, files }),
    async values(deployment) {
      const path = join(store.folder, deployment);
      const names = problem === null ? await readdir(path).catch(() => []) : [];
      return Promise.all(names.map((name) => readFile(join(path, name), 'utf8')));
    },
    protect: (deployment) => inUse.add(deployment),
    restore: () => restore(store),
    cleanLater: () => cleanLater(store),
    async stop() {
      await store.cleaning;
    },
  };
}

async function fill(store: Store, deployment: string, copy: Copy): Promise<SecretMount> {
  const { problem, copies, folder } = store;
  if (problem !== null)
    throw new TaskFailure('agent_cannot', `this node cannot mount file secrets: ${problem}`);
  // Write the copy first: a container must not start if its folder could not be filled again.
  await mkdir(copies, { recursive: true, mode: 0o700 });
  const text = Buffer.from(JSON.stringify(copy));
  const sealed = seal(await copyKey(store), text, formatFor(deployment));
  // Flush the copy to disk: it is needed after a reboot, which can be a power failure.
  await writeFileWhole(join(copies, deployment + SEALED), sealed);
  await failPoint('secrets.sealed');
  await writeFolder(folder, deployment, copy);
  await failPoint('secrets.written');
  return { source: join(folder, deployment), target: TARGET, readonly: true };
}

async function writeFolder(
  folder: string,
  deployment: string,
  { uid, files }: Copy,
): Promise<void> {
  const fresh = join(folder, `${deployment}.new`);
  await rm(fresh, { recursive: true, force: true });
  // Inside the container this folder is /run/secrets, which its user must be able to enter. On the
  // host, the parent folder is private.
  await mkdir(fresh, { mode: 0o755 });
  for (const { name, value } of files) {
    const path = join(fresh, name);
    await writeFile(path, value, { mode: 0o400, flag: 'wx' });
    await chown(path, uid, 0);
  }
  await rm(join(folder, deployment), { recursive: true, force: true });
  await rename(fresh, join(folder, deployment));
}

async function restore(store: Store): Promise<void> {
  const { problem, copies, folder } = store;
  if (problem !== null) return;
  // No task is running yet, so no file is being written.
  await nullIfMissing(removeTemporary(copies));
  for (const deployment of await sealedDeployments(copies))
    if (!(await exists(join(folder, deployment)))) await restoreFolder(store, deployment);
  // Remove the files that a killed agent left: a different node might have taken over the attempt
  // that they were for.
  cleanLater(store);
}

async function restoreFolder(store: Store, deployment: string): Promise<void> {
  const { copies, folder, log } = store;
  try {
    const sealed = await readFile(join(copies, deployment + SEALED));
    const copy = unseal(await copyKey(store), sealed, formatFor(deployment));
    await writeFolder(folder, deployment, JSON.parse(copy.toString()) as Copy);
    log.info({ deployment }, 'secret files of a container restored after a restart of the machine');
  } catch (error) {
    log.error(
      { err: error, deployment },
      'restoring the secret files of a container failed; it cannot start: deploy its ' +
        'project again',
    );
  }
}

const sealedDeployments = async (copies: string): Promise<string[]> =>
  (await readdir(copies).catch(() => []))
    .filter((name) => name.endsWith(SEALED))
    .map((name) => name.slice(0, -SEALED.length));

function cleanLater(store: Store): void {
  if (store.problem !== null) return;
  store.again = store.cleaning !== null;
  store.cleaning ??= clean(store)
    .catch((error: unknown) =>
      store.log.warn(
        { err: error },
        'removing old secret files failed; will retry after the next task',
      ),
    )
    .finally(() => {
      store.cleaning = null;
      if (store.again) cleanLater(store);
    });
}

async function clean({ folder, copies, docker, inUse }: Store): Promise<void> {
  const folders = await readdir(folder);
  const deployments = new Set([...folders, ...(await sealedDeployments(copies))]);
  if (deployments.size === 0) return;
  // Read this before asking the engine: a task can end meanwhile, with its container missing in the
  // answer.
  const busy = inUse.keys();
  const lists = await Promise.all([
    docker.list({ [LABELS.deployment]: null }),
    docker.list({ [LABELS.run]: null }),
  ]);
  const containers = new Set(lists.flat().map((c) => ownerOf(c.labels)));
  for (const deployment of deployments) {
    const name = deployment.replace(/\.new$/, '');
    if (containers.has(deployment) || busy.has(name) || inUse.has(name)) continue;
    await rm(join(folder, deployment), { recursive: true, force: true });
    await rm(join(copies, deployment + SEALED), { force: true });
  }
}

/** Reads or creates the key of the copies once; tries again after a failure. */
function copyKey(store: Store): Promise<Buffer> {
  store.key ??= keyIn(join(store.copies, 'key'), store.log).catch((error: unknown) => {
    store.key = null;
    throw error;
  });
  return store.key;
}

async function whyUnusable(folder: string): Promise<string | null> {
  try {
    // Check this before creating the folder, so that no useless folder stays on the wrong file
    // system.
    const { type } = await statfs(await nearest(folder));
    if (type !== TMPFS && type !== RAMFS) return `SECRETS_DIR (${folder}) is not on tmpfs`;
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const probe = join(folder, '.probe.new');
    await writeFile(probe, '', { mode: 0o400 });
    try {
      // The files belong to the user of the container. Only root, or a process with CAP_CHOWN, can
      // change the owner.
      await chown(probe, 65_534, 0);
    } finally {
      await rm(probe, { force: true });
    }
    return null;
  } catch (error) {
    return `SECRETS_DIR (${folder}) is not usable: ` + messageOf(error);
  }
}

const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );

async function keyIn(path: string, log: Logger): Promise<Buffer> {
  const file: SecretFile = {
    path,
    name: 'key of the secret files',
    instead: 'and deploy the projects with file secrets again',
    problem: (text) =>
      Buffer.from(text, 'base64').length === 32 ? null : 'is not 32 bytes in base64. Delete it',
    leaked: 'delete it and deploy the projects with file secrets again',
  };
  const text =
    (await readSecretFile(file, log)) ??
    (await createSecretFile(file, randomBytes(32).toString('base64'), log));
  return Buffer.from(text, 'base64');
}

/** Binds a copy to its deployment: it cannot be decrypted for any other deployment. */
const formatFor = (deployment: string): SealFormat => ({
  tag: 'last',
  about: Buffer.from(deployment),
});
