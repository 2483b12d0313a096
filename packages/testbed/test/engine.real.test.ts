import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ensureBaseImages } from '../src/base-images.ts';
import { childEnvironment, findProgram, toolsDir } from '../src/config.ts';
import { pluginsDir } from '../src/docker-config.ts';
import { type Engine, startEngine, whyNoOwnEngine } from '../src/engine.ts';
import { registryProgram, startRegistry } from '../src/registry.ts';
import { engineAnswers } from '../src/engine-handle.ts';
import { isRunning, signalProcess, statOf } from '../src/process.ts';
import { waitFor } from '../src/wait.ts';

// A folder for this file alone, so that other runs do not disturb it. (Not in /tmp, which may be
// small or in memory.)
let dir: string;
const missing = whyNoOwnEngine();
const settings = '/proc/sys/net/ipv4/ip_forward';

/** Runs busybox' web server on the engine and returns its address once it answers. */
async function serve(engine: Engine, name: string, ...options: string[]): Promise<string> {
  await engine.docker([
    'run',
    '--detach',
    '--name',
    name,
    '--publish',
    '0:8080',
    ...options,
    'busybox:stable',
    'httpd',
    '-f',
    '-p',
    '8080',
    '-h',
    '/etc',
  ]);
  return address(engine, name);
}

async function address(engine: Engine, name: string): Promise<string> {
  const published = (await engine.docker(['port', name, '8080'])).stdout.split('\n')[0] ?? '';
  const url = `http://${engine.hostIp}:${published.slice(published.lastIndexOf(':') + 1)}/passwd`;
  await waitFor(
    `${name} answers`,
    async () => (await fetch(url, { signal: AbortSignal.timeout(2_000) })).ok,
  );
  return url;
}

// Skipped without root on Linux, or without docker.io and its helpers.
describe.skipIf(missing !== undefined)(
  `own engine${missing === undefined ? '' : ` (${missing})`}`,
  { timeout: 60_000 },
  () => {
    let engine: Engine;
    let before: { forward: string; links: string };
    beforeAll(async () => {
      dir = await mkdtemp(join(toolsDir, 'engine-test-'));
      before = { forward: await readFile(settings, 'utf8'), links: await linkNames() };
      engine = await startEngine({ dir, name: 'test', private: true });
      await ensureBaseImages(engine, ['busybox:stable']);
    }, 60_000);
    afterAll(async () => {
      await engine?.stop();
      if (dir !== undefined) await rm(dir, { recursive: true, force: true });
    }, 60_000);

    it('publishes ports on its own address and enforces the limits of containers', async () => {
      const url = await serve(
        engine,
        'limited',
        '--memory',
        '32m',
        '--pids-limit',
        '20',
        '--cpus',
        '0.5',
      );
      expect(await (await fetch(url)).text()).toContain('root');
      const eaten = await engine.docker(
        [
          'run',
          '--rm',
          '--memory',
          '32m',
          'busybox:stable',
          'dd',
          'if=/dev/zero',
          'of=/dev/null',
          'bs=200M',
          'count=1',
        ],
        { mayFail: true },
      );
      expect(eaten.code).toBe(137);
      const group = (await engine.docker(['exec', 'limited', 'cat', '/proc/self/cgroup'])).stdout;
      expect(group).toContain('berth-');
    });

    it('reaches this machine at gatewayIp, also from containers', async () => {
      const server = createServer((_request, response) => response.end('control plane'));
      await new Promise<void>((resolve) => server.listen(0, engine.gatewayIp, resolve));
      try {
        const { port } = server.address() as { port: number };
        // Not wget: wget of Debian's busybox-static dies of a segmentation fault.
        const heard = await engine.docker(
          [
            'run',
            '--rm',
            '--interactive',
            'busybox:stable',
            'nc',
            '-w',
            '5',
            engine.gatewayIp,
            String(port),
          ],
          {
            input: 'GET / HTTP/1.0\r\n\r\n',
          },
        );
        expect(heard.stdout).toContain('control plane');
      } finally {
        server.close();
      }
    });

    it.skipIf(registryProgram() === undefined || !existsSync(join(pluginsDir, 'docker-buildx')))(
      'builds, pushes to a registry with a password, and pulls',
      async () => {
        const work = await mkdtemp(join(tmpdir(), 'berth-build-'));
        const registry = await startRegistry({
          dir: join(work, 'registry'),
          address: engine.gatewayIp,
          user: 'u',
          password: 'p',
        });
        try {
          await mkdir(join(work, 'source'));
          await writeFile(
            join(work, 'source/Dockerfile'),
            `FROM busybox:stable\nRUN echo ${Date.now()} > /built\n`,
          );
          await engine.docker(['login', '--username', 'u', '--password-stdin', registry.address], {
            input: 'p',
          });
          const tag = `${registry.address}/testbed/built:1`;
          await engine.docker(['buildx', 'build', '--push', '--tag', tag, join(work, 'source')]);
          expect(await registry.tags('testbed/built')).toEqual(['1']);
          await engine.docker(['run', '--rm', '--pull', 'always', tag, 'cat', '/built']);
          await engine.docker(['image', 'rm', '--force', tag]);
        } finally {
          await registry.stop();
          await rm(work, { recursive: true, force: true });
        }
      },
    );

    it.skipIf(findProgram('slirp4netns') === undefined)(
      "resolves names and reaches the internet without the machine's own forwarding",
      async () => {
        const routes = await engine.docker([
          'run',
          '--rm',
          '--network',
          'host',
          'busybox:stable',
          'ip',
          'route',
        ]);
        expect(routes.stdout).toMatch(/^default .*tap0/m);
        expect(
          (await engine.docker(['run', '--rm', 'busybox:stable', 'cat', '/etc/resolv.conf']))
            .stdout,
        ).toContain('10.0.2.3');
      },
    );

    it('restarts containers after everything in it was killed', async () => {
      await serve(engine, 'lasting', '--restart', 'unless-stopped');
      const killed = engine.faults?.daemonPid();
      await engine.faults?.restartDaemon();
      expect(engine.faults?.daemonPid()).not.toBe(killed);
      await waitFor(
        'the container runs again',
        async () =>
          (
            await engine.docker(['inspect', '--format', '{{.State.Running}}', 'lasting'])
          ).stdout.trim() === 'true',
      );
      await address(engine, 'lasting');
    });

    it('can be powered off and on after its daemon was stopped (SIGSTOP) and continued', async () => {
      const pid = engine.faults?.daemonPid() as number;
      signalProcess(pid, 'SIGSTOP');
      await waitFor('the daemon is stopped', () => statOf(pid)[0] === 'T');
      signalProcess(pid, 'SIGCONT');
      await waitFor('the daemon answers again', () => engineAnswers(engine.host));
      await engine.faults?.powerOff();
      expect(isRunning(pid)).toBe(false);
      await engine.faults?.powerOn();
    });

    it('can be powered off while its daemon is stopped (SIGSTOP)', async () => {
      const pid = engine.faults?.daemonPid() as number;
      signalProcess(pid, 'SIGSTOP');
      await waitFor('the daemon is stopped', () => statOf(pid)[0] === 'T');
      await engine.faults?.powerOff();
      expect(isRunning(pid)).toBe(false);
      await engine.faults?.powerOn();
    });

    it('can be disconnected and reconnected', async () => {
      const url = await serve(engine, 'cut-off');
      await engine.faults?.connect(false);
      await expect(fetch(url, { signal: AbortSignal.timeout(500) })).rejects.toThrow();
      await engine.faults?.connect(true);
      await waitFor(
        'the container answers again',
        async () => (await fetch(url, { signal: AbortSignal.timeout(1_000) })).ok,
      );
    });

    it('runs beside a second engine of the same name, which gets its own folder and network', async () => {
      const second = await startEngine({ dir, name: 'test', private: true });
      try {
        expect(second.hostIp).not.toBe(engine.hostIp);
        expect((await second.docker(['ps', '--quiet'])).stdout).toBe('');
      } finally {
        await second.stop();
      }
      expect((await readdir(dir)).filter((name) => name.startsWith('engine-tmp-'))).toEqual([]);
    });

    it('dies with the process that started it, even by SIGKILL, and leaves nothing behind', async () => {
      const { child, report } = await startElsewhere('doomed');
      const inside = await processesIn(report.namespace);
      expect(inside.length).toBeGreaterThan(3); // sleep, dockerd, containerd, a shim, the container
      child.kill('SIGKILL');
      await waitFor('every process of the engine is gone', async () => {
        const remaining = await processesIn(report.namespace);
        if (remaining.length > 0)
          throw new Error(
            'still running: ' +
              (
                await Promise.all(remaining.map((pid) => readFile(`/proc/${pid}/stat`, 'utf8')))
              ).join(''),
          );
        return true;
      });
      // The kernel removes a network namespace later, together with those of other engines.
      await waitFor('the cable is gone', async () => !(await linkNames()).includes(report.link), {
        deadlineMs: 60_000,
      });
      expect(await readFile('/proc/self/mountinfo', 'utf8')).not.toContain('engine-doomed');
      // The next run on the same folder starts, without the containers of the killed one.
      const next = await startEngine({ dir, name: 'doomed', private: true });
      expect((await next.docker(['ps', '--all', '--quiet'])).stdout).toBe('');
      await next.stop();
    });

    it("does not change the machine's own network", async () => {
      expect(await readFile(settings, 'utf8')).toBe(before.forward);
      const others = (names: string) =>
        names
          .split('\n')
          .filter((name) => !name.startsWith('bt'))
          .join('\n');
      expect(others(await linkNames())).toBe(others(before.links));
    });
  },
);

async function linkNames(): Promise<string> {
  return (await readdir('/sys/class/net')).sort().join('\n');
}

/** Returns the ids of the processes in this pid namespace. */
async function processesIn(namespace: string): Promise<string[]> {
  const found: string[] = [];
  for (const pid of await readdir('/proc')) {
    if (!/^\d+$/.test(pid)) continue;
    // A process may end during the search.
    if (
      (await readlink(`/proc/${pid}/ns/pid`).catch(() => '')) === namespace &&
      isRunning(Number(pid))
    )
      found.push(pid);
  }
  return found;
}

/**
 * Starts an engine with a running container in another process, and returns that process' report.
 */
async function startElsewhere(name: string) {
  const source = (file: string) => JSON.stringify(new URL(`../src/${file}`, import.meta.url).href);
  const program = `
    import { startEngine } from ${source('engine.ts')}
    import { ensureBaseImages } from ${source('base-images.ts')}
    import { readlinkSync } from 'node:fs'
    const engine = await startEngine({ dir: ${JSON.stringify(dir)}, name: ${JSON.stringify(name)}, private: true })
    await ensureBaseImages(engine, ['busybox:stable'])
    await engine.docker(['run', '--detach', '--restart', 'always', 'busybox:stable', 'sleep', '1000'])
    const pid = engine.faults.daemonPid()
    console.log(JSON.stringify({ namespace: readlinkSync('/proc/' + pid + '/ns/pid'), link: 'bt' + engine.hostIp.split('.')[2] }))`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: childEnvironment(),
  });
  let out = '';
  child.stdout.on('data', (chunk: Buffer) => {
    out += chunk.toString();
  });
  await waitFor('the other process has its engine', () => out.includes('\n'), {
    deadlineMs: 40_000,
  });
  return { child, report: JSON.parse(out) as { namespace: string; link: string } };
}
