/**
 * Builds that fail, with real git, buildx and registry: each has its own code and message, and the
 * workspace is removed.
 */
import { execOk } from '@berth/kit/exec';
import { randomUUID } from 'node:crypto';
import { mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { processesOf } from '@berth/testbed/process';
import type { TaskReport } from '@berth/wire/task';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildTask, startFakeControlPlane, until } from '../fake-control-plane.ts';
import {
  missingParts,
  type RealParts,
  type Site,
  startRealParts,
  startSite,
} from '../real-parts.ts';

const GOOD = 'FROM busybox:stable\nCMD ["true"]\n';
type Outcome = { report: TaskReport; code: string | undefined; message: string; text: string };

describe.skipIf(missingParts !== undefined)('builds that fail', () => {
  let parts: RealParts;
  let site: Site;
  beforeAll(async () => {
    parts = await startRealParts();
    site = await startSite(parts, {
      NODE_ROLE: 'builder',
      GIT_STALL_TIMEOUT: '1s',
      CLONE_TIMEOUT: '20s',
    });
  }, 120_000);
  afterAll(async () => {
    await site?.stop();
    await parts?.stop();
  }, 60_000);

  async function build(payload: Parameters<typeof buildTask>[0]): Promise<Outcome> {
    const { task } = site.plane.give(
      buildTask({ image_repository: `${parts.registry.address}/app`, ...payload }),
    );
    const report = await site.plane.reported(task.id, 60_000);
    const error = typeof report.result === 'object' ? report.result?.error : undefined;
    return {
      report,
      code: error?.code,
      message: error?.message ?? '',
      text: site.plane.text(task.id),
    };
  }
  let repositories = 0;
  const repo = (files: Record<string, string>) =>
    parts.git.createRepo(`r${(repositories += 1)}`, files);

  it('an unknown branch fails with git_unknown_branch', async () => {
    const { url } = await repo({ Dockerfile: GOOD });
    expect(await build({ git_url: url, branch: 'nowhere' })).toMatchObject({
      code: 'git_unknown_branch',
      message: expect.stringMatching(
        /nowhere\. The repository has main \(default\); set branch to one of them/,
      ),
    });
  });
  it('a missing repository fails with git_repository_not_found', async () => {
    expect(await build({ git_url: parts.git.repoUrl('missing') })).toMatchObject({
      code: 'git_repository_not_found',
    });
  });
  it('a repository that needs credentials fails with git_credentials', async () => {
    parts.git.behave({ status: 401 });
    expect(await build({ git_url: parts.git.repoUrl('private') })).toMatchObject({
      code: 'git_credentials',
    });
    parts.git.behave('serve');
  });
  it('a git server that never answers fails with git_timeout', async () => {
    parts.git.behave('mute');
    const outcome = await build({ git_url: parts.git.repoUrl('r1') });
    parts.git.behave('serve');
    expect(outcome).toMatchObject({ code: 'git_timeout' });
  });
  it('an unreachable git server fails with git_unreachable', async () => {
    expect(await build({ git_url: 'http://127.0.0.1:9/x.git' })).toMatchObject({
      code: 'git_unreachable',
    });
    expect(await build({ git_url: 'ssh://git@127.0.0.1:9/x.git' })).toMatchObject({
      code: 'git_unreachable',
    });
    expect(await build({ git_url: 'https://no-such-host.invalid/x.git' })).toMatchObject({
      code: 'git_unreachable',
    });
  });
  it('a protocol that is not allowed fails with git_failed', async () => {
    expect(await build({ git_url: 'file:///etc' })).toMatchObject({ code: 'git_failed' });
    expect(await build({ git_url: 'ext::sh -c true' })).toMatchObject({ code: 'git_failed' });
  });
  it('an old commit is built by its id; an unknown or refused commit fails', async () => {
    const { url, sha } = await repo({ Dockerfile: GOOD, 'a.txt': '1' });
    const name = `r${repositories}`;
    await parts.git.commit(name, { 'a.txt': '2' }, 'second');
    const built = await build({ git_url: url, commit: sha });
    expect(built.report, built.message).toMatchObject({ status: 'completed', commit: sha });
    expect(await build({ git_url: url, commit: '0123456789'.repeat(4) })).toMatchObject({
      code: 'git_unknown_commit',
    });
    await parts.git.allowAnySha(name, false);
    expect(await build({ git_url: url, commit: sha })).toMatchObject({
      code: 'git_commit_refused',
    });
  });
  it('a build with much output succeeds while the control plane takes no lines, and none of them is lost', {
    timeout: 120_000,
  }, async () => {
    // No cache has the steps, and their output is more than one message of the builder and its pipe
    // hold.
    const steps = ['a', 'b', 'c'].map(
      (name) => `RUN seq 1 50000 | sed s/^/${name}/ # ${randomUUID()}\n`,
    );
    const Dockerfile = `FROM busybox:stable\n${steps.join('')}RUN echo the end\nCMD ["true"]\n`;
    const { url } = await repo({ Dockerfile });
    site.plane.fail = { match: /\/logs$/, status: 503 };
    const before = site.plane.requests.length;
    const { task } = site.plane.give(
      buildTask({ image_repository: `${parts.registry.address}/app`, git_url: url }),
    );
    await until(
      'several tries to send lines',
      () => site.plane.requests.slice(before).filter((name) => name.endsWith('/logs')).length > 5,
    );
    site.plane.fail = null;
    expect(await site.plane.reported(task.id, 90_000)).toMatchObject({ status: 'completed' });
    const lines = site.plane.state(task.id).lines.map(({ text }) => text);
    const wanted = ['a', 'b', 'c'].flatMap((name) =>
      Array.from({ length: 50_000 }, (_, i) => `${name}${i + 1}`),
    );
    expect(lines.filter((text) => /^[abc]\d+$/.test(text))).toEqual(wanted);
    expect(lines).toContain('the end');
  });
  it('a missing Dockerfile, or one outside the repository, fails', async () => {
    const { url } = await repo({ 'README.md': 'x', 'sub/Dockerfile': GOOD });
    expect(await build({ git_url: url })).toMatchObject({ code: 'dockerfile_missing' });
    expect(await build({ git_url: url, dockerfile_path: 'sub' })).toMatchObject({
      code: 'dockerfile_missing',
    });
    expect(await build({ git_url: url, dockerfile_path: '../Dockerfile' })).toMatchObject({
      code: 'dockerfile_outside',
    });
    expect((await build({ git_url: url, dockerfile_path: 'sub/Dockerfile' })).report.status).toBe(
      'completed',
    );
  });
  it('a failed RUN step is reported with its output', async () => {
    const { url } = await repo({
      Dockerfile: `FROM busybox:stable\nRUN echo before; echo ${Date.now()}\nRUN echo so it goes >&2; exit 3\n`,
    });
    const outcome = await build({ git_url: url });
    expect(outcome).toMatchObject({ code: 'build_step_failed' });
    expect(outcome.report).toMatchObject({
      commit: expect.stringMatching(/^[0-9a-f]{40}$/),
      commit_message: expect.stringMatching(/./),
    });
    expect(outcome.message).toMatch(/\[3\/3\] RUN echo so it goes .*exit code 3\nso it goes/);
    expect(outcome.text).toContain('| before');
  });
  it('a failed step that printed a line of 12 KB is reported with its last lines', async () => {
    const { url } = await repo({
      Dockerfile:
        `FROM busybox:stable\nRUN echo ${Date.now()}; head -c 12000 /dev/zero | tr '\\0' x; ` +
        `echo; echo so it goes; exit 3\n`,
    });
    const outcome = await build({ git_url: url });
    expect(outcome).toMatchObject({
      code: 'build_step_failed',
      message: expect.stringMatching(/exit code 3\n[^]*so it goes/),
    });
    expect(outcome.text).toContain(`| ${'x'.repeat(12_000)}\n`);
  });
  it('the last of 60 steps that fails is reported', { timeout: 120_000 }, async () => {
    const steps = Array.from(
      { length: 59 },
      (_, i) => `WORKDIR /${'a-folder-whose-name-is-not-short-'.repeat(6)}${i}`,
    );
    const { url } = await repo({
      Dockerfile: `FROM busybox:stable\n${steps.join('\n')}\nRUN echo so it goes ${Date.now()}; exit 3\n`,
    });
    const outcome = await build({ git_url: url });
    expect(outcome).toMatchObject({
      code: 'build_step_failed',
      message: expect.stringMatching(/exit code 3\nso it goes/),
    });
    expect(outcome.text).not.toContain('"vertexes"');
  });
  it('a frontend that is not allowed is refused before the build', async () => {
    const { url } = await repo({
      Dockerfile: `# syntax=${parts.registry.address}/evil:1\n${GOOD}`,
    });
    const outcome = await build({ git_url: url });
    expect(outcome).toMatchObject({
      code: 'build_frontend_refused',
      message: expect.stringContaining('BUILD_FRONTENDS'),
    });
    expect(outcome.text).not.toContain('resolve image config');
  });
  it('an image of another project is refused before the build, and one of the own project is not', {
    timeout: 120_000,
  }, async () => {
    const { address } = parts.registry;
    const vault = await build({
      git_url: (await repo({ Dockerfile: GOOD })).url,
      image_repository: `${address}/vault`,
    });
    const image = vault.report.image_tag ?? '';
    expect(image, vault.message).toMatch(/\/vault:[0-9a-f]{40}$/);
    for (const [Dockerfile, args, line] of [
      [`FROM ${image}\n`, {}, 1],
      [`FROM busybox:stable\nRUN --mount=from=${image},target=/x ls /x\n`, {}, 2],
      ['ARG BASE=busybox:stable\n\nFROM $BASE\n', { BASE: image }, 3],
    ] as const) {
      const outcome = await build({ git_url: (await repo({ Dockerfile })).url, build_args: args });
      expect(outcome).toMatchObject({
        code: 'build_image_refused',
        message: expect.stringContaining(`line ${line}: ${image} `),
      });
      expect(outcome.text).not.toContain('load metadata');
    }
    const own = await build({
      git_url: (await repo({ Dockerfile: `FROM ${image}\n` })).url,
      image_repository: `${address}/vault`,
    });
    expect(own.report, own.message).toMatchObject({ status: 'completed' });
  });
  it('a cache mount is not shared with another project', async () => {
    const key = `key-${Date.now()}`;
    const mount = 'RUN --mount=type=cache,id=shared,target=/cache';
    const { url } = await repo({
      Dockerfile:
        `FROM busybox:stable\n${mount} echo ${key}; cat /cache/* 2>/dev/null; echo ${key} > ` +
        `/cache/a\n`,
    });
    // The text differs each time, because BuildKit would not run an equal step again.
    const reads = (who: string): ReturnType<typeof repo> =>
      repo({
        Dockerfile: `FROM busybox:stable\n${mount} echo ${who} ${key}; echo saw $(cat /cache/a)\n`,
      });
    expect((await build({ git_url: url, project_id: 'prj-a' })).code).toBeUndefined();
    expect((await build({ git_url: (await reads('a')).url, project_id: 'prj-a' })).text).toContain(
      `| saw ${key}`,
    );
    const other = await build({ git_url: (await reads('b')).url, project_id: 'prj-b' });
    expect(other.text).toContain(`| b ${key}`);
    expect(other.text).not.toContain(`| saw ${key}`);
  });
  it('a COPY of a missing file fails the step', async () => {
    const { url } = await repo({ Dockerfile: 'FROM busybox:stable\nCOPY nothing /x\n' });
    expect(await build({ git_url: url })).toMatchObject({
      code: 'build_step_failed',
      message: expect.stringContaining('COPY nothing'),
    });
  });
  it('an invalid Dockerfile fails with build_failed', async () => {
    const { url } = await repo({ Dockerfile: 'FROM busybox:stable\nRUNN x\n' });
    const outcome = await build({ git_url: url });
    expect(outcome).toMatchObject({ code: 'build_failed' });
    expect(outcome.message).toMatch(/unknown instruction: RUNN/i);
  });
  it('a base image that cannot be pulled fails with build_base_image', async () => {
    const { url } = await repo({ Dockerfile: `FROM ${parts.registry.address}/app:nothing\n` });
    expect(await build({ git_url: url })).toMatchObject({
      code: 'build_base_image',
      message: expect.stringContaining('app:nothing'),
    });
  });
  it('an unreachable registry and a registry that refuses the login fail with their codes', {
    timeout: 90_000,
  }, async () => {
    const { url } = await repo({ Dockerfile: GOOD });
    const away = await build({ git_url: url, image_repository: `${parts.engine.gatewayIp}:9/app` });
    expect(away, away.text).toMatchObject({ code: 'registry_unreachable' });

    const plane = await startFakeControlPlane({
      address: parts.engine.gatewayIp,
      config: {
        registry_addr: parts.registry.address,
        registry_user: 'berth',
        registry_password: 'wrong',
      },
    });
    const other = await startSite(parts, { NODE_ROLE: 'builder' }, plane);
    const { task } = plane.give(
      buildTask({ git_url: url, image_repository: `${parts.registry.address}/app` }),
    );
    expect((await plane.reported(task.id)).result).toMatchObject({
      error: { code: 'registry_refused' },
    });
    await other.stop();
    await plane.stop();
  });
  it('a build beyond BUILD_TIMEOUT fails with build_timeout', async () => {
    const { url } = await repo({ Dockerfile: 'FROM busybox:stable\nRUN sleep 100\n' });
    const other = await startSite(parts, { NODE_ROLE: 'builder', BUILD_TIMEOUT: '2s' });
    const { task } = other.plane.give(
      buildTask({ git_url: url, image_repository: `${parts.registry.address}/app` }),
    );
    expect((await other.plane.reported(task.id)).result).toMatchObject({
      error: { code: 'build_timeout' },
    });
    await other.stop();
  });
  it('a full disk fails with disk_full, and the workspace is removed', async () => {
    const { url } = await repo({
      Dockerfile: GOOD,
      big: Buffer.from(Array.from({ length: 3_000_000 }, () => Math.random() * 256)).toString(
        'base64',
      ),
    });
    const dir = join(parts.dir, 'small');
    await mkdir(dir);
    await execOk(['mount', '-t', 'tmpfs', '-o', 'size=2m', 'tmpfs', dir], { env: process.env });
    const other = await startSite(parts, { NODE_ROLE: 'builder', STATE_DIR: dir });
    try {
      const { task } = other.plane.give(
        buildTask({ git_url: url, image_repository: `${parts.registry.address}/app` }),
      );
      expect((await other.plane.reported(task.id)).result).toMatchObject({
        error: { code: 'disk_full' },
      });
      expect(await readdir(join(dir, 'builder', 'work'))).toEqual([]);
    } finally {
      await other.stop();
      await execOk(['umount', '--lazy', dir], { env: process.env });
    }
  });
  it('a cancelled build stops at once, is reported, and leaves no files or processes', async () => {
    const { url } = await repo({
      Dockerfile: `FROM busybox:stable\nRUN echo begun ${Date.now()} && sleep 99\n`,
    });
    const { task } = site.plane.give(
      buildTask({ git_url: url, image_repository: `${parts.registry.address}/app` }),
    );
    await until('the step', () => site.plane.text(task.id).includes('| begun'));
    const asked = Date.now();
    site.plane.cancel(task.id);
    expect((await site.plane.reported(task.id)).result).toMatchObject({
      error: { code: 'cancelled' },
    });
    expect(Date.now() - asked).toBeLessThan(5_000);
    expect(await readdir(join(site.stateDir, 'work'))).toEqual([]);
    expect(
      await processesOf((argv) => argv.join('\0').includes(`metadata-file\0${site.stateDir}`)),
    ).toEqual([]);
  });
  it('no build leaves a workspace', async () => {
    expect(await readdir(join(site.stateDir, 'work'))).toEqual([]);
  });
});
