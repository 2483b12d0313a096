/** Reads what a repository has for a new project, with real git and a real server. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type GitServer, startGitServer } from '@berth/testbed/git-server';
import { run } from '@berth/testbed/process';
import { isRepositoryFound, type RepositoryFound } from '@berth/wire/repository-look';
import { afterAll, afterEach, beforeAll, expect, it, onTestFinished } from 'vitest';
import { createPrivateFolder } from '../../src/state/private-folder.ts';
import { createGit } from '../../src/git/git.ts';
import type { RepositorySpec } from '../../src/git/repository.ts';
import { startTreelessServer } from '../treeless-server.ts';

let dir: string;
let git: GitServer;
let url: string;
let sha: string;
const bare = (...args: string[]) => run(['git', '--git-dir', join(dir, 'git', 'app.git'), ...args]);
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'berth-repository-'));
  git = await startGitServer({ root: join(dir, 'git') });
  ({ url, sha } = await git.createRepo('app', {
    'web/Dockerfile': 'FROM a AS dev\nFROM b\nEXPOSE 3000',
    Dockerfile: 'FROM x\nEXPOSE 8080 9090',
    'Dockerfile.worker': 'FROM x',
    'tools/lint.dockerfile': 'FROM x',
    'node_modules/thing/Dockerfile': 'FROM no',
    'Dockerfile.dockerignore': '*',
    '.gitattributes': '# filter=lfs is off\n*.bin filter=lfs diff=lfs',
    'src/secret.txt': 'never fetched',
  }));
  await git.commit('app', { 'only-here/Dockerfile': 'FROM y\nEXPOSE 1' }, 'other', {
    branch: 'feature/x',
    from: 'main',
  });
  await bare('config', 'uploadpack.allowFilter', 'true');
});
afterEach(() => {
  git.behave('serve');
  git.require(undefined);
});
afterAll(async () => {
  await git?.stop();
  await rm(dir, { recursive: true, force: true });
});

let count = 0;
async function lookAt(over: Partial<RepositorySpec> = {}): Promise<RepositoryFound> {
  const tools = createGit({
    homeDir: join(dir, 'home'),
    inherit: { PATH: process.env['PATH'] },
    cloneTimeoutMs: 30_000,
    stallTimeoutMs: 5_000,
    sshKeyHosts: [],
    keys: createPrivateFolder('/dev/shm', dir),
  });
  const spec = { url, branch: null, access: null, ...over };
  const { found } = await tools.lookAtRepository(
    spec,
    join(dir, `look-${(count += 1)}`),
    AbortSignal.timeout(30_000),
  );
  expect(isRepositoryFound(found)).toBe(true);
  return found;
}

it('finds the default branch, all branches, and the Dockerfiles with ports and stages', async () => {
  expect(await lookAt()).toEqual({
    default_branch: 'main',
    branches: ['main', 'feature/x'],
    branches_left_out: 0,
    branch: 'main',
    commit: sha,
    dockerfiles: [
      { path: 'Dockerfile', ports: [8080, 9090], targets: [] },
      { path: 'Dockerfile.worker', ports: [], targets: [] },
      { path: 'tools/lint.dockerfile', ports: [], targets: [] },
      { path: 'web/Dockerfile', ports: [3000], targets: [{ name: 'dev', ports: [] }] },
    ],
    dockerfiles_left_out: 0,
    submodules: false,
    lfs: true,
  });
});

it('fetches only the files that it reads, in three exchanges, and nothing later', async () => {
  const before = git.requests();
  await lookAt();
  const objects = await run([
    'git',
    '-C',
    join(dir, `look-${count}`),
    'rev-list',
    '--objects',
    '--missing=print',
    '--all',
  ]);
  const missing = objects.stdout.split('\n').filter((line) => line.startsWith('?'));
  // src/secret.txt, and two files that only look like Dockerfiles.
  expect(missing.length).toBe(3);
  // The list of branches (2 requests), the tree (3), the files (3 or 2).
  expect(git.requests() - before).toBeLessThanOrEqual(8);
});

it('reads another branch, and says so if the repository does not have it', async () => {
  expect((await lookAt({ branch: 'feature/x' })).dockerfiles.map(({ path }) => path)).toContain(
    'only-here/Dockerfile',
  );
  expect(await lookAt({ branch: 'no/such' })).toMatchObject({
    branch: null,
    commit: null,
    dockerfiles: [],
    branches: ['main', 'feature/x'],
  });
});

it('reads a repository whose server knows neither filters nor single files', async () => {
  await bare('config', 'uploadpack.allowFilter', 'false');
  await bare('config', 'protocol.version', '0');
  await git.allowAnySha('app', false);
  const found = await lookAt();
  await git.allowAnySha('app', true);
  await bare('config', 'uploadpack.allowFilter', 'true');
  expect(found.dockerfiles[0]).toEqual({ path: 'Dockerfile', ports: [8080, 9090], targets: [] });
});

it('lists at most 200 branches and 20 Dockerfiles, and counts the rest', async () => {
  const files = Object.fromEntries(
    Array.from({ length: 30 }, (_, i) => [
      `s${String(i).padStart(2, '0')}/Dockerfile`,
      `FROM x\n# ${i}`,
    ]),
  );
  const many = await git.createRepo('many', files);
  const update = (ref: string) =>
    run(['git', '--git-dir', join(dir, 'git', 'many.git'), 'update-ref', ref, many.sha]);
  for (let i = 0; i < 250; i++) await update(`refs/heads/b${i}`);
  const found = await lookAt({ url: many.url });
  expect([found.branches.length, found.branches[0], found.branches_left_out]).toEqual([
    200,
    'main',
    51,
  ]);
  expect([found.dockerfiles.length, found.dockerfiles_left_out]).toEqual([20, 10]);
});

it('reads a part of a tree without end, and the Dockerfiles nearest to the root', async () => {
  const bomb = await git.createRepo('bomb', { Dockerfile: 'FROM x\nEXPOSE 1' });
  const inBomb = async (args: string[], input?: string): Promise<string> =>
    (
      await run(
        ['git', '--git-dir', join(dir, 'git', 'bomb.git'), ...args],
        input === undefined ? {} : { input },
      )
    ).stdout.trim();
  const file = await inBomb(['rev-parse', 'main:Dockerfile']);
  // 10 folders in each of 8 levels, so 100 million files in 9 objects.
  const folders = (id: string): string =>
    Array.from({ length: 10 }, (_, i) => `040000 tree ${id}\ta${i}\n`).join('');
  let tree = await inBomb(['mktree'], `100644 blob ${file}\tDockerfile\n`);
  for (let level = 0; level < 8; level++) tree = await inBomb(['mktree'], folders(tree));
  const root = await inBomb(
    ['mktree'],
    `100644 blob ${file}\tDockerfile\n040000 tree ${tree}\tz\n`,
  );
  const commit = await inBomb([
    '-c',
    'user.name=x',
    '-c',
    'user.email=x@y',
    'commit-tree',
    root,
    '-m',
    'bomb',
  ]);
  await inBomb(['update-ref', 'refs/heads/main', commit]);
  const found = await lookAt({ url: bomb.url });
  expect(found.dockerfiles).toHaveLength(20);
  expect(found.dockerfiles[0]).toEqual({ path: 'Dockerfile', ports: [1], targets: [] });
  // 16 MiB of the list.
  expect(found.dockerfiles_left_out).toBeGreaterThan(100_000);
  expect(found.dockerfiles_left_out).toBeLessThan(200_000);
});

it('does not ask a server again for what it left out, because git would ask without the access of the task', async () => {
  const treeless = await startTreelessServer(git.url);
  onTestFinished(() => treeless.stop());
  const address = url.replace(git.url, treeless.url);
  await expect(lookAt({ url: address })).rejects.toMatchObject({ code: 'git_failed' });
  // The list of branches (2), the commit without a tree (3).
  expect(treeless.requests()).toBe(5);
});

it('reads .gitattributes with other line ends', async () => {
  const { url } = await git.createRepo('attributes', {
    '.gitattributes': `# x\r\n*.bin filter=lfs\r\n${'\r'.repeat(120_000)}`,
  });
  expect((await lookAt({ url })).lfs).toBe(true);
  const none = await git.createRepo('no-attributes', {
    '.gitattributes': `${'\r'.repeat(120_000)}\n# filter=lfs\n`,
  });
  expect((await lookAt({ url: none.url })).lfs).toBe(false);
});

it('reads an empty repository', async () => {
  await run(['git', 'init', '--quiet', '--bare', '-b', 'main', join(dir, 'git', 'empty.git')]);
  expect(await lookAt({ url: git.repoUrl('empty') })).toMatchObject({
    default_branch: null,
    branches: [],
    branch: null,
  });
});

it('fails with the codes of a build, and follows no redirect to another host', async () => {
  await expect(lookAt({ url: git.repoUrl('absent') })).rejects.toMatchObject({
    code: expect.stringMatching(/^git_/),
  });
  git.require({ user: 'u', password: 'p' });
  await expect(lookAt()).rejects.toMatchObject({ code: 'git_credentials' });
  git.require(undefined);
  git.behave({ redirect: () => 'http://169.254.169.254/info/refs?service=git-upload-pack' });
  await expect(lookAt()).rejects.toMatchObject({ code: expect.stringMatching(/^git_/) });
});
