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

// Skipped where there is no root on Linux, or docker.io and its helpers are not installed.
describe.skipIf(missing !== undefined)(`hosts${missing === undefined ? '' : ` (${missing})`}`, { timeout: 60_000 }, () => {
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

  /** Whether `from` reaches that address; the answer to a ping says more than a port that a proxy holds open. */
  const reaches = async (from: Host, address: string): Promise<boolean> =>
    (await from.run(['busybox', 'ping', '-c', '1', '-W', '1', address], { mayFail: true })).code === 0;
  /** Busybox' web server, and where it answers. */
  const serve = async (host: Host): Promise<string> => {
    const command = ['run', '--detach', '--name', 'web', '--restart', 'unless-stopped', '--publish', '0:8080', 'busybox:stable'];
    await host.engine.docker([...command, 'httpd', '-f', '-p', '8080', '-h', '/etc']);
    return url(host);
  };
  const url = async (host: Host): Promise<string> => {
    const published = (await host.engine.docker(['port', 'web', '8080'])).stdout.split('\n')[0] ?? '';
    const address = `http://${host.ip}:${published.slice(published.lastIndexOf(':') + 1)}/passwd`;
    await waitFor('the web server answers', async () => (await fetch(address, { signal: AbortSignal.timeout(1_000) })).ok);
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

  it('one that is cut off reaches nobody, goes on, and is back when it is healed; the others notice nothing', async () => {
    const address = await serve(one);
    await one.partition();
    expect(await reaches(one, hosts.gatewayIp)).toBe(false);
    expect(await reaches(one, two.ip)).toBe(false);
    expect(await reaches(two, one.ip)).toBe(false);
    expect(await reaches(two, hosts.gatewayIp)).toBe(true);
    await expect(fetch(address, { signal: AbortSignal.timeout(500) })).rejects.toThrow();
    expect((await one.engine.docker(['ps', '--format', '{{.Names}}'])).stdout.trim()).toBe('web');
    await one.heal();
    await waitFor('it answers again', async () => (await fetch(address, { signal: AbortSignal.timeout(1_000) })).ok);
    await waitFor('they reach each other again', () => reaches(one, two.ip));
  });

  it('one that is killed loses all that runs on it, programs and containers; booted, it has what is to be restarted', async () => {
    const program = await startInside(one.enter, ['sleep', '1000'], { name: 'a program' });
    const web = await processOf(one, 'web');
    await one.kill();
    expect(isRunning(program.pid)).toBe(false);
    expect(isRunning(web)).toBe(false);
    await one.boot();
    await url(one);
  });

  it('files are shared, and what is mounted on one is its own, for its programs and its engine', async () => {
    const shared = join(dir, 'shared');
    await mkdir(shared);
    await writeFile(join(shared, 'file'), 'of all');
    const seen = async (host: Host): Promise<string> => (await host.run(['cat', join(shared, 'file')], { mayFail: true })).stdout;
    expect([await seen(one), await seen(two)]).toEqual(['of all', 'of all']);
    await one.run(['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', shared]);
    expect([await seen(one), await seen(two)]).toEqual(['', 'of all']);
    await one.run(['sh', '-c', 'echo its own > "$0"/file', shared]);
    const inContainer = ['run', '--rm', '--volume', `${shared}:/shared:ro`, 'busybox:stable', 'cat', '/shared/file'];
    expect((await one.engine.docker(inContainer)).stdout).toBe('its own\n');
    expect(await readFile(join(shared, 'file'), 'utf8')).toBe('of all');
    await one.run(['umount', shared]);
    expect(await seen(one)).toBe('of all');
  });

  it('what is started on one gets signals, and its exit code is seen', async () => {
    const program = await startInside(two.enter, ['sh', '-c', 'trap "exit 7" TERM; echo ready; while :; do sleep 0.1; done'], {
      name: 'a program',
    });
    await waitFor('it is ready', () => program.tail().includes('ready'));
    await program.stop();
    expect(program.exit()).toEqual({ code: 7, signal: null });
  });

  it('die with the process that started them, even by SIGKILL, and leave nothing; a next run is not disturbed', async () => {
    const { child, told } = await startElsewhere(dir);
    expect(await linkNames()).toContain(told.link);
    child.kill('SIGKILL');
    await waitFor('no process of them is left', async () => (await Promise.all(told.namespaces.map(processesIn))).flat().length === 0);
    await waitFor('their link is gone', async () => !(await linkNames()).includes(told.link), { deadlineMs: 10_000 });
    expect(await readFile('/proc/self/mountinfo', 'utf8')).not.toContain(dir);
    const next = await startHosts({ dir, hosts: [{ name: 'next' }] });
    try {
      // The folders of the killed ones are gone too: those of this run and of the next are left.
      expect((await readdir(dir)).filter((name) => name.startsWith('engine-tmp-'))).toHaveLength(3);
      expect(await reaches(next.hosts['next'] as Host, next.gatewayIp)).toBe(true);
      await next.hosts['next']?.kill();
    } finally {
      await next.stop();
    }
  });
});

/** Process id, seen from here, of a container's program. */
async function processOf(host: Host, container: string): Promise<number> {
  const [pid, name] = (await host.engine.docker(['inspect', '--format', '{{.State.Pid}} {{.Path}}', container])).stdout.trim().split(' ');
  for (const id of await pids()) {
    // A process may end while we look.
    const status = await readFile(`/proc/${id}/status`, 'utf8').catch(() => '');
    // Its ids here, on the host, in the container (proc(5)).
    const ids = /^NSpid:\t(.*)$/m.exec(status)?.[1]?.split('\t') ?? [];
    if (status.startsWith(`Name:\t${name}\n`) && ids.length === 3 && ids[1] === pid) return id;
  }
  throw new Error(`${container} has no process`);
}

async function processesIn(namespace: string): Promise<number[]> {
  const found: number[] = [];
  for (const pid of await pids()) {
    // A process may end while we look.
    if ((await readlink(`/proc/${pid}/ns/net`).catch(() => '')) === namespace && isRunning(pid)) found.push(pid);
  }
  return found;
}

const pids = async (): Promise<number[]> => (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
const linkNames = (): Promise<string[]> => readdir('/sys/class/net');

/** Starts hosts with a program in another process, which tells their network namespaces and their link to this one. */
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
  await waitFor('the other process has its hosts', () => out.includes('\n'), { deadlineMs: 40_000 });
  return { child, told: JSON.parse(out) as { namespaces: string[]; link: string } };
}
