/**
 * The folder that a command runs in: which project it names, and what `deploy` says about it. Real
 * git repositories.
 */
import { execFileSync } from 'node:child_process';
import { chownSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { beforeAll, describe, expect, test, vi } from 'vitest';
import { createProject } from '../../control-plane/test/api/harness.ts';
import { type Person, serveOnce, signedIn } from './support.ts';

/** Each test starts dozens of git processes. */
vi.setConfig({ testTimeout: 60_000 });
const served = serveOnce();
let who: Person;
const URLS = { shop: 'https://git.example.com/shop.git', blog: 'https://git.example.com/blog.git' };
/** Without the machine's settings; git still checks the owner of a folder. */
const alone = { GIT_CONFIG_NOSYSTEM: '1', GIT_CONFIG_GLOBAL: '/dev/null' };
const env = { ...alone, PATH: process.env['PATH'] ?? '' };

beforeAll(async () => {
  who = await signedIn(served.url);
  for (const [name, git_url] of Object.entries(URLS))
    await createProject(served.api, { name, domain_prefix: name, git_url });
}, 60_000);

const git = (cwd: string, ...args: string[]): void =>
  void execFileSync(
    'git',
    ['-c', 'user.name=a', '-c', 'user.email=a@b', '-c', 'protocol.file.allow=always', ...args],
    {
      cwd,
      stdio: 'ignore',
      env: { ...process.env, ...alone },
    },
  );
/** A repository with one commit, which git believes to be pushed. */
function repository(name: string, remotes: Record<string, string> = { origin: URLS.shop }): string {
  const at = join(who.home, name);
  mkdirSync(at, { recursive: true });
  git(at, 'init', '-q', '-b', 'main');
  for (const [remote, url] of Object.entries(remotes)) git(at, 'remote', 'add', remote, url);
  writeFileSync(join(at, 'Dockerfile'), 'FROM scratch\n');
  git(at, 'add', '.');
  git(at, 'commit', '-q', '-m', 'first');
  for (const remote of Object.keys(remotes))
    git(at, 'update-ref', `refs/remotes/${remote}/main`, 'HEAD');
  return at;
}
/** The project that a command in the folder is about. */
async function projectOf(cwd: string): Promise<unknown> {
  const { code, out, err } = await who.berth(['project', 'show', '--json'], { cwd, env });
  return code === 0 ? (JSON.parse(out) as { name: string }).name : JSON.parse(err);
}
/** The notes of `deploy` about the folder. */
async function notes(cwd: string): Promise<string[]> {
  const { code, err } = await who.berth(['deploy', '--detach'], { cwd, env });
  expect(code, err).toBe(0);
  return err.split('\n').flatMap((line) => (line.startsWith('note: ') ? [line.slice(6)] : []));
}

describe('which project', () => {
  test('a remote that url.<base>.insteadOf abbreviates is the address that git itself uses', async () => {
    const base = URLS.shop.slice(0, URLS.shop.lastIndexOf('/') + 1);
    const at = repository('abbreviated', { origin: `gh:${URLS.shop.slice(base.length)}` });
    git(at, 'config', `url.${base}.insteadOf`, 'gh:');
    expect(await projectOf(at)).toBe('shop');
  });

  test('a path with blanks and letters of other scripts, and a folder below the root', async () => {
    const at = repository('my shöp 店 – “x”');
    mkdirSync(join(at, 'src/深い'), { recursive: true });
    expect(await projectOf(join(at, 'src/深い'))).toBe('shop');
    expect(await notes(at)).toEqual([]);
  });

  test('several remotes: the one that a project builds from, and no guess between two', async () => {
    expect(
      await projectOf(
        repository('fork', { origin: 'https://git.example.com/me/fork.git', upstream: URLS.shop }),
      ),
    ).toBe('shop');
    expect(
      await projectOf(repository('both', { origin: URLS.shop, mirror: URLS.blog })),
    ).toMatchObject({
      exit_code: 2,
      detail: 'several projects build from this repository: blog, shop',
      next: expect.stringContaining('berth link'),
    });
  });

  test('a worktree and a submodule belong to their own repository', async () => {
    const at = repository('with-parts');
    git(at, 'worktree', 'add', '-q', '../worktree');
    expect(await projectOf(join(who.home, 'worktree'))).toBe('shop');
    const part = repository('part', { origin: URLS.blog });
    git(at, 'submodule', 'add', '-q', part, 'part');
    git(join(at, 'part'), 'remote', 'set-url', 'origin', URLS.blog);
    expect(await projectOf(join(at, 'part'))).toBe('blog');
    expect(await projectOf(at)).toBe('shop');
  });

  test('a bare repository', async () => {
    const at = join(who.home, 'bare.git');
    git(who.home, 'clone', '-q', '--bare', repository('to-clone'), at);
    git(at, 'remote', 'set-url', 'origin', URLS.shop);
    expect(await projectOf(at)).toBe('shop');
  });
});

describe('deploy says how the folder differs from what Berth builds', () => {
  test('nothing to say: everything is pushed', async () =>
    expect(await notes(repository('clean'))).toEqual([]));

  test('not committed, not pushed, on another branch, behind, never pushed', async () => {
    const at = repository('busy');
    writeFileSync(join(at, 'ä "b".txt'), 'a');
    writeFileSync(join(at, 'my.berth.json'), '{}');
    expect(await notes(at)).toEqual(['2 files are not committed; Berth builds what is pushed']);
    git(at, 'add', '.');
    git(at, 'checkout', '-q', '-b', 'topic');
    git(at, 'commit', '-q', '-m', 'second');
    expect(await notes(at)).toEqual([
      'HEAD (branch topic) is 1 commit ahead of origin/main as last fetched; push first: git ' +
        'push origin HEAD:main',
    ]);
    git(at, 'update-ref', 'refs/remotes/origin/main', 'HEAD');
    git(at, 'checkout', '-q', 'main');
    expect(await notes(at)).toEqual([
      'HEAD is 1 commit behind origin/main as last fetched; Berth builds the newer one',
    ]);
    git(at, 'update-ref', '-d', 'refs/remotes/origin/main');
    expect(await notes(at)).toEqual([
      expect.stringContaining('never fetched from or pushed to origin'),
    ]);
  });

  test('a detached HEAD and a repository without a commit', async () => {
    const at = repository('detached');
    git(at, 'checkout', '-q', '--detach');
    expect(await notes(at)).toEqual([]);
    const empty = join(who.home, 'no-commit');
    mkdirSync(empty);
    git(empty, 'init', '-q');
    git(empty, 'remote', 'add', 'origin', URLS.shop);
    expect(await notes(empty)).toEqual(['this repository has no commit yet']);
  });
});

describe('where git cannot be read, the reason is named', () => {
  const named = async (cwd: string, more: Record<string, string> = {}): Promise<string> => {
    const { code, out, err } = await who.berth(['deploy'], { cwd, env: { ...env, ...more } });
    expect({ code, out }).toEqual({ code: 2, out: '' });
    return err;
  };

  test('a folder that is not in a repository', async () => {
    const at = join(who.home, 'plain');
    mkdirSync(at);
    expect(await named(at)).toContain('this folder is not in a git repository');
  });

  test('no git on the PATH', async () => {
    expect(await named(repository('no-git'), { PATH: dirname(process.execPath) })).toContain(
      'git is not installed',
    );
  });

  test.runIf(process.getuid?.() === 0)(
    'a repository of another user, which git refuses to read',
    async () => {
      const at = repository('of-another-user');
      for (const path of ['.', ...readdirSync(at)]) chownSync(join(at, path), 12_345, 12_345);
      expect(await named(at)).toContain(`git config --global --add safe.directory ${at}`);
    },
  );

  test('a repository without a remote', async () => {
    expect(await named(repository('no-remote', {}))).toContain('this repository has no remote');
  });
});
