import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ensureBaseImages } from '../src/base-images.ts';
import { childEnvironment, toolsDir } from '../src/config.ts';
import { type Host, type Hosts, startHosts, whyNoHosts } from '../src/hosts.ts';
import { isRunning } from '../src/process.ts';
import { startInside } from '../src/process-tree.ts';
import { waitFor } from '../src/wait.ts';

const missing = whyNoHosts();

// Skipped without root on Linux, or without docker.io and its helpers.
describe.skipIf(missing !== undefined)(
  `hosts${missing === undefined ? '' : ` (${missing})`}`,
  { timeout: 60_000 },
  () => {
    let dir: string;
    let hosts: Hosts;
    let one: Host;
    let two: Host;
    beforeAll(async () => {
      dir = await mkdtemp(join(toolsDir, 'hosts-test-'));
      hosts = await startHosts({ dir, hosts: [{ name: 'one' }, { name: 'two' }] });
      [one, two] = [hosts.hosts['one'] as Host, hosts.hosts['two'] as Host];
      await ensureBaseImages(one.engine, ['busybox:stable']);
    }, 60_000);
    afterAll(async () => {
      await hosts?.stop();
      if (dir !== undefined) await rm(dir, { recursive: true, force: true });
    }, 60_000);

    /** Whether `from` reaches that address. Uses ping, because a proxy may hold a port open. */
    const reaches = async (from: Host, address: string): Promise<boolean> =>
      (await from.run(['busybox', 'ping', '-c', '1', '-W', '1', address], { mayFail: true }))
        .code === 0;
    /** Runs busybox' web server and returns its address. */
    const serve = async (host: Host): Promise<string> => {
      const command = [
        'run',
        '--detach',
        '--name',
        'web',
        '--restart',
        'unless-stopped',
        '--publish',
        '0:8080',
        'busybox:stable',
      ];
      await host.engine.docker([...command, 'httpd', '-f', '-p', '8080', '-h', '/etc']);
      return url(host);
    };
    const url = async (host: Host): Promise<string> => {
      const published =
        (await host.engine.docker(['port', 'web', '8080'])).stdout.split('\n')[0] ?? '';
      const address = `http://${host.ip}:${published.slice(published.lastIndexOf(':') + 1)}/passwd`;
      await waitFor(
        'the web server answers',
        async () => (await fetch(address, { signal: AbortSignal.timeout(1_000) })).ok,
      );
      return address;
    };

    it('reach each other and this machine, each at one address', async () => {
      expect(new Set([hosts.gatewayIp, one.ip, two.ip]).size).toBe(3);
      for (const [from, to] of [
        [one, two.ip],
        [two, one.ip],
        [one, hosts.gatewayIp],
        [two, hosts.gatewayIp],
      ] as const)
        expect(await reaches(from, to), `${from.name} to ${to}`).toBe(true);
    });

    it('a partitioned host reaches no other host, keeps running, and is back after heal(); the others are not affected', async () => {
      const address = await serve(one);
      await one.partition();
      expect(await reaches(one, hosts.gatewayIp)).toBe(false);
      expect(await reaches(one, two.ip)).toBe(false);
      expect(await reaches(two, one.ip)).toBe(false);
      expect(await reaches(two, hosts.gatewayIp)).toBe(true);
      await expect(fetch(address, { signal: AbortSignal.timeout(500) })).rejects.toThrow();
      expect((await one.engine.docker(['ps', '--format', '{{.Names}}'])).stdout.trim()).toBe('web');
      await one.heal();
      await waitFor(
        'the container answers again',
        async () => (await fetch(address, { signal: AbortSignal.timeout(1_000) })).ok,
      );
      await waitFor('the hosts reach each other again', () => reaches(one, two.ip));
    });

    it('a killed host loses its programs and containers; after boot(), containers with a restart policy run again', async () => {
      const program = await startInside(one.enter, ['sleep', '1000'], { name: 'a program' });
      const web = await processOf(one, 'web');
      await one.kill();
      // The kernel removes a killed process a moment later.
      await waitFor(
        'its program and its container have ended',
        async () => !isRunning(program.pid) && !isRunning(web),
      );
      await one.boot();
      await url(one);
    });

    it('files are shared, and a mount on one host is visible only to its own programs and engine', async () => {
      const shared = join(dir, 'shared');
      await mkdir(shared);
      await writeFile(join(shared, 'file'), 'of all');
      const seen = async (host: Host): Promise<string> =>
        (await host.run(['cat', join(shared, 'file')], { mayFail: true })).stdout;
      expect([await seen(one), await seen(two)]).toEqual(['of all', 'of all']);
      await one.run(['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', shared]);
      expect([await seen(one), await seen(two)]).toEqual(['', 'of all']);
      await one.run(['sh', '-c', 'echo its own > "$0"/file', shared]);
      const inContainer = [
        'run',
        '--rm',
        '--volume',
        `${shared}:/shared:ro`,
        'busybox:stable',
        'cat',
        '/shared/file',
      ];
      expect((await one.engine.docker(inContainer)).stdout).toBe('its own\n');
      expect(await readFile(join(shared, 'file'), 'utf8')).toBe('of all');
      await one.run(['umount', shared]);
      expect(await seen(one)).toBe('of all');
    });

    it('a program started on a host receives signals, and its exit code is returned', async () => {
      const program = await startInside(
        two.enter,
        ['sh', '-c', 'trap "exit 7" TERM; echo ready; while :; do sleep 0.1; done'],
        {
          name: 'a program',
        },
      );
      await waitFor('the program is ready', () => program.tail().includes('ready'));
      await program.stop();
      expect(program.exit()).toEqual({ code: 7, signal: null });
    });

    it('die with the process that started them, even by SIGKILL, and leave nothing behind; the next run is not disturbed', async () => {
      const { child, report } = await startElsewhere(dir);
      expect(await linkNames()).toContain(report.link);
      child.kill('SIGKILL');
      await waitFor(
        'every process of the hosts is gone',
        async () => (await Promise.all(report.namespaces.map(processesIn))).flat().length === 0,
      );
      await waitFor('the link is gone', async () => !(await linkNames()).includes(report.link), {
        deadlineMs: 10_000,
      });
      expect(await readFile('/proc/self/mountinfo', 'utf8')).not.toContain(dir);
      const next = await startHosts({ dir, hosts: [{ name: 'next' }] });
      try {
        // The folders of the killed hosts are gone too; the folders of this run and the next one
        // remain.
        expect((await readdir(dir)).filter((name) => name.startsWith('engine-tmp-'))).toHaveLength(
          3,
        );
        expect(await reaches(next.hosts['next'] as Host, next.gatewayIp)).toBe(true);
        await next.hosts['next']?.kill();
      } finally {
        await next.stop();
      }
    });
  },
);

/** Returns the process id of a container's program, seen from here. */
async function processOf(host: Host, container: string): Promise<number> {
  const [pid, name] = (
    await host.engine.docker(['inspect', '--format', '{{.State.Pid}} {{.Path}}', container])
  ).stdout
    .trim()
    .split(' ');
  for (const id of await pids()) {
    // A process may end during the search.
    const status = await readFile(`/proc/${id}/status`, 'utf8').catch(() => '');
    // Its ids here, on the host and in the container (proc(5)).
    const ids = /^NSpid:\t(.*)$/m.exec(status)?.[1]?.split('\t') ?? [];
    if (status.startsWith(`Name:\t${name}\n`) && ids.length === 3 && ids[1] === pid) return id;
  }
  throw new Error(`${container} has no process`);
}

async function processesIn(namespace: string): Promise<number[]> {
  const found: number[] = [];
  for (const pid of await pids()) {
    // A process may end during the search.
    if ((await readlink(`/proc/${pid}/ns/net`).catch(() => '')) === namespace && isRunning(pid))
      found.push(pid);
  }
  return found;
}

const pids = async (): Promise<number[]> =>
  (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
const linkNames = (): Promise<string[]> => readdir('/sys/class/net');

/**
 * Starts hosts with a program in another process, which reports their network namespaces and their
 * link to this one.
 */
async function startElsewhere(dir: string) {
  const source = (file: string) => JSON.stringify(new URL(`../src/${file}`, import.meta.url).href);
  const program = `
    import { startHosts } from ${source('hosts.ts')}
    import { startInside } from ${source('process-tree.ts')}
    const { hosts, gatewayIp } = await startHosts({ dir: ${JSON.stringify(dir)}, hosts: [{ name: 'doomed-1' }, { name: 'doomed-2' }] })
    const namespaces = []
    for (const host of Object.values(hosts)) {
      await startInside(host.enter, ['sleep', '1000'], { name: 'a program' })
      namespaces.push((await host.run(['readlink', '/proc/self/ns/net'])).stdout.trim())
    }
    console.log(JSON.stringify({ namespaces, link: 'bt' + gatewayIp.split('.')[2] }))`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: childEnvironment(),
  });
  let out = '';
  child.stdout.on('data', (chunk: Buffer) => {
    out += chunk.toString();
  });
  await waitFor('the other process has its hosts', () => out.includes('\n'), {
    deadlineMs: 40_000,
  });
  return { child, report: JSON.parse(out) as { namespaces: string[]; link: string } };
}
