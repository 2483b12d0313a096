/** The agent as a process: settings, signals, and kill -9 during a deployment and a build. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { toolsDir } from '@berth/testbed/config';
import { freePort } from '@berth/testbed/ports';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  buildTask,
  deployTask,
  type FakeControlPlane,
  startFakeControlPlane,
  until,
} from './fake-control-plane.ts';
import { missingParts, type RealParts, startRealParts } from './real-parts.ts';

const MAIN = join(import.meta.dirname, '..', 'src', 'main.ts');
type Program = {
  child: ChildProcess;
  output: () => string;
  ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
};

const children: ChildProcess[] = [];
afterAll(() => {
  // A failed test may have left a child running.
  for (const child of children)
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
});

function start(env: Record<string, string>): Program {
  const child = spawn(process.execPath, [MAIN], {
    env: { PATH: process.env['PATH'], LOG_LEVEL: 'debug', LOG_FORMAT: 'json', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  children.push(child);
  let output = '';
  child.stdout?.on('data', (d) => (output += String(d)));
  child.stderr?.on('data', (d) => (output += String(d)));
  const ended = once(child, 'close').then(([code, signal]) => ({
    code: code as number | null,
    signal: signal as NodeJS.Signals | null,
  }));
  return { child, output: () => output, ended };
}

it('exits with 2 on wrong settings and names all of them', async () => {
  const { ended, output } = start({ NODE_ROLE: 'cook', MAX_BUILDS: 'many' });
  expect((await ended).code).toBe(2);
  expect(output()).toMatch(/NODE_ROLE[^]*CONTROL_PLANE_URL[^]*MAX_BUILDS/);
});

describe.skipIf(missingParts !== undefined)('the agent as a process', () => {
  let parts: RealParts;
  let plane: FakeControlPlane;
  let stateDir: string;
  beforeAll(async () => {
    parts = await startRealParts();
    plane = await startFakeControlPlane({
      address: parts.engine.gatewayIp,
      config: {
        registry_addr: parts.registry.address,
        registry_user: 'berth',
        registry_password: parts.registry.password ?? '',
      },
    });
    stateDir = await mkdtemp(join(parts.dir, 'state-'));
  }, 120_000);
  afterAll(async () => {
    await plane?.stop();
    await parts?.stop();
  }, 60_000);

  const agent = (role: string, port?: number): Program =>
    start({
      NODE_ROLE: role,
      CONTROL_PLANE_URL: plane.url,
      DOCKER_HOST: parts.engine.host,
      DOCKER_PLUGINS_DIR: join(toolsDir, 'docker-plugins'),
      HOST_IP: parts.engine.hostIp,
      STATE_DIR: stateDir,
      SVC_ROOT: join(parts.dir, 'svc'),
      ...(port === undefined ? {} : { LISTEN: `127.0.0.1:${port}` }),
    });

  it('becomes ready, and exits with 0 on SIGTERM', { timeout: 30_000 }, async () => {
    const port = await freePort('127.0.0.1');
    const program = agent('deploy', port);
    await until('ready', () => program.output().includes('agent started'));
    await waitFor(
      'the agent is ready',
      async () => (await fetch(`http://127.0.0.1:${port}/readyz`)).status === 200,
    );
    program.child.kill('SIGTERM');
    expect((await program.ended).code).toBe(0);
  });

  it('after kill -9 during a probe the next process adopts the container', {
    timeout: 60_000,
  }, async () => {
    const tag = `${parts.registry.address}/app:late`;
    await parts.engine.docker(['build', '--quiet', '--tag', tag, '-'], {
      input: 'FROM busybox:stable\nCMD ["sh","-c","sleep 4; exec httpd -f -p 8080 -h /"]\n',
    });
    await parts.engine.docker(
      ['login', '--username', 'berth', '--password-stdin', parts.registry.address],
      {
        input: parts.registry.password ?? '',
      },
    );
    await parts.engine.docker(['push', tag]);
    const first = agent('deploy');
    const { task } = plane.give(deployTask('dep-k', { image: tag, probe_seconds: 20 }));
    await until('the probe', () => plane.text(task.id).includes('probe|'));
    first.child.kill('SIGKILL');
    await first.ended;
    const id = (
      await parts.engine.docker([
        'ps',
        '--quiet',
        '--no-trunc',
        '--filter',
        'label=berth.deployment=dep-k',
      ])
    ).stdout.trim();
    const second = agent('deploy');
    const report = await plane.reported(task.id);
    expect(report).toMatchObject({ status: 'completed', container_id: id });
    expect(plane.state(task.id).attempt).toBe(2);
    expect(
      (
        await fetch(`http://${parts.engine.hostIp}:${report.host_port}/bin/busybox`, {
          method: 'HEAD',
        })
      ).status,
    ).toBe(200);
    second.child.kill('SIGTERM');
    await second.ended;
  });

  it('after kill -9 during a build the next process removes the workspace and builds again', {
    timeout: 60_000,
  }, async () => {
    const { url, sha } = await parts.git.createRepo('killed', {
      Dockerfile: `FROM busybox:stable\nRUN echo begun ${Date.now()} && sleep 3\n`,
    });
    const first = agent('builder');
    const { task } = plane.give(
      buildTask({ git_url: url, image_repository: `${parts.registry.address}/killed` }),
    );
    await until('the step', () => plane.text(task.id).includes('| begun')).catch((e: unknown) => {
      throw new Error(`${String(e)}\n${plane.text(task.id)}\n${first.output()}`);
    });
    first.child.kill('SIGKILL');
    await first.ended;
    expect(await readdir(join(stateDir, 'builder', 'work'))).toEqual([`${task.id}-1`]);
    const second = agent('builder');
    expect(await plane.reported(task.id, 30_000)).toMatchObject({
      status: 'completed',
      commit: sha,
    });
    expect(await readdir(join(stateDir, 'builder', 'work'))).toEqual([]);
    second.child.kill('SIGTERM');
    expect((await second.ended).code).toBe(0);
  });
});
