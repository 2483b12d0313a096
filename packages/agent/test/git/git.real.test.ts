/** Clones with real git and real servers: redirects, submodules, LFS pointers, ssh keys. */
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type GitServer, startGitServer } from '@berth/testbed/git-server';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Cloned, CloneSpec } from '../../src/git/clone.ts';
import { cloneInto } from '../clone-into.ts';

const SECRET = 'a text of another host';
const INFO = '/info/refs?service=git-upload-pack';

let dir: string;
let git: GitServer;
let other: GitServer;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'berth-git-'));
  git = await startGitServer({ root: join(dir, 'git') });
  other = await startGitServer({ root: join(dir, 'other'), address: '127.0.0.2' });
});
afterEach(() => {
  git.behave('serve');
  other.behave('serve');
});
afterAll(async () => {
  await git?.stop();
  await other?.stop();
  await rm(dir, { recursive: true, force: true });
});

let count = 0;
type Outcome = { cloned: Cloned; files: () => Promise<string[]>; root: string; log: string[] };
async function clone(
  spec: Partial<CloneSpec> & { url: string },
  settings: { inherit?: NodeJS.ProcessEnv; sshKeyHosts?: readonly string[] } = {},
): Promise<Outcome> {
  const root = join(dir, `clone-${(count += 1)}`);
  const { cloned, log } = await cloneInto(
    root,
    dir,
    { access: null, ...spec },
    { home: join(dir, 'home'), ...settings },
  );
  const files = async (): Promise<string[]> =>
    (await readdir(root, { recursive: true }))
      .filter((file) => !file.split('/').includes('.git'))
      .sort();
  return { cloned, files, root, log };
}
const refused = (
  given: Parameters<typeof clone>[0],
): Promise<Error & { code: string; log: string[] }> =>
  clone(given).then(
    () => expect.unreachable('it was cloned'),
    (error: Error & { code: string; log: string[] }) => error,
  );
const names = (server: GitServer): string => new URL(server.url).host;

it('what an internal service answers to a clone is neither in the failure nor in the log', async () => {
  git.behave({ status: 404, text: SECRET });
  const error = await refused({ url: git.repoUrl('internal'), allowedHosts: [] });
  expect(error.code).toBe('git_repository_not_found');
  expect(`${error.message}\n${error.log.join('\n')}`).not.toContain(SECRET);
  // An operator who names the host in ALLOWED_GIT_HOSTS sees its messages.
  const chosen = await refused({ url: git.repoUrl('internal'), allowedHosts: ['127.0.0.1'] });
  expect(chosen.message).toContain(SECRET);
});

describe('redirects', () => {
  it('are followed within one host and port', async () => {
    const { sha } = await git.createRepo('moved', { 'a.txt': '1' });
    git.behave({
      redirect: (_, path) =>
        path.startsWith('/old.git') ? path.replace('/old.git', '/moved.git') : undefined,
    });
    const { cloned, log } = await clone({ url: git.repoUrl('old') });
    expect(cloned.sha).toBe(sha);
    expect(log.join('\n')).toContain(`redirected to ${git.repoUrl('moved')}`);
    expect(log.join('\n')).not.toContain('fatal');
    expect((await clone({ url: git.repoUrl('old'), commit: sha })).cloned.sha).toBe(sha);
  });

  it.each([
    ['at the first request', 'GET'],
    ['during the transfer', 'POST'],
  ])(
    'to another host are refused %s: the host gets no request and its text is not shown',
    async (_, when) => {
      await git.createRepo('leads-away', { 'a.txt': '1' });
      other.behave({ status: 403, text: SECRET });
      const before = other.requests();
      git.behave({
        redirect: (method, path) => (method === when ? `${other.url}${path}` : undefined),
      });
      const error = await refused({ url: git.repoUrl('leads-away') });
      expect(error).toMatchObject({ code: 'git_redirect_refused' });
      expect(error.message).toContain(names(git));
      expect(error.message).toContain(names(other));
      expect(`${error.message}\n${error.log.join('\n')}`).not.toContain(SECRET);
      expect(other.requests()).toBe(before);
    },
  );

  it('to a host that would serve the repository are refused too', async () => {
    await other.createRepo('there', { 'a.txt': '1' });
    git.behave({ redirect: () => `${other.repoUrl('there')}${INFO}` });
    expect(await refused({ url: git.repoUrl('there') })).toMatchObject({
      code: 'git_redirect_refused',
    });
  });

  it('to another port of the host, and without end, are refused', async () => {
    git.behave({ redirect: () => `http://127.0.0.1:9/x.git${INFO}` });
    expect((await refused({ url: git.repoUrl('x') })).message).toContain('http://127.0.0.1:9');
    let hops = 0;
    git.behave({ redirect: () => `/x${(hops += 1)}.git${INFO}` });
    expect(await refused({ url: git.repoUrl('x') })).toMatchObject({
      code: 'git_redirect_refused',
    });
    expect(hops).toBeLessThan(20);
  });

  it('to a page that is not a repository are refused with its address', async () => {
    git.behave({ redirect: (_, path) => (path === '/login' ? undefined : '/login') });
    expect((await refused({ url: git.repoUrl('x') })).message).toContain(`${git.url}/login`);
  });
});

describe('submodules', () => {
  const modules = (...urls: [path: string, url: string][]): string =>
    urls.map(([path, url]) => `[submodule "${path}"]\n\tpath = ${path}\n\turl = ${url}\n`).join('');

  it('are fetched by relative and full addresses, nested, and at old commits', async () => {
    const inner = await git.createRepo('inner', { 'inner.txt': 'i' });
    const lib = await git.createRepo('lib', {
      '.gitmodules': modules(['deep', '../inner.git']),
      deep: { submodule: inner.sha },
    });
    await git.commit('lib', { 'newer.txt': 'n' }, 'newer');
    const far = await other.createRepo('far', { 'far.txt': 'f' });
    const { url } = await git.createRepo('super', {
      '.gitmodules': modules(['vendor/lib', '../lib.git'], ['far', far.url]),
      'vendor/lib': { submodule: lib.sha },
      far: { submodule: far.sha },
    });
    const { files, log } = await clone({ url });
    expect(await files()).toEqual(
      [
        '.gitmodules',
        'far',
        'far/far.txt',
        'vendor',
        'vendor/lib',
        'vendor/lib/.gitmodules',
        'vendor/lib/deep',
        'vendor/lib/deep/inner.txt',
      ].sort(),
    );
    expect(log.join('\n')).toContain(`submodule vendor/lib at ${lib.sha}`);
  });

  it('of a server that serves no single commits are fetched by their branches', async () => {
    const lib = await git.createRepo('tips', { 'old.txt': 'o' });
    await git.commit('tips', { 'new.txt': 'n' }, 'newer');
    await git.allowAnySha('tips', false);
    const { url } = await git.createRepo('of-tips', {
      '.gitmodules': modules(['lib', '../tips.git']),
      lib: { submodule: lib.sha },
    });
    expect(await (await clone({ url })).files()).toEqual(['.gitmodules', 'lib', 'lib/old.txt']);
  });

  it.each<[string, string, readonly string[] | undefined, string]>([
    ['a host that is not allowed', 'far', ['127.0.0.1'], '127.0.0.2'],
    ['another host, if the control plane sends no list of hosts', 'far', undefined, '127.0.0.2'],
    ['this machine', 'file:///etc', [], 'file:///etc'],
    ['a program', 'ext::sh -c true', [], 'ext::sh'],
    ['an option', '--upload-pack=x', [], '--upload-pack=x'],
  ])('from %s are refused', async (_, address, allowedHosts, named) => {
    const far = await other
      .createRepo('far', { 'far.txt': 'f' })
      .catch(async () => ({ url: other.repoUrl('far'), sha: await other.head('far') }));
    const moduleUrl = address === 'far' ? far.url : address;
    const { url } = await git.createRepo(`refused-${(count += 1)}`, {
      '.gitmodules': modules(['lib', moduleUrl]),
      lib: { submodule: far.sha },
    });
    const before = other.requests();
    const error = await refused({ url, allowedHosts });
    expect(error).toMatchObject({ code: 'git_submodule_refused' });
    expect(error.message).toContain('lib');
    expect(error.message).toContain(named);
    expect(other.requests()).toBe(before);
  });

  it('that redirect to another host are refused with the name of the submodule', async () => {
    const lib = await git.createRepo('away', { 'a.txt': '1' });
    const { url } = await git.createRepo('of-away', {
      '.gitmodules': modules(['lib', '../away.git']),
      lib: { submodule: lib.sha },
    });
    other.behave({ status: 403, text: SECRET });
    git.behave({
      redirect: (_, path) => (path.startsWith('/away.git') ? `${other.url}${path}` : undefined),
    });
    const error = await refused({ url });
    expect(error).toMatchObject({ code: 'git_redirect_refused' });
    expect(error.message).toContain('submodule lib');
    expect(`${error.message}\n${error.log.join('\n')}`).not.toContain(SECRET);
  });

  it('without an address are named in the log', async () => {
    const lib = await git.createRepo('nameless', { 'a.txt': '1' });
    const { url } = await git.createRepo('of-nameless', {
      'a.txt': '1',
      lib: { submodule: lib.sha },
    });
    expect((await clone({ url })).log.join('\n')).toContain(
      'submodule lib stays empty: .gitmodules has no address for it',
    );
  });

  it('with update = none stay empty, as with git', async () => {
    const lib = await git.createRepo('optional', { 'a.txt': '1' });
    const { url } = await git.createRepo('of-optional', {
      '.gitmodules': `${modules(['lib', '../not-readable.git'])}\tupdate = none\n`,
      lib: { submodule: lib.sha },
    });
    expect((await clone({ url })).log.join('\n')).toContain(
      'submodule lib stays empty: .gitmodules says update = none',
    );
  });
});

it('LFS pointers are named in the log', async () => {
  const pointer = `version https://git-lfs.github.com/spec/v1\noid sha256:${'0'.repeat(64)}\nsize 12345\n`;
  const { url } = await git.createRepo('lfs', {
    '.gitattributes': '*.bin filter=lfs diff=lfs merge=lfs -text\n',
    'model.bin': pointer,
    'real.bin': 'the content itself',
    'text.txt': 'x',
  });
  const { log } = await clone({ url });
  expect(log.join('\n')).toContain('1 file is a Git LFS pointer, not its content: model.bin');
});

it('the commit’s author and message are returned without control characters', async () => {
  const { url } = await git.createRepo(
    'told',
    { 'a.txt': '1' },
    { message: `Fix \u001b[31mit\u0007\n\nWhy: ${'x'.repeat(5_000)}` },
  );
  const { cloned } = await clone({ url });
  expect(cloned.author).toBe('Berth Testbed');
  expect(cloned.message).toMatch(/^Fix \[31mit\n\nWhy: x+$/);
  expect(cloned.message.length).toBeLessThanOrEqual(2_000);
});

describe('ssh', () => {
  /** A fake ssh that records its arguments. A real one would need a key of the machine. */
  async function calls(sshKeyHosts: readonly string[], url: string): Promise<string> {
    const bin = join(dir, `bin-${(count += 1)}`);
    await mkdir(bin);
    const noted = join(bin, 'noted');
    await writeFile(
      join(bin, 'ssh'),
      `#!/bin/sh\necho "agent=$SSH_AUTH_SOCK $*" >> ${noted}\necho 'git@h: Permission denied ` +
        `(publickey).' >&2\nexit 255\n`,
    );
    await chmod(join(bin, 'ssh'), 0o755);
    const error = await clone(
      { url },
      {
        sshKeyHosts,
        inherit: { PATH: `${bin}:${process.env['PATH']}`, SSH_AUTH_SOCK: '/run/agent.sock' },
      },
    ).catch((e: unknown) => e);
    return `${await readFile(noted, 'utf8')}\n${(error as Error).message}`;
  }

  it('the builder’s keys are not offered to a host that SSH_KEY_HOSTS does not name', async () => {
    const said = await calls(['git.example.org'], 'git@evil.example.org:a/b.git');
    expect(said).toContain('-oPubkeyAuthentication=no');
    expect(said).toMatch(/^agent= /);
    expect(said).toContain('SSH_KEY_HOSTS');
    expect(said).toContain('evil.example.org');
  });
  it.each([
    'git@git.example.org:a/b.git',
    'ssh://git@git.example.org:2222/a/b.git',
    'ssh://git@GIT.example.org/a/b.git',
  ])('the builder’s keys are offered to a host that SSH_KEY_HOSTS names: %s', async (url) => {
    const said = await calls(['git.example.org'], url);
    expect(said).not.toContain('PubkeyAuthentication=no');
    expect(said).toMatch(/^agent=\/run\/agent.sock /);
    expect(said).toContain('StrictHostKeyChecking=accept-new');
  });
});
