/** Every way a build ends badly, with real git, buildx and registry: its own code, a sentence, and the workspace gone. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { startGitServer } from '@berth/testbed/git-server';
import type { TaskReport } from '@berth/wire/task';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildTask, until } from './fake-control-plane.ts';
import { missingParts, type RealParts, type Site, startRealParts, startSite } from './real-parts.ts';

const GOOD = 'FROM busybox:stable\nCMD ["true"]\n';
type Outcome = { report: TaskReport; code: string | undefined; message: string; text: string };

describe.skipIf(missingParts !== undefined)('builds that fail', () => {
  let parts: RealParts;
  let site: Site;
  beforeAll(async () => {
    parts = await startRealParts();
    site = await startSite(parts, { NODE_ROLE: 'builder', GIT_STALL_TIMEOUT: '1s', CLONE_TIMEOUT: '20s' });
  }, 120_000);
  afterAll(async () => {
    await site?.stop();
    await parts?.stop();
  }, 60_000);

  async function build(payload: Parameters<typeof buildTask>[0]): Promise<Outcome> {
    const { task } = site.plane.give(buildTask({ image_repository: `${parts.registry.address}/app`, ...payload }));
    const report = await site.plane.reported(task.id, 60_000);
    const error = typeof report.result === 'object' ? report.result?.error : undefined;
    return { report, code: error?.code, message: error?.message ?? '', text: site.plane.text(task.id) };
  }
  let repositories = 0;
  const repo = (files: Record<string, string>) => parts.git.createRepo(`r${(repositories += 1)}`, files);

  it('unknown branch', async () => {
    const { url } = await repo({ Dockerfile: GOOD });
    expect(await build({ git_url: url, branch: 'nowhere' })).toMatchObject({ code: 'git_unknown_branch', message: expect.stringContaining('nowhere') });
  });
  it('missing repository', async () => {
    expect(await build({ git_url: parts.git.repoUrl('missing') })).toMatchObject({ code: 'git_repository_not_found' });
  });
  it('credentials wanted', async () => {
    parts.git.behave({ status: 401 });
    expect(await build({ git_url: parts.git.repoUrl('private') })).toMatchObject({ code: 'git_credentials' });
    parts.git.behave('serve');
  });
  it('a server that never answers', async () => {
    parts.git.behave('mute');
    const outcome = await build({ git_url: parts.git.repoUrl('r1') });
    parts.git.behave('serve');
    expect(outcome).toMatchObject({ code: 'git_timeout' });
  });
  it('no server at all', async () => {
    expect(await build({ git_url: 'http://127.0.0.1:9/x.git' })).toMatchObject({ code: 'git_unreachable' });
    expect(await build({ git_url: 'ssh://git@127.0.0.1:9/x.git' })).toMatchObject({ code: 'git_unreachable' });
    expect(await build({ git_url: 'https://no-such-host.invalid/x.git' })).toMatchObject({ code: 'git_unreachable' });
  });
  it('a protocol that is not allowed', async () => {
    expect(await build({ git_url: 'file:///etc' })).toMatchObject({ code: 'git_failed' });
    expect(await build({ git_url: 'ext::sh -c true' })).toMatchObject({ code: 'git_failed' });
  });
  it('an old commit by its id; one that does not exist; one the server does not hand out', async () => {
    const { url, sha } = await repo({ Dockerfile: GOOD, 'a.txt': '1' });
    const name = `r${repositories}`;
    await parts.git.commit(name, { 'a.txt': '2' }, 'second');
    const built = await build({ git_url: url, commit: sha });
    expect(built.report, built.message).toMatchObject({ status: 'completed', commit: sha });
    expect(await build({ git_url: url, commit: '0123456789'.repeat(4) })).toMatchObject({ code: 'git_unknown_commit' });
    await parts.git.allowAnySha(name, false);
    expect(await build({ git_url: url, commit: sha })).toMatchObject({ code: 'git_commit_refused' });
  });
  it('no Dockerfile; one that leads out', async () => {
    const { url } = await repo({ 'README.md': 'x', 'sub/Dockerfile': GOOD });
    expect(await build({ git_url: url })).toMatchObject({ code: 'dockerfile_missing' });
    expect(await build({ git_url: url, dockerfile_path: 'sub' })).toMatchObject({ code: 'dockerfile_missing' });
    expect(await build({ git_url: url, dockerfile_path: '../Dockerfile' })).toMatchObject({ code: 'dockerfile_outside' });
    expect((await build({ git_url: url, dockerfile_path: 'sub/Dockerfile' })).report.status).toBe('completed');
  });
  it('a RUN that fails', async () => {
    const { url } = await repo({ Dockerfile: 'FROM busybox:stable\nRUN echo before\nRUN echo so it goes >&2; exit 3\n' });
    const outcome = await build({ git_url: url });
    expect(outcome).toMatchObject({ code: 'build_step_failed' });
    expect(outcome.message).toMatch(/\[3\/3\] RUN echo so it goes .*exit code 3\nso it goes/);
    expect(outcome.text).toContain('| before');
  });
  it('a COPY of what is not there', async () => {
    const { url } = await repo({ Dockerfile: 'FROM busybox:stable\nCOPY nothing /x\n' });
    expect(await build({ git_url: url })).toMatchObject({ code: 'build_step_failed', message: expect.stringContaining('COPY nothing') });
  });
  it('a Dockerfile that is none', async () => {
    const { url } = await repo({ Dockerfile: 'FROM busybox:stable\nRUNN x\n' });
    const outcome = await build({ git_url: url });
    expect(outcome).toMatchObject({ code: 'build_failed' });
    expect(outcome.message).toMatch(/unknown instruction: RUNN/i);
  });
  it('a base image that cannot be had', async () => {
    const { url } = await repo({ Dockerfile: `FROM ${parts.registry.address}/nobody/nothing:1\n` });
    expect(await build({ git_url: url })).toMatchObject({ code: 'build_base_image', message: expect.stringContaining('nobody/nothing') });
  });
  it('a registry that is not there; one that refuses', { timeout: 90_000 }, async () => {
    const { url } = await repo({ Dockerfile: GOOD });
    const nobody = `${parts.engine.gatewayIp}:9`;
    const away = await build({ git_url: url, image_repository: `${nobody}/app` });
    expect(away, away.text).toMatchObject({ code: 'registry_unreachable' });
  });
});
