import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findProgram } from '../src/config.ts';
import { hermeticGit } from '../src/git-repo.ts';
import { type GitServer, startGitServer } from '../src/git-server.ts';
import { run } from '../src/process.ts';

// git exists where the code was cloned with it; a checkout unpacked from an archive may lack it.
describe.skipIf(findProgram('git') === undefined)('git server', () => {
  let folder: string;
  let server: GitServer;
  const gitIn = (dir: string, ...args: string[]) =>
    run(['git', '-C', dir, ...args], { env: hermeticGit, mayFail: true, deadlineMs: 15_000 });

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'berth-git-'));
    server = await startGitServer({ root: join(folder, 'repositories') });
  });
  afterAll(async () => {
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  });

  it('serves a branch with contents, modes and commits in order', async () => {
    const { url, sha } = await server.createRepo('site', {
      'a/b.txt': 'one',
      'run.sh': { content: '#!/bin/sh\n', executable: true },
    });
    const second = await server.commit('site', { 'a/b.txt': 'two' }, 'second');
    const clone = join(folder, 'clone');
    await run(['git', 'clone', '--quiet', '--depth', '2', url, clone], { env: hermeticGit });
    expect(await readFile(join(clone, 'a/b.txt'), 'utf8')).toBe('two');
    expect((await stat(join(clone, 'run.sh'))).mode & 0o111).not.toBe(0);
    expect((await gitIn(clone, 'log', '--format=%H')).stdout.trim().split('\n')).toEqual([
      second,
      sha,
    ]);
    expect(await server.head('site')).toBe(second);
  });

  it('refuses a push', async () => {
    const { url } = await server.createRepo('closed', { x: '1' });
    const clone = join(folder, 'closed');
    await run(['git', 'clone', '--quiet', url, clone], { env: hermeticGit });
    const pushed = await gitIn(clone, 'push', 'origin', 'HEAD:refs/heads/mine');
    expect(pushed.code).not.toBe(0);
    expect(pushed.stderr).toContain('403');
  });

  it('accepts a push of several megabytes (chunked, gzip negotiation) where pushes are allowed, only with the password', async () => {
    const open = await startGitServer({
      root: join(folder, 'open'),
      push: true,
      credentials: { user: 'me', password: 's3cret' },
    });
    try {
      const { url } = await open.createRepo('big', { x: '1' });
      const clone = join(folder, 'big');
      const refused = await run(['git', 'clone', '--quiet', url, clone], {
        env: hermeticGit,
        mayFail: true,
      });
      expect(refused.stderr).toMatch(/Username|Authentication/);
      const withPassword = url.replace('http://', 'http://me:s3cret@');
      await run(['git', 'clone', '--quiet', withPassword, clone], { env: hermeticGit });
      await writeFile(join(clone, 'noise'), randomBytes(4_000_000));
      await gitIn(clone, 'add', 'noise');
      await gitIn(
        clone,
        '-c',
        'user.name=t',
        '-c',
        'user.email=t@example.invalid',
        'commit',
        '--quiet',
        '-m',
        'noise',
      );
      const pushed = await gitIn(clone, 'push', 'origin', 'HEAD:refs/heads/main');
      expect(pushed.stderr).not.toContain('error');
      expect(await open.head('big')).toBe((await gitIn(clone, 'rev-parse', 'HEAD')).stdout.trim());
    } finally {
      await open.stop();
    }
  });

  it('unpacks a gzip request body', async () => {
    const { url } = await server.createRepo('gzip', { x: '1' });
    const line = (text: string) => `${(text.length + 4).toString(16).padStart(4, '0')}${text}`;
    const body = gzipSync(
      `${line('command=ls-refs\n')}0001${line('ref-prefix refs/heads/\n')}0000`,
    );
    const answer = await fetch(`${url}/git-upload-pack`, {
      method: 'POST',
      body,
      headers: {
        'content-type': 'application/x-git-upload-pack-request',
        'content-encoding': 'gzip',
        'git-protocol': 'version=2',
      },
    });
    expect(await answer.text()).toContain('refs/heads/main');
  });

  it('serves a commit by its id, and refuses to after allowAnySha(false)', async () => {
    const { url, sha } = await server.createRepo('pinned', { x: '1' });
    await server.commit('pinned', { x: '2' }, 'second');
    const fetchInto = async (name: string) => {
      const dir = join(folder, name);
      await run(['git', 'init', '--quiet', dir], { env: hermeticGit });
      return gitIn(dir, 'fetch', '--quiet', '--depth', '1', url, sha);
    };
    expect((await fetchInto('allowed')).code).toBe(0);
    await server.allowAnySha('pinned', false);
    const refused = await fetchInto('refused');
    expect(refused.code).not.toBe(0);
    expect(refused.stderr).toContain('unadvertised object');
  });

  it('can stay silent, answer errors, and serve again', async () => {
    const { url } = await server.createRepo('moody', { x: '1' });
    const list = () =>
      run(['git', 'ls-remote', url], { env: hermeticGit, mayFail: true, deadlineMs: 1_000 });
    server.behave({ status: 500 });
    expect((await list()).stderr).toContain('500');
    server.behave('mute');
    await expect(list()).rejects.toThrow('timed out after 1000 ms');
    server.behave('serve');
    expect((await list()).stdout).toContain('refs/heads/main');
  });
});
