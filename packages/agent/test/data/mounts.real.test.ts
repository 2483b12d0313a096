/**
 * Datasets in a real container: read-only versions by symlink and the share itself, before and
 * after restarts.
 */
import { chmod, mkdir, mkdtemp, readdir, readFile, stat, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { exec } from '@berth/kit/exec';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type FakeControlPlane,
  deployTask,
  startFakeControlPlane,
  retireTask,
  until,
} from '../fake-control-plane.ts';
import {
  missingParts,
  type RealParts,
  type Site,
  startRealParts,
  startSite,
} from '../real-parts.ts';
import { type Share, startShare } from './share.ts';

describe.skipIf(missingParts !== undefined)('datasets in a container', () => {
  let parts: RealParts;
  let plane: FakeControlPlane;
  let share: Share;
  let site: Site;
  let image: string;
  let svc: string;
  beforeAll(async () => {
    parts = await startRealParts();
    plane = await startFakeControlPlane({
      address: parts.engine.gatewayIp,
      secret: 'agents only',
      config: {
        registry_addr: parts.registry.address,
        registry_user: parts.registry.user ?? '',
        registry_password: parts.registry.password ?? '',
      },
    });
    share = await startShare(plane);
    svc = await mkdtemp(join(parts.dir, 'svc-'));
    // A name with the separators of the engine’s mount options.
    await mkdir(share.path('odd, "one"'));
    await symlink('.', share.path('same'));
    site = await startSite(
      parts,
      { DATASET_NFS_BASE_PATH: share.path('same'), SVC_ROOT: svc, KEEP_RELEASES: '1' },
      plane,
    );
    image = `${parts.registry.address}/data:1`;
    await parts.engine.docker(['build', '--quiet', '--tag', image, '-'], {
      input: 'FROM busybox:stable\nCMD ["httpd","-f","-p","8080","-h","/data"]\n',
    });
    await parts.engine.docker(
      ['login', '--username', 'berth', '--password-stdin', parts.registry.address],
      {
        input: parts.registry.password ?? '',
      },
    );
    await parts.engine.docker(['push', image]);
  }, 180_000);
  afterAll(async () => {
    await site?.stop();
    await plane?.stop();
    await share?.stop();
    await parts?.stop();
  }, 60_000);

  const page = async (path: string): Promise<string> => {
    const port = (await parts.engine.docker(['port', 'svc-data', '8080/tcp'])).stdout
      .split(':')
      .at(-1)
      ?.trim();
    return (await fetch(`http://${parts.engine.hostIp}:${port}${path}`)).text();
  };
  const serves = (path: string, content: string): Promise<unknown> =>
    waitFor(`${path} is ${content}`, async () => (await page(path)) === content, {
      deadlineMs: 30_000,
    });

  it('a volume is writable for a user of the container and out of reach for other users of the node', {
    timeout: 120_000,
  }, async () => {
    const own = `${parts.registry.address}/own:1`;
    await parts.engine.docker(['build', '--quiet', '--tag', own, '-'], {
      input:
        `FROM busybox:stable\nUSER 1234\nCMD ["sh","-c","cp /bin/busybox /data/p; chmod 4755 ` +
        `/data/p; echo mine > /data/f; exec httpd -f -p 8080 -h /data"]\n`,
    });
    await parts.engine.docker(['push', own]);
    const volumes = { copy: 'v1', mounts: [{ name: 'data', mount_path: '/data', create: true }] };
    const { task } = plane.give(
      deployTask('dep-own', {
        image: own,
        container_name: 'svc-own',
        project_id: 'prj-own',
        datasets: [],
        volumes,
      }),
    );
    const report = await plane.reported(task.id, 60_000);
    expect(report, plane.text(task.id)).toMatchObject({ status: 'completed' });
    await waitFor(
      'the page',
      async () =>
        (await (await fetch(`http://${parts.engine.hostIp}:${report.host_port}/f`)).text()) ===
        'mine\n',
    );
    const program = join(svc, 'volumes/prj-own/data/p');
    expect((await stat(program)).mode & 0o7777).toBe(0o4755);
    // setpriv itself still has the rights of root when it starts a program, so `env` starts it.
    const asNobody = [
      'setpriv',
      '--reuid=65534',
      '--regid=65534',
      '--clear-groups',
      '--',
      'env',
      program,
      'id',
    ];
    await chmod(parts.dir, 0o755);
    await chmod(svc, 0o755);
    expect(await exec(asNobody, { env: process.env, timeoutMs: 10_000 })).toMatchObject({
      stdout: '',
      stderr: expect.stringContaining('Permission denied'),
    });
    await parts.engine.docker(['rm', '--force', 'svc-own']);
  });

  it('are mounted, verified, and survive restarts of the container and of the engine', {
    timeout: 120_000,
  }, async () => {
    await share.write('set/a/file', 'version one');
    const set = await share.dataset('set');
    const datasets = [
      { ...set.source, mode: 'dependency' as const, mount_path: '/data/set' },
      {
        ...set.source,
        dataset_id: 'rw',
        name: 'rw',
        nfs_path: 'odd, "one"',
        version: null,
        manifest_digest: null,
        mode: 'readwrite' as const,
        mount_path: '/data/r,w',
      },
    ];
    const first = plane.give(deployTask('dep-1', { image, container_name: 'svc-data', datasets }));
    const report = await plane.reported(first.task.id, 60_000);
    expect(report, plane.text(first.task.id)).toMatchObject({
      status: 'completed',
      datasets: [
        { dataset_id: 'set', version: 1 },
        { dataset_id: 'rw', version: null },
      ],
    });
    expect(first.progress.flat().at(-1)).toMatchObject({ name: 'set', step: 'done' });
    await serves('/set/a/file', 'version one');
    const inside = (...command: string[]) =>
      parts.engine.docker(['exec', 'svc-data', ...command], { mayFail: true });
    expect((await inside('touch', '/data/set/a/new')).stderr).toMatch(/read-only file system/i);
    await inside('sh', '-c', 'echo written > "/data/r,w/out"');
    expect(await readFile(share.path('odd, "one"', 'out'), 'utf8')).toBe('written\n');
    await until('the cache is registered', () =>
      plane.registers.at(-1)?.cached?.find((c) => c.dataset_id === 'set' && c.pinned === true),
    );

    await parts.engine.docker(['restart', '--time', '0', 'svc-data']);
    await serves('/set/a/file', 'version one');
    await parts.engine.faults?.restartDaemon('SIGTERM');
    await waitFor(
      'the engine has started it again',
      async () => (await page('/set/a/file')) === 'version one',
      { deadlineMs: 40_000 },
    );

    await share.write('set/a/file', 'version two');
    await set.scan();
    const second = plane.give(
      deployTask('dep-2', {
        image,
        generation: 2,
        container_name: 'svc-data-g2',
        datasets: [{ ...set.source, mode: 'dependency', mount_path: '/data/set' }],
      }),
    );
    expect(await plane.reported(second.task.id, 60_000)).toMatchObject({
      status: 'completed',
      datasets: [{ dataset_id: 'set', version: 2 }],
    });
    await serves('/set/a/file', 'version one');
    const retire = plane.give(
      retireTask({
        remove: [{ deployment_id: 'dep-1', reason: '' }],
        keep: { deployment_id: 'dep-2', name: 'svc-data' },
      }),
    );
    expect(await plane.reported(retire.task.id, 40_000)).toMatchObject({ status: 'completed' });
    await serves('/set/a/file', 'version two');
    expect((await readdir(join(svc, 'mounts'))).sort()).toEqual(['dep-2']);
  });

  it('a failed attempt leaves no mount folder, and the copied version stays', {
    timeout: 60_000,
  }, async () => {
    await share.write('other/file', 'x');
    const other = await share.dataset('other');
    const datasets = [{ ...other.source, mode: 'dependency' as const, mount_path: '/data' }];
    const { task } = plane.give(
      deployTask('dep-3', {
        project_id: 'prj-2',
        image,
        container_port: 9,
        container_name: 'svc-x',
        datasets,
        probe_seconds: 1,
      }),
    );
    expect(await plane.reported(task.id, 40_000)).toMatchObject({
      status: 'failed',
      result: { error: { code: 'container_wrong_port' } },
    });
    expect(await readdir(join(svc, 'mounts'))).not.toContain('dep-3');
    expect(await readdir(join(svc, 'objects', 'other'))).toContain('v1');
  });
});
