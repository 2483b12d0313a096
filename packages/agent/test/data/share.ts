/**
 * Test helpers: a share in a temporary folder, its datasets and manifests, and an agent's dataset
 * parts with a fake control plane.
 */
import { createHash, randomUUID } from 'node:crypto';
import {
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { processesOf } from '@berth/testbed/process';
import { createClient } from '@berth/wire/client';
import type { CopyProgress } from '@berth/wire/dataset';
import {
  compareNames,
  encodeName,
  encodeTree,
  type NamedEntry,
  type TreeTotals,
  walkTree,
} from '@berth/wire/tree';
import { LABELS } from '@berth/wire/vocabulary';
import {
  createDatasetParts,
  type DatasetParts,
  type DatasetPartsOptions,
} from '../../src/data/dataset-parts.ts';
import type { ProtectedVersion } from '../../src/data/cache.ts';
import { createStorage, type StorageMeter } from '../../src/disk/storage.ts';
import type { TaskContext } from '../../src/tasks/task.ts';
import {
  type FakeControlPlane,
  type FakeDataset,
  startFakeControlPlane,
} from '../fake-control-plane.ts';
import type { Container } from '../../src/engine/docker.ts';

export const sha256 = (data: Uint8Array | string): string =>
  createHash('sha256').update(data).digest('hex');

/** Process ids of the rsync processes that copy below a folder. */
export const rsyncsOf = (root: string): Promise<number[]> =>
  processesOf(
    (argv) =>
      argv.slice(0, -1).some((word) => word.endsWith('rsync')) &&
      argv.some((word) => word.includes(root)),
  );

/** The manifest of a folder, computed independently of the scanner. */
export async function manifestOf(
  folder: Buffer,
  objects: Map<string, string>,
): Promise<TreeTotals> {
  const entries: NamedEntry[] = [];
  for (const raw of await readdir(folder, { encoding: 'buffer' })) {
    const path = Buffer.concat([folder, Buffer.from('/'), raw]);
    const [name, stat] = [encodeName(raw), await lstat(path)];
    if (stat.isDirectory())
      entries.push({ kind: 'folder', name, ...(await manifestOf(path, objects)) });
    else if (stat.isSymbolicLink()) {
      const target = await readlink(path, { encoding: 'buffer' });
      entries.push({
        kind: 'link',
        name,
        size: target.length,
        checksum: sha256(target),
        target: encodeName(target),
      });
    } else if (stat.isFile()) {
      const content = await readFile(path);
      entries.push({
        kind: 'file',
        name,
        size: content.length,
        checksum: sha256(content),
        executable: (stat.mode & 0o100) !== 0,
      });
    }
  }
  return encodeTree(
    entries.sort((a, b) => compareNames(a.name, b.name)),
    { sha256, write: (digest, text) => void objects.set(digest, text) },
  );
}

export type Share = {
  dir: string;
  base: string;
  plane: FakeControlPlane;
  /** Makes `base/{name}` a dataset with that id. Its present content is version 1. */
  dataset(name: string): Promise<FakeDataset>;
  path(...parts: string[]): string;
  /** Writes a file and creates its folders. */
  write(path: string, content: string | Uint8Array, mode?: number): Promise<void>;
  stop(): Promise<void>;
};

/** `given`: a running control plane, which the share does not stop. */
export async function startShare(given?: FakeControlPlane): Promise<Share> {
  const dir = await mkdtemp(join(tmpdir(), 'agent-data-'));
  const base = join(dir, 'share');
  await mkdir(base);
  const plane = given ?? (await startFakeControlPlane());
  const path = (...parts: string[]): string => join(base, ...parts);
  return {
    dir,
    base,
    plane,
    path,
    async write(to, content, mode = 0o644) {
      await mkdir(join(base, to, '..'), { recursive: true });
      await writeFile(join(base, to), content, { mode });
    },
    async dataset(name) {
      const objects = new Map<string, string>();
      const made: FakeDataset = {
        source: {
          dataset_id: name,
          name,
          nfs_path: name,
          version: 0,
          manifest_digest: '',
          bytes: 0,
          files: 0,
        },
        objects,
        scans: 0,
        status: 'ok',
        async scan() {
          const { digest, bytes, files } = await manifestOf(Buffer.from(path(name)), objects);
          made.scans += 1;
          if (digest === made.source.manifest_digest) return;
          made.source = {
            ...made.source,
            version: made.source.version + 1,
            manifest_digest: digest,
            bytes,
            files,
          };
        },
      };
      await made.scan();
      plane.datasets.set(name, made);
      return made;
    },
    async stop() {
      if (given === undefined) await plane.stop();
      await rm(dir, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}

export type Site = {
  data: DatasetParts;
  root: string;
  storage: StorageMeter;
  containers: Container[];
  changes: () => number;
};
export type SiteOptions = Partial<Omit<DatasetPartsOptions, 'rsync'>> & {
  maxStorage?: number;
  rsync?: Partial<DatasetPartsOptions['rsync']>;
};
export const PATH = process.env['PATH'] ?? '/usr/bin:/bin';

/** Starts one agent's dataset parts. With `root` they share the SVC_ROOT of another agent. */
export async function startSite(
  share: Share,
  { maxStorage, rsync, ...over }: SiteOptions = {},
): Promise<Site> {
  const root = over.root ?? join(share.dir, `svc-${randomUUID().slice(0, 8)}`);
  const inherit = rsync?.inherit ?? { PATH };
  const storage = createStorage({ root, maxStorage, inherit, log: silentLogger() });
  const containers: Container[] = [];
  let changes = 0;
  const data = await createDatasetParts({
    client: createClient({ baseUrl: share.plane.url }),
    storage,
    listRuns: async () => containers.filter((c) => c.labels[LABELS.run] !== undefined),
    listContainers: async (labels) =>
      containers.filter((c) => Object.entries(labels).every(([k, v]) => c.labels[k] === v)),
    log: silentLogger(),
    root,
    share: share.base,
    agent: 'agent-1',
    keepReleases: () => 1,
    keepVersions: 3,
    copiesAtOnce: 2,
    watermarks: { high: 0.9, low: 0.8 },
    onChange: () => void (changes += 1),
    ...over,
    rsync: { stallMs: 20_000, timeoutMs: 60_000, bandwidth: undefined, ...rsync, inherit },
  });
  return { data, root, storage, containers, changes: () => changes };
}

export const never = new AbortController().signal;

/** A task context that records log lines and progress. */
export function context(over: Partial<TaskContext> = {}) {
  const logged: string[] = [];
  const progress: CopyProgress[] = [];
  const made: TaskContext = {
    attempt: 1,
    secrets: [],
    secretsDigest: null,
    signal: never,
    log: () => undefined,
    logStep: (_, text) => void logged.push(text),
    progress: (rows) => void progress.push(...rows),
    learned: () => undefined,
    room: () => null,
    note: () => undefined,
    ...over,
  };
  return { ...made, logged, lines: progress };
}

export async function ensureCached(
  site: Site,
  dataset: FakeDataset,
  signal: AbortSignal = never,
  logged: string[] = [],
): Promise<ProtectedVersion> {
  return site.data.cache.ensure(
    dataset.source,
    { onProgress: () => undefined, logLine: (text) => void logged.push(text) },
    signal,
  );
}

/** Compares a version's folder with its manifest, byte by byte. Throws the differences. */
export async function verifyVersion(
  root: string,
  datasetId: string,
  version: number,
  objects: ReadonlyMap<string, string>,
  digest: string,
): Promise<void> {
  const found = new Map<string, string>();
  const totals = await manifestOf(
    Buffer.from(join(root, 'objects', datasetId, `v${version}`)),
    found,
  );
  if (totals.digest === digest) return;
  const paths = async (root_: string, all: ReadonlyMap<string, string>): Promise<string[]> => {
    const list: string[] = [];
    for await (const { path, entry } of walkTree(root_, async (d) => all.get(d) ?? ''))
      list.push(`${path} ${JSON.stringify(entry)}`);
    return list;
  };
  throw new Error(
    `v${version} differs from its manifest:\n${(await paths(totals.digest, found)).join('\n')}` +
      `\n---\n${(await paths(digest, objects)).join('\n')}`,
  );
}
