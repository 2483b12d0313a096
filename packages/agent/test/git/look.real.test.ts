/**
 * Looks at a branch with real git and a real server: the tip, skip marks, and paths that differ.
 */
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type GitServer, startGitServer } from '@berth/testbed/git-server';
import { run } from '@berth/testbed/process';
import { afterAll, afterEach, beforeAll, expect, it, onTestFinished } from 'vitest';
import { createPrivateFolder } from '../../src/state/private-folder.ts';
import { createGit } from '../../src/git/git.ts';
import type { Looked, LookSpec } from '../../src/git/look.ts';
import { startTreelessServer } from '../treeless-server.ts';

let dir: string;
let git: GitServer;
let url: string;
let first: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'berth-look-'));
  git = await startGitServer({ root: join(dir, 'git') });
  const files = {
    'src/a.ts': '1',
    'src/deep/b.ts': '1',
    'notes/c.md': '1',
    'package.json': '1',
    'web/package.json': '1',
  };
  ({ url, sha: first } = await git.createRepo('app', files));
  // Like the forges: the server leaves out what the look does not need.
  await run([
    'git',
    '--git-dir',
    join(dir, 'git', 'app.git'),
    'config',
    'uploadpack.allowFilter',
    'true',
  ]);
});
afterEach(() => git.behave('serve'));
afterAll(async () => {
  await git?.stop();
  await rm(dir, { recursive: true, force: true });
});

let count = 0;
function look(over: Partial<LookSpec> = {}): Promise<Looked> {
  const tools = createGit({
    homeDir: join(dir, 'home'),
    inherit: { PATH: process.env['PATH'] },
    cloneTimeoutMs: 30_000,
    stallTimeoutMs: 5_000,
    sshKeyHosts: [],
    keys: createPrivateFolder('/dev/shm', dir),
  });
  const spec = { url, branch: 'main', watchPaths: [], bases: [], access: null, ...over };
  return tools.look(spec, join(dir, `look-${(count += 1)}`), AbortSignal.timeout(30_000));
}
const changed = async (
  base: string,
  ...watchPaths: string[]
): Promise<boolean | null | undefined> =>
  (await look({ bases: [base], watchPaths })).changes[0]?.changed;

it('reads the tip with its message and author, and no files', async () => {
  const sha = await git.commit('app', { 'src/a.ts': '2' }, 'A title\n\nA body');
  expect(await look()).toEqual({
    sha,
    message: 'A title\n\nA body',
    author: 'Berth Testbed',
    skipMark: null,
    changes: [],
  });
  expect(await readdir(join(dir, `look-${count}`))).toEqual(['.git']);
});

it('talks to the server only to fetch: git must not fetch a missing object later, without the access of the project', async () => {
  await git.commit('app', { 'src/a.ts': 'another' }, 'another');
  const requestsOf = async (over: Partial<LookSpec>): Promise<number> => {
    const before = git.requests();
    await look(over);
    return git.requests() - before;
  };
  // The list of references, the wanted ones, and the objects.
  const fetch = 3;
  expect(await requestsOf({})).toBe(fetch);
  expect(await requestsOf({ watchPaths: ['src', '**/*.json'], bases: [first] })).toBe(2 * fetch);
});

it('does not ask a server again for trees that it left out, and does not know what changed', async () => {
  const treeless = await startTreelessServer(git.url);
  onTestFinished(() => treeless.stop());
  await git.commit('app', { 'src/a.ts': 'without trees' }, 'without trees');
  const looked = await look({
    url: url.replace(git.url, treeless.url),
    watchPaths: ['src'],
    bases: [first],
  });
  expect([looked.message, looked.changes]).toEqual([
    'without trees',
    [{ base: first, changed: null }],
  ]);
  // 3 for the tip, 3 for the earlier commit.
  expect(treeless.requests()).toBe(6);
});

it('finds a skip mark anywhere in the message, in any capitalization', async () => {
  await git.commit('app', { 'src/a.ts': '3' }, `A long message\n\n${'x'.repeat(5_000)}\n[Skip CI]`);
  expect((await look()).skipMark).toBe('[skip ci]');
  await git.commit('app', { 'src/a.ts': '4' }, 'skip ci without brackets');
  expect((await look()).skipMark).toBeNull();
});

it('compares watched paths with an earlier commit', async () => {
  const before = await git.commit('app', { 'src/a.ts': '5' }, 'before');
  expect(await changed(before, 'src')).toBe(false);
  await git.commit('app', { 'notes/c.md': '2', 'web/package.json': '2' }, 'notes and web');
  expect(await changed(before, 'src', 'Dockerfile')).toBe(false);
  expect(await changed(before, 'notes')).toBe(true);
  expect(await changed(before, 'notes/')).toBe(true);
  expect(await changed(before, '*.md')).toBe(false);
  expect(await changed(before, '**/*.md')).toBe(true);
  expect(await changed(before, 'package.json')).toBe(false);
  expect(await changed(before, '**/package.json')).toBe(true);
  expect(await changed(before, 'src', 'web/*')).toBe(true);
  await git.commit('app', { 'src/deep/b.ts': null }, 'a file is deleted');
  expect(await changed(before, 'src/*.ts')).toBe(false);
  expect(await changed(before, 'src/**')).toBe(true);
});

it('does not know whether paths changed if the server does not serve the earlier commit', async () => {
  expect(await changed('a'.repeat(40), 'src')).toBeNull();
  await git.allowAnySha('app', false);
  try {
    expect(await changed(first, 'src')).toBeNull();
  } finally {
    await git.allowAnySha('app', true);
  }
});

it('fails with the reason: no such branch, no answer, an error of the server', async () => {
  await expect(look({ branch: 'gone' })).rejects.toMatchObject({ code: 'git_unknown_branch' });
  git.behave({ status: 404 });
  await expect(look()).rejects.toMatchObject({ code: 'git_repository_not_found' });
  git.behave({ status: 403 });
  await expect(look()).rejects.toMatchObject({ code: 'git_credentials' });
  await expect(look({ url: 'http://127.0.0.1:1/app.git' })).rejects.toMatchObject({
    code: 'git_unreachable',
  });
});

it('passes a pattern to git as a pattern, whatever it contains', async () => {
  for (const pattern of ['--output=/tmp/x', ':(exclude)src', '$(id)', '[', 'a b'])
    expect(await changed(first, pattern), pattern).toBe(false);
});
