/**
 * The agent and its engine over time: old images, engine restarts, leftovers of earlier processes.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildTask, deployTask, retireTask, until } from '../fake-control-plane.ts';
import { missingParts, type RealParts, startRealParts, startSite } from '../real-parts.ts';
import { silentLogger } from '@berth/kit/log';
import { layerOf, pushImage, registryHeaders } from '@berth/testbed/images';
import { waitFor } from '@berth/testbed/wait';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { createEngineSpace, type EngineSpace } from '../../src/disk/engine-space.ts';
import { createEvictableImages } from '../../src/disk/evictable-images.ts';
import { createImages, type Images } from '../../src/disk/old-images.ts';
import { createLocks } from '../../src/locks.ts';
import { createPullSize, type PullSize } from '../../src/disk/pull-size.ts';
import { createRegistryApi } from '../../src/registry/api.ts';
import { createRoom, type Room } from '../../src/disk/eviction.ts';
import { createStorage } from '../../src/disk/storage.ts';
import {
  createImageSizes,
  engineUse,
  imageSizes,
  pruneBuildCache,
} from '../../src/engine/engine-use.ts';
import { createIsInsecure } from '../../src/engine/insecure-registries.ts';
import { createDocker } from '../../src/engine/create-docker.ts';
import type { Docker } from '../../src/engine/docker.ts';
import { createEngineClient, type EngineClient } from '../../src/engine/engine-client.ts';
import {
  createRegistryCredentials,
  type RegistryCredentials,
} from '../../src/engine/registry-credentials.ts';

describe.skipIf(missingParts !== undefined)('the agent and its engine', () => {
  let parts: RealParts;
  beforeAll(async () => {
    parts = await startRealParts();
  }, 120_000);
  afterAll(async () => {
    await parts?.stop();
  }, 60_000);

  type OwnDocker = { docker: Docker; engine: EngineClient; credentials: RegistryCredentials };
  async function ownDocker(folder: string, dockerHost = parts.engine.host): Promise<OwnDocker> {
    const credentials = createRegistryCredentials({ configDir: join(parts.dir, folder) });
    const inherit = { PATH: process.env['PATH'] };
    const engine = createEngineClient({ dockerHost, inherit, credentials });
    await credentials.use(null);
    return { engine, credentials, docker: createDocker({ engine, credentials }) };
  }

  it('images beyond the newest few are removed, except images in use', {
    timeout: 60_000,
  }, async () => {
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

  describe('its disk', () => {
    const MB = 1_000_000;
    const signal = AbortSignal.timeout(300_000);
    type Disk = {
      engine: EngineClient;
      docker: Docker;
      images: Images;
      space: EngineSpace;
      pullSize: PullSize;
      roomOf: (max: number) => Room;
    };
    async function diskOf(keep: number): Promise<Disk> {
      const { engine, credentials, docker } = await ownDocker('docker-disk');
      const { address, user = '', password = '' } = parts.registry;
      await credentials.use({ address, user, password });
      const settings = () => ({
        registry_addr: address,
        registry_user: user,
        registry_password: password,
        base_domain: '',
      });
      const images = createImages({ docker, keepNewest: () => keep, log: silentLogger() });
      const registry = createRegistryApi({
        settings,
        isInsecure: createIsInsecure(engine),
        url: undefined,
      });
      const evictable = createEvictableImages({
        docker,
        images,
        sizes: createImageSizes(engine),
        keepNewest: () => keep,
        registry: () => address,
        registryHas: registry.holds,
        log: silentLogger(),
      });
      const root = join(parts.dir, 'svc');
      const space = createEngineSpace({ engine, images: evictable, root });
      const roomOf = (max: number): Room =>
        createRoom({
          storage: createStorage({
            root,
            maxStorage: max,
            inherit: { PATH: process.env['PATH'] },
            log: silentLogger(),
          }),
          datasets: null,
          engine: space,
          engineMax: max,
          locks: createLocks(),
          watermarks: { high: 0.9, low: 0.8 },
          log: silentLogger(),
        });
      const pullSize = createPullSize({ docker, layersOf: registry.layersOf, log: silentLogger() });
      return { engine, docker, images, space, pullSize, roomOf };
    }
    const usedBy = async ({ engine }: Disk): Promise<number> => {
      const { images, build_cache } = await engineUse(engine, signal);
      return (images ?? 0) + (build_cache ?? 0);
    };
    const pruneAll = async ({ engine }: Disk): Promise<void> => {
      while (await pruneBuildCache(engine, 0, signal));
    };
    /**
     * Pushes and pulls images of 10 MB of their own on one base layer of 20 MB, the first one
     * first. Returns their references.
     */
    async function release(
      disk: Disk,
      project: string,
      tags: readonly string[],
    ): Promise<string[]> {
      const base = layerOf({ 'base.bin': randomBytes(20 * MB) });
      const refs: string[] = [];
      for (const [i, tag] of tags.entries()) {
        const made = new Date(Date.UTC(2026, 9, 1 + i)).toISOString();
        const layers = [base, layerOf({ [`${tag}.bin`]: randomBytes(10 * MB) })];
        const { digest } = await pushImage(parts.registry, project, tag, layers, {
          command: ['/none'],
          created: made,
        });
        const ref = `${parts.registry.address}/${project}@${digest}`;
        await disk.docker.pull(ref, { signal, timeoutMs: 60_000, onLine: () => undefined });
        refs.push(ref);
      }
      return refs;
    }
    const left = async (disk: Disk, project: string): Promise<string[]> =>
      (await disk.docker.images(`${parts.registry.address}/${project}`))
        .flatMap(({ refs }) => refs)
        .sort();

    it('images of kept releases go oldest first, as many as needed; running and protected ones and the only copy stay', async () => {
      const disk = await diskOf(9);
      const project = `kept-${Date.now()}`;
      const [lost = '', oldest = '', running = '', deploying = '', newest = ''] = await release(
        disk,
        project,
        ['a', 'b', 'c', 'd', 'e'],
      );
      await pruneAll(disk);
      await parts.engine.docker(['create', '--name', project, running]);
      disk.images.protect(deploying);
      const url = `${parts.registry.url}/v2/${project}/manifests/${lost.split('@')[1]}`;
      expect(
        (await fetch(url, { method: 'DELETE', headers: registryHeaders(parts.registry) })).status,
      ).toBe(202);

      // Each image alone frees 10 MB; the layer that they share stays.
      const contents = await disk.space.count(signal);
      expect(contents.disk).toMatchObject({ isOwn: false });
      const mine = contents.candidates.filter(({ refs }) =>
        refs.some((ref) => ref.includes(project)),
      );
      expect(mine.map(({ kept, refs, bytes }) => [kept, refs[0], Math.round(bytes / MB)])).toEqual([
        [true, oldest, 10],
        [true, newest, 10],
      ]);
      const used = await usedBy(disk);
      const canGo = contents.candidates.reduce((sum, { bytes }) => sum + bytes, 0);
      // 5 MB too much for the high watermark of what is left beside the images that stay.
      await disk
        .roomOf(Math.round(used - canGo + (canGo - 5 * MB) / 0.9))
        .keep(signal, { recount: true });
      expect(await left(disk, project)).toEqual([lost, running, deploying, newest].sort());
      expect(await usedBy(disk)).toBeLessThanOrEqual(used - 9 * MB);

      // Not enough for the budget, whatever goes: nothing that a rollback needs goes.
      await disk.roomOf(25 * MB).keep(signal, { recount: true });
      expect(await left(disk, project)).toContain(newest);

      // A rollback gets the evicted image again.
      await disk.docker.pull(oldest, { signal, timeoutMs: 60_000, onLine: () => undefined });
      expect(await disk.docker.imageConfig(oldest, signal)).not.toBeNull();
      await parts.engine.docker(['rm', project]);
      await parts.engine.docker(['image', 'rm', ...(await left(disk, project))]);
    }, 120_000);

    it('a pull counts before it begins, with the layers that the node lacks, so the budget holds during it', async () => {
      const disk = await diskOf(9);
      const project = `expected-${Date.now()}`;
      const [oldest = '', running = '', next = ''] = await release(disk, project, ['a', 'b', 'c']);
      await parts.engine.docker(['image', 'rm', next]);
      await parts.engine.docker(['create', '--name', project, running]);
      await pruneAll(disk);
      const bytes = await disk.pullSize(next, signal);
      expect(Math.abs(bytes - 10 * MB)).toBeLessThan(0.1 * MB);

      const before = await disk.space.count(signal);
      const stays =
        (before.images ?? 0) - before.candidates.reduce((sum, one) => sum + one.bytes, 0);
      // The budget is full but for 2 MB up to the high watermark of what is left beside the images
      // that stay.
      const max = Math.round(stays + ((before.images ?? 0) - stays + 2 * MB) / 0.9);
      const room = disk.roomOf(max);
      await room.keep(signal, { logLine: () => undefined });
      expect(await left(disk, project)).toContain(oldest);
      const ended = disk.space.reserve(bytes);
      await room.keep(signal, { logLine: () => undefined });
      expect(await left(disk, project)).toEqual([running]);
      await disk.docker.pull(next, { signal, timeoutMs: 60_000, onLine: () => undefined });
      ended();
      expect(await usedBy(disk)).toBeLessThanOrEqual(max);
      await parts.engine.docker(['rm', project]);
      await parts.engine.docker(['image', 'rm', ...(await left(disk, project))]);
    }, 60_000);

    it('an image is removed while another one with the same base layer is pulled', async () => {
      const disk = await diskOf(1);
      const project = `pulled-${Date.now()}`;
      const [old = '', next = ''] = await release(disk, project, ['a', 'b']);
      await parts.engine.docker(['image', 'rm', next]);
      const pulling = disk.docker.pull(next, {
        signal,
        timeoutMs: 60_000,
        onLine: () => undefined,
      });
      disk.images.protect(next);
      expect(await disk.images.remove([old])).toBe(true);
      await pulling;
      expect(await left(disk, project)).toEqual([next]);
      const made = await parts.engine.docker(['create', next]);
      await parts.engine.docker(['rm', made.stdout.trim()]);
      await parts.engine.docker(['image', 'rm', next]);
    }, 60_000);

    it('the build cache is pruned while a build runs, and a prune that is killed can be repeated', async () => {
      const disk = await diskOf(1);
      // Not `docker build`: before Docker 23 it does not use BuildKit, and then there is no build
      // cache.
      const fill = (n: number, more = ''): Promise<unknown> =>
        parts.engine.docker(['buildx', 'build', '--quiet', '--tag', `fill:${n}`, '-'], {
          input:
            `FROM busybox:stable\nRUN dd if=/dev/urandom of=/x bs=1M count=8 && echo ${n} ` +
            `${Date.now()}\n${more}`,
          deadlineMs: 90_000,
        });
      for (const n of [1, 2, 3]) await fill(n);
      await parts.engine.docker(['image', 'rm', 'fill:1', 'fill:2', 'fill:3']);
      const cache = async (): Promise<number> =>
        (await engineUse(disk.engine, signal)).build_cache ?? 0;
      const before = await cache();
      expect(before).toBeGreaterThan(24 * MB);

      const killed = new AbortController();
      const pruning = pruneBuildCache(disk.engine, 0, killed.signal);
      setImmediate(() => killed.abort(new Error('killed')));
      await expect(pruning).rejects.toThrow('killed');
      expect(await cache()).toBeLessThanOrEqual(before);

      let built = false;
      const building = fill(
        4,
        'RUN sleep 5 && test -s /x && echo done > /done\nRUN test -s /x -a -s /done\n',
      ).then(() => (built = true));
      const isBuilding = async (): Promise<boolean> => built || (await cache()) > 8 * MB;
      await Promise.race([
        building,
        waitFor('the first step of the build is in the cache', isBuilding, { deadlineMs: 60_000 }),
      ]);
      await pruneAll(disk);
      await building;
      await parts.engine.docker(['image', 'rm', 'fill:4']);

      await pruneAll(disk);
      expect(await cache()).toBe(0);
    }, 180_000);

    it('an engine that does not answer is an error, and not an engine without images', async () => {
      const { engine } = await ownDocker('docker-none', 'unix:///run/berth-no-such.sock');
      await expect(imageSizes(engine, signal)).rejects.toThrow();
      await expect(engineUse(engine, signal)).rejects.toThrow();
    });
  });

  it('a registration reports the engine’s version, its architecture and its disk use', {
    timeout: 60_000,
  }, async () => {
    const site = await startSite(parts);
    const first = await until('a register', () => site.plane.registers[0]);
    expect(first.engine).toEqual({
      ok: true,
      version: expect.stringMatching(/^\d+\.\d+/),
      error: null,
    });
    expect(first.arch).toBe(process.arch === 'arm64' ? 'arm64' : 'amd64');
    const disk = await until(
      'a counted disk',
      () => site.plane.registers.findLast((r) => r.disk !== undefined)?.disk,
    );
    expect(disk.images).toBeGreaterThan(0);
    expect(disk.total).toBeGreaterThan(disk.free);
    expect(disk.evictable).toMatchObject({
      build_cache: expect.any(Number),
      images: expect.any(Array),
      own_disk: null,
    });
    await site.stop();
  });

  it('a container with an env value and a label of the longest allowed length can be started and listed', {
    timeout: 60_000,
  }, async () => {
    const { docker } = await ownDocker('docker-long');
    const long = 'x'.repeat(32_768);
    const wide = '€'.repeat(32_768);
    const start = (env: Record<string, string>): Promise<string> =>
      docker.run(
        {
          name: 'long',
          image: 'busybox:stable',
          command: null,
          port: { containerPort: 8080, publishIp: undefined, hostPort: 0 },
          mounts: [],
          network: null,
          labels: { 'berth.project': 'long', note: long },
          env,
          secretEnv: {},
          memoryBytes: null,
          cpus: null,
          devices: [],
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
    const inside = JSON.parse((await parts.engine.docker(['inspect', 'long'])).stdout)[0] as {
      Config: { Env: string[] };
    };
    expect(inside.Config.Env).toContain(`WIDE=${wide}`);
    await parts.engine.docker(['rm', '--force', 'long']);
  });

  it('a registry password that is a word of docker’s output does not hide the state of a container', {
    timeout: 60_000,
  }, async () => {
    const { docker, credentials } = await ownDocker('docker-password');
    await credentials.use({ address: parts.registry.address, user: 'berth', password: 'running' });
    await parts.engine.docker([
      'run',
      '--detach',
      '--name',
      'runs',
      '--label',
      'berth.project=runs',
      'busybox:stable',
      'sleep',
      '99',
    ]);
    expect((await docker.list({ 'berth.project': 'runs' }))[0]?.state).toBe('running');
    await parts.engine.docker(['rm', '--force', 'runs']);
  });

  it('during an engine restart no empty list is reported, and soon after the new port is', {
    timeout: 90_000,
  }, async () => {
    const site = await startSite(parts);
    const tag = `${parts.registry.address}/app:1`;
    await parts.engine.docker(['build', '--quiet', '--tag', tag, '-'], {
      input: 'FROM busybox:stable\nCMD ["httpd","-f","-p","8080","-h","/"]\n',
    });
    await parts.engine.docker(
      ['login', '--username', 'berth', '--password-stdin', parts.registry.address],
      {
        input: parts.registry.password ?? '',
      },
    );
    await parts.engine.docker(['push', tag]);
    const { task } = site.plane.give(deployTask('dep-r', { image: tag }));
    const { host_port: before } = await site.plane.reported(task.id);
    const seen = site.plane.registers.length;
    await parts.engine.faults?.restartDaemon('SIGTERM');
    // The engine answers for seconds after SIGTERM, so a registration with the old port may come
    // first.
    const port = () =>
      site.plane.registers
        .slice(seen)
        .at(-1)
        ?.containers?.find((c) => c.state === 'running')?.host_port ?? null;
    await waitFor(
      'the registered port answers',
      async () =>
        port() !== null &&
        (await fetch(`http://${parts.engine.hostIp}:${port()}/bin/busybox`, { method: 'HEAD' }))
          .status === 200,
      { deadlineMs: 45_000 },
    );
    // During the restart the list is absent or holds the container, and is never empty.
    expect(site.plane.registers.slice(seen).filter((r) => r.containers?.length === 0)).toEqual([]);
    expect(typeof before).toBe('number');
    await site.stop();
  });

  it('an engine that dies during a build, or is away, fails tasks with engine_unavailable', {
    timeout: 90_000,
  }, async () => {
    const site = await startSite(parts, { NODE_ROLE: 'builder' });
    const { url } = await parts.git.createRepo('dies', {
      Dockerfile: `FROM busybox:stable\nRUN echo begun ${Date.now()} && sleep 30\n`,
    });
    const { task } = site.plane.give(
      buildTask({ git_url: url, image_repository: `${parts.registry.address}/dies` }),
    );
    await until('the step', () => site.plane.text(task.id).includes('| begun'), 30_000);
    await parts.engine.faults?.restartDaemon('SIGKILL');
    const report = await site.plane.reported(task.id, 60_000);
    expect(report.result, site.plane.text(task.id)).toMatchObject({
      error: { code: 'engine_unavailable' },
    });
    await site.stop();

    const away = await startSite(parts, { DOCKER_HOST: 'unix:///run/berth-no-such-engine.sock' });
    const deploy = away.plane.give(deployTask('dep-x', { image: 'x:1' }));
    expect((await away.plane.reported(deploy.task.id, 30_000)).result).toMatchObject({
      error: { code: 'engine_unavailable' },
    });
    expect(away.plane.registers.every((r) => r.containers === undefined)).toBe(true);
    expect(await away.agent.readiness()).toMatchObject({ ready: false });
    await away.stop();
  });

  it('at start an unstarted container is removed, foreign ones stay, and an exited one is reported', {
    timeout: 60_000,
  }, async () => {
    const label = (name: string): string[] => [
      '--label',
      `berth.node=node-1`,
      '--label',
      `berth.deployment=${name}`,
    ];
    await parts.engine.docker([
      'create',
      '--name',
      'left',
      ...label('dep-left'),
      'busybox:stable',
      'true',
    ]);
    await parts.engine.docker([
      'create',
      '--name',
      'others',
      '--label',
      'berth.node=node-2',
      'busybox:stable',
      'true',
    ]);
    await parts.engine.docker([
      'run',
      '--name',
      'ended',
      ...label('dep-ended'),
      'busybox:stable',
      'true',
    ]);
    const site = await startSite(parts);
    await until(
      'the registration',
      () =>
        site.plane.registers.at(-1)?.containers?.every((c) => c.name !== 'left') === true &&
        site.plane.registers
          .at(-1)
          ?.containers?.some((c) => c.name === 'ended' && c.state === 'exited'),
    );
    const names = (await parts.engine.docker(['ps', '--all', '--format', '{{.Names}}'])).stdout
      .trim()
      .split('\n');
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
    const retire = site.plane.give(
      retireTask({ keep: { deployment_id: 'dep-7', name: 'svc-app' } }),
    );
    const report = await site.plane.reported(retire.task.id);
    expect(JSON.stringify(report.result)).toContain(
      'a container of another program has the name svc-app; rename it. svc-app-g7 serves under ' +
        'its own name',
    );
    await site.stop();
  });
});
