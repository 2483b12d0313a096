/**
 * Each failure on the way ends the deployment as `failed` with its own code and a sentence, and the
 * old version keeps serving.
 */
import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Project, ProjectPatch } from '@berth/wire/project';
import { run } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import { pageApp, startWorld, whyNot, type World } from './world.ts';

const reason = await whyNot();
const busybox = (...lines: string[]): Record<string, string> => ({
  Dockerfile: ['FROM busybox:stable', ...lines, ''].join('\n'),
});

type Row = {
  what: string;
  code: string;
  /** Files of the repository for this deployment, or (`patch`) a change of the project. */
  files?: Record<string, string | null>;
  patch?: ProjectPatch;
  commit?: string;
  prepare?: (world: World) => unknown;
  restore?: (world: World) => unknown;
  /** Text that a person finds in the log. */
  log?: RegExp;
};

const ROWS: Row[] = [
  { what: 'unknown branch', code: 'git_unknown_branch', patch: { branch: 'nowhere' } },
  { what: 'unknown commit', code: 'git_unknown_commit', commit: 'd'.repeat(40) },
  {
    what: 'missing repository',
    code: 'git_repository_not_found',
    patch: { git_url: 'REPLACED/missing.git' },
  },
  {
    what: 'git server requires credentials',
    code: 'git_credentials',
    prepare: (w) => w.git.behave({ status: 401 }),
    restore: (w) => w.git.behave('serve'),
  },
  {
    what: 'git server does not serve single commits',
    code: 'git_commit_refused',
    commit: 'FIRST',
    prepare: (w) => w.git.allowAnySha('shop', false),
    restore: (w) => w.git.allowAnySha('shop', true),
  },
  {
    what: 'git server does not answer',
    code: 'git_timeout',
    prepare: (w) => w.git.behave('mute'),
    restore: (w) => w.git.behave('serve'),
  },
  // Random text, so that compression does not make it fit.
  {
    what: 'builder’s disk is full',
    code: 'disk_full',
    files: { ballast: randomBytes(4_000_000).toString('base64') },
  },
  {
    what: 'no Dockerfile',
    code: 'dockerfile_missing',
    patch: { dockerfile_path: 'docker/Dockerfile' },
  },
  {
    what: 'RUN instruction fails',
    code: 'build_step_failed',
    files: busybox('RUN echo before the fall && false'),
    log: /before the fall/,
  },
  {
    what: 'base image is unknown',
    code: 'build_base_image',
    files: { Dockerfile: 'FROM 127.0.0.1:1/no/such:image\nCMD ["true"]\n' },
  },
  {
    what: 'container exits',
    code: 'container_exited',
    files: busybox('CMD ["sh", "-c", "echo the app says goodbye; exit 3"]'),
    log: /the app says goodbye/,
  },
  {
    what: 'container never listens',
    code: 'container_not_listening',
    files: busybox('CMD ["sleep", "1000"]'),
  },
  {
    what: 'container listens on another port',
    code: 'container_wrong_port',
    files: busybox('RUN mkdir /www', 'CMD ["httpd", "-f", "-p", "9090", "-h", "/www"]'),
  },
  {
    what: 'container listens on 127.0.0.1 only',
    code: 'container_loopback_only',
    files: busybox('RUN mkdir /www', 'CMD ["httpd", "-f", "-p", "127.0.0.1:8080", "-h", "/www"]'),
  },
  {
    what: 'container answers, but fails its health check',
    code: 'health_check_failed',
    patch: { health_path: '/healthz' },
  },
];

describe.skipIf(reason !== undefined)(
  `failures${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: World;
    let project: Project;
    let generation = 1;
    let firstCommit = '';
    let small = '';
    beforeAll(async () => {
      small = await mkdtemp(join(tmpdir(), 'berth-small-'));
      await run(['mount', '-t', 'tmpfs', '-o', 'size=4m', 'tmpfs', small]);
      world = await startWorld({
        proxy: 'built-in',
        ownRegistry: true,
        env: { PROBE_TIMEOUT: '4s' },
        agentEnv: { GIT_STALL_TIMEOUT: '4s', CLONE_TIMEOUT: '15s' },
        agents: (engine) => [
          { name: 'builder-1', role: 'builder', engine, env: { STATE_DIR: small } },
          { name: 'node-1', role: 'deploy', engine },
        ],
      });
      const { url, sha } = await world.git.createRepo('shop', pageApp(1));
      firstCommit = sha;
      // A second commit, so that the first one is not the branch's tip.
      await world.git.commit('shop', { 'README.md': 'A shop.\n' }, 'says what it is');
      project = await world.berth.createProject({
        name: 'shop',
        git_url: url,
        domain_prefix: 'shop',
        drain_seconds: 0,
        stop_grace_seconds: 1,
      });
      expect(await world.berth.settled(await world.berth.deploy(project))).toMatchObject({
        status: 'running',
      });
    });
    afterAll(async () => {
      await world?.stop();
      await run(['umount', small], { mayFail: true });
      await rm(small, { recursive: true, force: true });
    });

    it.each(ROWS.map((row) => [row.what, row] as const))('%s', async (_, row) => {
      const { berth, git } = world;
      const patch = (body: ProjectPatch) =>
        berth.api.call('patchProject', { params: { id: project.id }, body });
      const { git_url, branch, dockerfile_path, health_path } = project;
      if (row.patch !== undefined)
        await patch(
          row.patch.git_url === undefined ? row.patch : { git_url: git.repoUrl('missing') },
        );
      if (row.files !== undefined) await git.commit('shop', row.files, row.what);
      await row.prepare?.(world);
      try {
        const done = await berth.settled(
          await berth.deploy(
            project,
            row.commit === undefined
              ? {}
              : { commit: row.commit === 'FIRST' ? firstCommit : row.commit },
          ),
        );
        expect({ status: done.status, code: done.error?.code }, done.error?.message).toEqual({
          status: 'failed',
          code: row.code,
        });
        // The message is a sentence for people, and the end of the log shows the reason.
        expect(done.error?.message).toMatch(/\w+ \w+ \w+/);
        const lines = await berth.logs(done);
        expect(lines.length).toBeGreaterThan(0);
        if (row.log !== undefined) expect(lines.join('\n')).toMatch(row.log);
        // The old version never stopped serving, and no part of the new one remains.
        expect(await berth.get('shop')).toMatchObject({ status: 200, body: 'version 1\n' });
        await waitFor('only the old container exists', async () => {
          const { stdout } = await world.engine.docker([
            'ps',
            '-a',
            '--filter',
            'label=berth.project_name=shop',
            '--format',
            '{{.Names}}',
          ]);
          return stdout.trim() === 'svc-shop';
        });
        generation = done.generation;
      } finally {
        await row.restore?.(world);
        if (row.patch !== undefined) await patch({ git_url, branch, dockerfile_path, health_path });
        if (row.files !== undefined)
          await git.commit('shop', { ...pageApp(1), ballast: null }, 'restore');
      }
    });

    it('registry down', async () => {
      const { berth, registry } = world;
      process.kill(registry.pid, 'SIGSTOP');
      process.kill(registry.pid, 'SIGKILL');
      const done = await berth.settled(await berth.deploy(project), 120_000);
      expect(done).toMatchObject({ status: 'failed', error: { code: 'registry_unreachable' } });
      expect(await berth.get('shop')).toMatchObject({ status: 200, body: 'version 1\n' });
      expect(done.generation).toBeGreaterThan(generation);
    });

    it('no log contains a secret of the run', async () => {
      const folder = join(world.dir, 'logs');
      const all = (
        await Promise.all(
          (await readdir(folder)).map((name) => readFile(join(folder, name), 'utf8')),
        )
      ).join('\n');
      for (const secret of [
        'sesame-opens-nothing',
        world.berth.agentSecret,
        world.berth.admin.password,
      ])
        expect(all.includes(secret)).toBe(false);
    });
  },
);
