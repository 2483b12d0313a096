/**
 * A repository with berth.toml, with all real parts: the file decides the build, the container and
 * the health check; a wrong file fails before the build, and the old version serves.
 */
import type { Project } from '@berth/wire/project';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startWorld, whyNot, type World } from './world.ts';

const reason = await whyNot();

/** The page shows a variable and a build argument; /health is the only other page. */
const APP = {
  'deploy/Dockerfile': [
    'FROM busybox:stable AS base',
    'ARG BUILT_BY=nobody',
    'RUN echo "built by $BUILT_BY" > /built',
    'COPY start /start',
    'EXPOSE 8080',
    'CMD ["sh", "/start"]',
    'FROM base AS broken',
    'RUN false',
    '',
  ].join('\n'),
  start: [
    'mkdir -p /tmp/www',
    'echo "$GREETING $PLACE, $(cat /built)" > /tmp/www/index.html',
    'echo ok > /tmp/www/health',
    'exec httpd -f -p 8080 -h /tmp/www',
    '',
  ].join('\n'),
};
const CONFIG = `health_path = "/health"
memory_bytes = 67_108_864

[env]
GREETING = "hello"

[build]
dockerfile_path = "deploy/Dockerfile"
build_target = "base"
build_args = { BUILT_BY = "the file" }
`;

describe.skipIf(reason !== undefined)('berth.toml in the repository', () => {
  let world: World;
  let project: Project;

  beforeAll(async () => {
    world = await startWorld({ proxy: 'built-in' });
    const { url } = await world.git.createRepo('filed', { ...APP, 'berth.toml': CONFIG });
    project = await world.berth.createProject({
      name: 'filed',
      git_url: url,
      domain_prefix: 'filed',
      drain_seconds: 0,
      env: { GREETING: 'not this', PLACE: 'from the project' },
    });
  }, 120_000);
  afterAll(() => world?.stop(), 60_000);

  const params = (id: string) => ({ params: { id } });
  const container = async (): Promise<{ HostConfig: { Memory: number } }> => {
    const filter = `label=berth.project=${project.id}`;
    const { stdout } = await world.engine.docker(['ps', '-q', '--filter', filter]);
    const [id = ''] = stdout.trim().split('\n');
    return JSON.parse((await world.engine.docker(['inspect', id])).stdout)[0];
  };

  it('decides the build, the environment, the limits and the health check', {
    timeout: 120_000,
  }, async () => {
    const { berth } = world;
    const first = await berth.settled(await berth.deploy(project));
    expect(first.status, JSON.stringify(first.error)).toBe('running');
    expect((await berth.get('filed')).body).toBe('hello from the project, built by the file\n');
    expect((await container()).HostConfig.Memory).toBe(67_108_864);
    const shown = await berth.api.call('getProject', params(project.id));
    expect(shown).toMatchObject({
      health_path: '/health',
      config: {
        file: 'berth.toml',
        commit: first.commit,
        keys: [
          'health_path',
          'memory_bytes',
          'env.GREETING',
          'dockerfile_path',
          'build_target',
          'build_args.BUILT_BY',
        ],
      },
    });
  });

  it('fails before the build if it is wrong, and the old version serves', {
    timeout: 120_000,
  }, async () => {
    const { berth, git } = world;
    await git.commit('filed', { 'berth.toml': `${CONFIG}cache = true\n` }, 'a wrong file');
    const failed = await berth.settled(await berth.deploy(project));
    expect(failed).toMatchObject({
      status: 'failed',
      error: {
        code: 'config_invalid',
        message: expect.stringContaining('berth.toml line 11: build.cache is not a key of [build]'),
      },
      image_tag: null,
    });
    const log = await berth.api.call('deploymentLogs', params(failed.id));
    expect(log.lines.filter(({ step }) => step?.startsWith('[') === true)).toEqual([]);
    expect((await berth.get('filed')).body).toContain('hello from the project');

    await git.commit(
      'filed',
      { 'berth.toml': '[build]\ndockerfile_path = "deploy/Dockerfile"\nbuild_target = "base"\n' },
      'less',
    );
    const less = await berth.settled(await berth.deploy(project));
    expect(less.status, JSON.stringify(less.error)).toBe('running');
    expect((await berth.get('filed')).body).toBe('not this from the project, built by nobody\n');
    expect((await container()).HostConfig.Memory).toBe(0);
  });
});
