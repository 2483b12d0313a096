/** The agent and its engine over time: old images, engine restarts, leftovers of earlier processes. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildTask, deployTask, retireTask, until } from './fake-control-plane.ts';
import { missingParts, type RealParts, startRealParts, startSite } from './real-parts.ts';
import { silentLogger } from '@berth/kit/log';
import { waitFor } from '@berth/testbed/wait';
import { join } from 'node:path';
import { createImages } from '../src/images.ts';
import { createDocker, type Docker } from '../src/tools/docker.ts';
import { createDockerCli, type DockerCli } from '../src/tools/docker-cli.ts';

describe.skipIf(missingParts !== undefined)('the agent and its engine', () => {
  let parts: RealParts;
  beforeAll(async () => {
    parts = await startRealParts();
  }, 120_000);
  afterAll(async () => {
    await parts?.stop();
  }, 60_000);

  async function ownDocker(configDir: string): Promise<{ docker: Docker; cli: DockerCli }> {
    const cli = createDockerCli({
      configDir: join(parts.dir, configDir),
      inherit: { PATH: process.env['PATH'] },
      dockerHost: parts.engine.host,
    });
    await cli.useRegistry(null);
    return { cli, docker: createDocker(cli, { scratchDir: parts.dir }) };
  }

  it('images beyond the newest few are removed, except images in use', { timeout: 60_000 }, async () => {
    const repository = `${parts.registry.address}/many`;
    for (let i = 1; i <= 5; i += 1) {
      await parts.engine.docker(['build', '--quiet', '--tag', `${repository}:v${i}`, '-'], {
        input: `FROM busybox:stable\nRUN echo ${i} ${Date.now()} > /v\n`,
      });
      await new Promise((r) => setTimeout(r, 1_000));
    }
    await parts.engine.docker(['create', '--name', 'user', `${repository}:v1`]);
    const { docker } = await ownDocker('docker-images');
    const images = createImages({ docker, keepNewest: () => 2, log: silentLogger() });
    images.cleanLater(repository);
    await images.settle();
    const left = (await docker.images(repository)).flatMap((i) => i.refs).sort();
    expect(left).toEqual(['v1', 'v4', 'v5'].map((v) => `${repository}:${v}`));
    await parts.engine.docker(['rm', 'user']);
  });

  it('a registration reports the engine’s version, its architecture and its disk use', { timeout: 60_000 }, async () => {
    const site = await startSite(parts);
    const first = await until('a register', () => site.plane.registers[0]);
    expect(first.engine).toEqual({ ok: true, version: expect.stringMatching(/^\d+\.\d+/), error: null });
    expect(first.arch).toBe(process.arch === 'arm64' ? 'arm64' : 'amd64');
    const disk = await until('a counted disk', () => site.plane.registers.findLast((r) => r.disk !== undefined)?.disk);
    expect(disk.images).toBeGreaterThan(0);
    expect(disk.total).toBeGreaterThan(disk.free);
    await site.stop();
  });

  it('a container with an env value and a label of the longest allowed length can be started and listed', { timeout: 60_000 }, async () => {
    const { docker } = await ownDocker('docker-long');
    const long = 'x'.repeat(32_768);
    const wide = '€'.repeat(32_768);
    const start = (env: Record<string, string>): Promise<string> =>
      docker.run(
        {
          name: 'long',
          image: 'busybox:stable',
          containerPort: 8080,
          mounts: [],
          network: null,
          publishIp: undefined,
          labels: { 'berth.project': 'long', note: long },
          env,
          secretEnv: {},
          memoryBytes: null,
          cpus: null,
          pidsLimit: 64,
          logMaxSize: '1m',
          logMaxFiles: 1,
        },
        AbortSignal.timeout(30_000),
      );
    await expect(start({ EMOJI: '\u{1F600}'.repeat(32_768) })).rejects.toMatchObject({
      code: 'container_start_failed',
      message: expect.stringMatching(/EMOJI.*131072 bytes/),
    });
    await start({ LONG: long, WIDE: wide });
    const [seen] = await docker.list({ 'berth.project': 'long' });
    expect(seen).toMatchObject({ name: 'long', labels: { note: long } });
    const inside = JSON.parse((await parts.engine.docker(['inspect', 'long'])).stdout)[0] as { Config: { Env: string[] } };
    expect(inside.Config.Env).toContain(`WIDE=${wide}`);
    await parts.engine.docker(['rm', '--force', 'long']);
  });

  it('a registry password that is a word of docker’s output does not hide the state of a container', { timeout: 60_000 }, async () => {
    const { docker, cli } = await ownDocker('docker-password');
    await cli.useRegistry({ address: parts.registry.address, user: 'berth', password: 'running' });
    await parts.engine.docker(['run', '--detach', '--name', 'runs', '--label', 'berth.project=runs', 'busybox:stable', 'sleep', '99']);
    expect((await docker.list({ 'berth.project': 'runs' }))[0]?.state).toBe('running');
    await parts.engine.docker(['rm', '--force', 'runs']);
  });

  it('during an engine restart no empty list is reported, and soon after the new port is', { timeout: 90_000 }, async () => {
    const site = await startSite(parts);
    const tag = `${parts.registry.address}/app:1`;
    await parts.engine.docker(['build', '--quiet', '--tag', tag, '-'], {
      input: 'FROM busybox:stable\nCMD ["httpd","-f","-p","8080","-h","/"]\n',
    });
    await parts.engine.docker(['login', '--username', 'berth', '--password-stdin', parts.registry.address], {
      input: parts.registry.password ?? '',
    });
    await parts.engine.docker(['push', tag]);
    const { task } = site.plane.give(deployTask('dep-r', { image: tag }));
    const { host_port: before } = await site.plane.reported(task.id);
    const seen = site.plane.registers.length;
    await parts.engine.faults?.restartDaemon('SIGTERM');
    // The engine answers for seconds after SIGTERM, so a registration with the old port may come first.
    const port = () =>
      site.plane.registers
        .slice(seen)
        .at(-1)
        ?.containers?.find((c) => c.state === 'running')?.host_port ?? null;
    await waitFor(
      'the registered port answers',
      async () =>
        port() !== null && (await fetch(`http://${parts.engine.hostIp}:${port()}/bin/busybox`, { method: 'HEAD' })).status === 200,
      { deadlineMs: 45_000 },
    );
    // During the restart the list is absent or holds the container, and is never empty.
    expect(site.plane.registers.slice(seen).filter((r) => r.containers?.length === 0)).toEqual([]);
    expect(typeof before).toBe('number');
    await site.stop();
  });

  it('an engine that dies during a build, or is away, fails tasks with engine_unavailable', { timeout: 90_000 }, async () => {
    const site = await startSite(parts, { NODE_ROLE: 'builder' });
    const { url } = await parts.git.createRepo('dies', { Dockerfile: `FROM busybox:stable\nRUN echo begun ${Date.now()} && sleep 30\n` });
    const { task } = site.plane.give(buildTask({ git_url: url, image_repository: `${parts.registry.address}/dies` }));
    await until('the step', () => site.plane.text(task.id).includes('| begun'), 30_000);
    await parts.engine.faults?.restartDaemon('SIGKILL');
    const report = await site.plane.reported(task.id, 60_000);
    expect(report.result, site.plane.text(task.id)).toMatchObject({ error: { code: 'engine_unavailable' } });
    await site.stop();

    const away = await startSite(parts, { DOCKER_HOST: 'unix:///run/berth-no-such-engine.sock' });
    const deploy = away.plane.give(deployTask('dep-x', { image: 'x:1' }));
    expect((await away.plane.reported(deploy.task.id, 30_000)).result).toMatchObject({ error: { code: 'engine_unavailable' } });
    expect(away.plane.registers.every((r) => r.containers === undefined)).toBe(true);
    expect(await away.agent.readiness()).toMatchObject({ ready: false });
    await away.stop();
  });

  it('at start an unstarted container is removed, foreign ones stay, and an exited one is reported', { timeout: 60_000 }, async () => {
    const label = (name: string): string[] => ['--label', `berth.node=node-1`, '--label', `berth.deployment=${name}`];
    await parts.engine.docker(['create', '--name', 'left', ...label('dep-left'), 'busybox:stable', 'true']);
    await parts.engine.docker(['create', '--name', 'others', '--label', 'berth.node=node-2', 'busybox:stable', 'true']);
    await parts.engine.docker(['run', '--name', 'ended', ...label('dep-ended'), 'busybox:stable', 'true']);
    const site = await startSite(parts);
    await until(
      'the registration',
      () =>
        site.plane.registers.at(-1)?.containers?.every((c) => c.name !== 'left') === true &&
        site.plane.registers.at(-1)?.containers?.some((c) => c.name === 'ended' && c.state === 'exited'),
    );
    const names = (await parts.engine.docker(['ps', '--all', '--format', '{{.Names}}'])).stdout.trim().split('\n');
    expect(names).toContain('others');
    expect(names).not.toContain('left');
    // A foreign container with the stable name keeps it.
    await parts.engine.docker(['rename', 'others', 'svc-app']);
    await parts.engine.docker([
      'run',
      '--detach',
      '--name',
      'svc-app-g7',
      '--label',
      'berth.project=prj-1',
      ...label('dep-7'),
      'busybox:stable',
      'sleep',
      '99',
    ]);
    const retire = site.plane.give(retireTask({ keep: { deployment_id: 'dep-7', name: 'svc-app' } }));
    const report = await site.plane.reported(retire.task.id);
    expect(JSON.stringify(report.result)).toContain(
      'a container of another program has the name svc-app; rename it. svc-app-g7 serves under its own name',
    );
    await site.stop();
  });
});
