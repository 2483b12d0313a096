/**
 * Datasets on many nodes: files on the share, the nodes' copies, and the content that the history
 * promises.
 */
import { createHash } from 'node:crypto';
import { lstat, mkdir, readdir, readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { CopyProgress, Dataset } from '@berth/wire/dataset';
import type { Deployment } from '@berth/wire/deployment';
import type { Node } from '@berth/wire/node';
import type { Project, ProjectCreate } from '@berth/wire/project';
import { isSettled } from '@berth/wire/vocabulary';
import { waitFor } from '@berth/testbed/wait';
import type { ManyNodes, ManyNodesNode } from './many-nodes-world.ts';
import { ENDS_AT_ONCE } from './world.ts';

/** SHA-256 by relative path, as `sha256sum` prints it. */
export type Sums = Record<string, string>;
/** Contents by relative path; null removes a file. */
export type ShareFiles = Record<string, Buffer | string | null>;

/** Returns the same bytes for the same name and size. No compression in use makes them smaller. */
export function bytes(name: string, size: number): Buffer {
  const word = createHash('sha512').update(name).digest();
  return Buffer.alloc(size, word);
}

export async function writeShare(
  world: ManyNodes,
  folder: string,
  files: ShareFiles,
): Promise<void> {
  for (const [path, content] of Object.entries(files)) {
    const at = join(world.datasetBase, folder, path);
    await mkdir(dirname(at), { recursive: true });
    if (content === null) await rm(at);
    else await writeFile(at, content);
  }
}

/**
 * Writes the files, registers the dataset under the folder's name, and scans it until version 1
 * exists.
 */
export async function newDataset(
  world: ManyNodes,
  name: string,
  files: ShareFiles,
): Promise<Dataset> {
  await mkdir(join(world.datasetBase, name), { recursive: true });
  await writeShare(world, name, files);
  const { id } = await world.api.call('createDataset', { body: { name, nfs_path: name } });
  return waitFor(
    `${name} has its first version`,
    async () => {
      const now = await world.api.call('getDataset', { params: { id } });
      return now.version !== null && !now.scanning && now;
    },
    { deadlineMs: 30_000 },
  );
}

/** Requests a scan and waits for its end. */
export async function scan(world: Pick<ManyNodes, 'api'>, id: string): Promise<Dataset> {
  const asked = await world.api.call('scanDataset', { params: { id }, body: {} });
  return waitFor(
    'the scan is finished',
    async () => {
      const now = await world.api.call('getDataset', { params: { id } });
      return !now.scanning && now.last_scanned_at !== asked.last_scanned_at && now;
    },
    { deadlineMs: 60_000 },
  );
}

/**
 * Returns the content of a version, computed from its history alone: every change up to it, oldest
 * first.
 */
export async function manifestOf(
  world: Pick<ManyNodes, 'api'>,
  datasetId: string,
  version: number,
): Promise<Sums> {
  const rows = [];
  let cursor: string | undefined;
  do {
    const query = { limit: 200, ...(cursor === undefined ? {} : { cursor }) };
    const page = await world.api.call('datasetHistory', { params: { id: datasetId }, query });
    rows.push(...page.items);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
  const sums: Sums = {};
  for (const row of rows.toSorted((a, b) => a.version - b.version)) {
    if (row.version > version) continue;
    if (row.checksum === null) delete sums[row.path];
    else sums[row.path] = row.checksum;
  }
  return sums;
}

export const sha256 = (content: Buffer | string): string =>
  createHash('sha256').update(content).digest('hex');

/** Returns the sums of a folder on disk. */
export async function sumsOf(folder: string): Promise<Sums> {
  const sums: Sums = {};
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    sums[path.slice(folder.length + 1)] = sha256(await readFile(path));
  }
  return sums;
}

/** A node with the folder of its copies. */
type Svc = Pick<ManyNodesNode, 'svcRoot'>;

export const versionFolder = (node: Svc, datasetId: string, version: number): string =>
  join(node.svcRoot, 'objects', datasetId, `v${version}`);

/** Returns the versions of a dataset whose folders are on the node (`v` and digits). */
export async function versionsOn(node: Svc, datasetId: string): Promise<number[]> {
  const names = await namesIn(join(node.svcRoot, 'objects', datasetId));
  return names
    .flatMap((name) => (/^v\d+$/.test(name) ? [Number(name.slice(1))] : []))
    .toSorted((a, b) => a - b);
}

/** Returns the target of the symlink that the contract defines for a deployment. */
export const mountOf = (node: Svc, deployment: { id: string }, name: string): Promise<string> =>
  readlink(join(node.svcRoot, 'mounts', deployment.id, name));

/** Returns the folders under `.staging`: copies in progress, or partial ones that were left. */
export async function halfCopies(node: Svc): Promise<string[]> {
  const processes = await namesIn(join(node.svcRoot, '.staging'));
  const inside = await Promise.all(
    processes.map((p) => namesIn(join(node.svcRoot, '.staging', p))),
  );
  return inside.flat().filter((name) => name.startsWith('copy-'));
}

export async function inode(path: string): Promise<number> {
  return (await lstat(path)).ino;
}

async function namesIn(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

/**
 * Checks every version of a dataset on all nodes repeatedly: each must equal its manifest from the
 * moment that it has its name.
 */
export function watchVersions(
  world: ManyNodes,
  datasetId: string,
): { stop(): Promise<{ wrong: string[]; seen: string[] }> } {
  const wrong = new Set<string>();
  const seen = new Set<string>();
  let over = false;
  async function checkNode(node: ManyNodesNode): Promise<void> {
    for (const version of await versionsOn(node, datasetId)) {
      const found = await sumsOf(versionFolder(node, datasetId, version));
      const manifest = await manifestOf(world, datasetId, version);
      const what = `v${version} on ${node.name}`;
      seen.add(what);
      for (const path of new Set([...Object.keys(found), ...Object.keys(manifest)]))
        if (found[path] !== manifest[path])
          wrong.add(`${what}: ${path} is ${found[path]}, not ${manifest[path]}`);
    }
  }
  const looking = (async () => {
    // One more check after the end.
    for (let last = false; !last; ) {
      last = over;
      const from = performance.now();
      for (const node of world.nodes) await checkNode(node);
      // Takes at most a quarter of the time, because the watched nodes need the machine too.
      if (!last) await sleep(Math.max(100, 3 * (performance.now() - from)));
    }
  })();
  return {
    async stop() {
      over = true;
      await looking;
      return { wrong: [...wrong], seen: [...seen] };
    },
  };
}

export const getNode = (world: ManyNodes, node: ManyNodesNode): Promise<Node> =>
  world.api.call('getNode', { params: { id: node.nodeId } });

/** Copies the newest version to the node and waits until the node reports it. */
export async function prewarm(
  world: ManyNodes,
  node: ManyNodesNode,
  dataset: Dataset,
): Promise<void> {
  await world.api.call('prewarmNode', {
    params: { id: node.nodeId },
    body: { dataset_id: dataset.id },
  });
  await waitFor(
    `${dataset.name} is on ${node.name}`,
    async () => {
      const now = await getNode(world, node);
      return now.cached.some((c) => c.dataset_id === dataset.id && c.version === dataset.version);
    },
    { deadlineMs: 30_000 },
  );
}

/** Lets only these nodes take deployments from now on. */
export async function onlyOn(world: ManyNodes, ...nodes: ManyNodesNode[]): Promise<void> {
  for (const node of world.nodes)
    await world.api.call(nodes.includes(node) ? 'uncordonNode' : 'cordonNode', {
      params: { id: node.nodeId },
    });
}

/** An application that serves its version as a page, and the datasets below /data. */
export const dataApp = (version: number): Record<string, string> => ({
  Dockerfile: [
    'FROM busybox:stable',
    'COPY www /www',
    ENDS_AT_ONCE,
    'EXPOSE 8080',
    'CMD ["sh", "-c", "ln -s /data /www/data; exec httpd -f -p 8080 -h /www"]',
    '',
  ].join('\n'),
  'www/index.html': `version ${version}\n`,
});

/** Creates a project of dataApp 1 at `name`; its repository has that name. */
export async function newProject(
  world: ManyNodes,
  name: string,
  settings: Partial<ProjectCreate> = {},
): Promise<Project> {
  const { url } = await world.git.createRepo(name, dataApp(1));
  return world.berth.createProject({
    name,
    git_url: url,
    domain_prefix: name,
    drain_seconds: 1,
    stop_grace_seconds: 1,
    ...settings,
  });
}

export const dependency = (dataset: Dataset): { dataset_id: string; mode: 'dependency' } => ({
  dataset_id: dataset.id,
  mode: 'dependency',
});

/**
 * Waits until the deployment is settled. Returns it with the copy progress that was shown
 * meanwhile.
 */
export async function settledWithProgress(
  world: ManyNodes,
  { id }: { id: string },
): Promise<{ deployment: Deployment; progress: CopyProgress[] }> {
  const progress: CopyProgress[] = [];
  const deployment = await waitFor(
    `deployment ${id} is settled`,
    async () => {
      const now = await world.api.call('getDeployment', { params: { id } });
      progress.push(...(now.progress?.datasets ?? []));
      return isSettled(now.status) && now;
    },
    { deadlineMs: 90_000 },
  );
  return { deployment, progress };
}

/** Returns ids and states of all containers of a project on a node. */
export async function containersOn(
  node: ManyNodesNode,
  project: string,
): Promise<{ id: string; state: string }[]> {
  const filter = `label=berth.project_name=${project}`;
  const { stdout } = await node.docker([
    'ps',
    '--all',
    '--filter',
    filter,
    '--format',
    '{{.ID}} {{.State}}',
  ]);
  return stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => ({ id: line.split(' ')[0] ?? '', state: line.split(' ')[1] ?? '' }));
}
