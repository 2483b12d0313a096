/**
 * Inspects a repository for a new project: lists its branches, and the Dockerfiles, submodules and
 * Git LFS of one branch.
 */
import type { GitAccess, SeenHostKey } from '@berth/wire/git';
import {
  type DockerfileFound,
  MAX_BRANCHES_FOUND,
  MAX_DOCKERFILES_FOUND,
  type RepositoryFound,
} from '@berth/wire/repository-look';
import { dockerfileFacts, isDockerfilePath } from '../build/dockerfile-facts.ts';
import { TaskFailure } from '../failures.ts';
import type { LookGit } from './look.ts';
import type { RecordLimits } from './nul-records.ts';

/** `branch`: null for the default branch. */
export type RepositorySpec = { url: string; branch: string | null; access: GitAccess | null };
export type RepositoryLooked = { found: RepositoryFound; hostKeys: SeenHostKey[] };
/**
 * Inspects a repository, using the folder `dir`, which must not exist. Throws TaskFailure git_…,
 * disk_full.
 */
export type LookAtRepository = (
  spec: RepositorySpec,
  dir: string,
  signal: AbortSignal,
) => Promise<RepositoryLooked>;

export type RepositoryGit = Pick<LookGit, 'must' | 'code' | 'fetch'> & {
  /** Runs a command that contacts the server, and passes on each line of its output. */
  lines(args: (url: string) => readonly string[], onLine: (line: string) => void): Promise<unknown>;
  /**
   * Runs a local command, and passes on each record that ends with NUL. Ends the command when a
   * limit is reached.
   */
  records(
    args: readonly string[],
    limits: RecordLimits,
    onRecord: (record: string) => void,
  ): Promise<void>;
};

const TIP = 'refs/berth/tip';
/** Maximum number of branches to count. A server can send an endless list. */
const MAX_COUNTED = 100_000;
const MAX_NAME = 250;
const MAX_PATH = 400;
const MAX_FILE_BYTES = 128 * 1024;
/**
 * Limits for the list of files. A tree of a few bytes can contain the same folder many times, so
 * the list can be endless.
 */
const TREE: RecordLimits = { records: 200_000, bytes: 16 * 1024 * 1024, length: MAX_PATH + 100 };

export async function lookAtRepository(
  { branch }: RepositorySpec,
  git: RepositoryGit,
): Promise<RepositoryFound> {
  await git.must(['init', '--quiet', '--template=']);
  const heads = await readHeads(git);
  const wanted =
    branch ??
    heads.default ??
    ['main', 'master'].find((name) => heads.names.has(name)) ??
    [...heads.names][0] ??
    null;
  const ordered = [...heads.names].sort(
    (a, b) => Number(b === heads.default) - Number(a === heads.default) || (a < b ? -1 : 1),
  );
  const listed = {
    default_branch: heads.default,
    branches: ordered.slice(0, MAX_BRANCHES_FOUND),
    branches_left_out: Math.max(0, ordered.length - MAX_BRANCHES_FOUND),
  };
  if (wanted === null || !heads.names.has(wanted))
    return {
      ...listed,
      branch: null,
      commit: null,
      dockerfiles: [],
      dockerfiles_left_out: 0,
      submodules: false,
      lfs: false,
    };
  // A server without support for filters sends all objects.
  const fetch = [
    'fetch',
    '--quiet',
    '--depth=1',
    '--no-tags',
    '--no-recurse-submodules',
    '--filter=blob:none',
    '--',
  ];
  await git.fetch((url) => [...fetch, url, `+refs/heads/${wanted}:${TIP}`]);
  const commit = (await git.must(['rev-parse', '--verify', `${TIP}^{commit}`])).trim();
  const tree = await readTree(git);
  const texts = await readFiles(
    git,
    [...tree.dockerfiles, ...tree.attributes].map(({ id }) => id),
  );
  return {
    ...listed,
    branch: wanted,
    commit,
    dockerfiles: tree.dockerfiles.map(({ path, id }): DockerfileFound => {
      const text = texts.get(id);
      return text === undefined
        ? { path, ports: null, targets: [] }
        : { path, ...dockerfileFacts(text) };
    }),
    dockerfiles_left_out: tree.leftOut,
    submodules: tree.submodules,
    lfs: tree.attributes.some(({ id }) => hasLfs(texts.get(id) ?? '')),
  };
}

const hasLfs = (attributes: string): boolean =>
  attributes.split('\n').some((line) => /\bfilter=lfs\b/.test(line.split('#', 1)[0] ?? ''));

export type Heads = { default: string | null; names: Set<string> };
/** Reads the branches of the server, at most MAX_COUNTED. */
export async function readHeads(git: Pick<RepositoryGit, 'lines'>): Promise<Heads> {
  const heads: Heads = { default: null, names: new Set() };
  await git.lines(
    (url) => ['ls-remote', '--quiet', '--symref', '--', url, 'HEAD', 'refs/heads/*'],
    (line) => {
      const [, head] = /^ref: refs\/heads\/(.+)\tHEAD$/.exec(line) ?? [];
      if (head !== undefined && isName(head)) heads.default = head;
      const [, name] = /^[0-9a-f]+\trefs\/heads\/(.+)$/.exec(line) ?? [];
      if (name !== undefined && isName(name) && heads.names.size < MAX_COUNTED)
        heads.names.add(name);
    },
  );
  // An empty repository can name a default branch that does not exist.
  if (heads.default !== null && !heads.names.has(heads.default)) heads.default = null;
  return heads;
}
const isName = (name: string): boolean => name.length <= MAX_NAME && !/\p{Cc}/u.test(name);

type Entry = { path: string; id: string; isFile: boolean; isSubmodule: boolean };
type Tree = { dockerfiles: Entry[]; leftOut: number; attributes: Entry[]; submodules: boolean };

/** Keeps the Dockerfiles nearest to the root, and counts those that it leaves out. */
async function readTree(git: RepositoryGit): Promise<Tree> {
  const tree: Tree = { dockerfiles: [], leftOut: 0, attributes: [], submodules: false };
  const nearest: { entry: Entry; depth: number }[] = [];
  await git.records(['ls-tree', '-r', '-z', '--full-tree', TIP], TREE, (record) => {
    const entry = treeEntry(record);
    if (entry === null) return;
    tree.submodules ||= entry.isSubmodule;
    if (entry.isFile && entry.path === '.gitattributes') tree.attributes.push(entry);
    if (!isDockerfile(entry)) return;
    const depth = entry.path.split('/').length;
    const isAfter = (other: (typeof nearest)[number]): boolean =>
      other.depth > depth || (other.depth === depth && other.entry.path > entry.path);
    const at = nearest.findIndex(isAfter);
    nearest.splice(at === -1 ? nearest.length : at, 0, { entry, depth });
    if (nearest.length > MAX_DOCKERFILES_FOUND) {
      nearest.pop();
      tree.leftOut += 1;
    }
  });
  return { ...tree, dockerfiles: nearest.map(({ entry }) => entry) };
}

function treeEntry(record: string): Entry | null {
  const [, mode = '', id = '', path = ''] = /^(\d+) \S+ ([0-9a-f]+)\t(.*)$/s.exec(record) ?? [];
  if (path === '' || path.length > MAX_PATH || /\p{Cc}/u.test(path)) return null;
  return { path, id, isFile: mode.startsWith('100'), isSubmodule: mode === '160000' };
}

const isDockerfile = ({ path, isFile }: Entry): boolean => isFile && isDockerfilePath(path);

/** Fetches these files with the task's access, and reads those that arrived. */
async function readFiles(git: RepositoryGit, ids: readonly string[]): Promise<Map<string, string>> {
  const texts = new Map<string, string>();
  if (ids.length === 0) return texts;
  const fetch = [
    '-c',
    'fetch.negotiationAlgorithm=noop',
    'fetch',
    '--quiet',
    '--no-tags',
    '--no-write-fetch-head',
  ];
  try {
    await git.fetch((url) => [
      ...fetch,
      '--no-recurse-submodules',
      '--filter=blob:none',
      '--',
      url,
      ...new Set(ids),
    ]);
  } catch (error) {
    // The server does not serve single files. If it ignored the filter before, the files have
    // already arrived.
    if (!(error instanceof TaskFailure) || error.code === 'git_timeout') throw error;
  }
  for (const id of new Set(ids)) {
    if ((await git.code(['cat-file', '-e', id])) !== 0) continue;
    const size = Number(await git.must(['cat-file', '-s', id]));
    if (size <= MAX_FILE_BYTES) texts.set(id, await git.must(['cat-file', 'blob', id]));
  }
  return texts;
}
