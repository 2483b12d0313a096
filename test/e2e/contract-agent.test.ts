/**
 * Contract-only agents: register, config, poll every 5 s, complete. Written only from
 * docs/contract.md: no start, no lease, no logs, no retire. The platform serves them as well as our
 * agent.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Engine } from '@berth/testbed/engine-handle';
import { run } from '@berth/testbed/process';
import { pageApp, startWorld, whyNot, type World } from './world.ts';

const reason = await whyNot();

type ContractTask = {
  id: string;
  kind: string;
  payload: Record<string, unknown> & {
    image_repository: string;
    git_url: string;
    branch: string;
    dockerfile_path: string;
    domain_prefix: string;
    container_port: number;
    image: string;
    env: Record<string, string>;
  };
};

/** Polls until `signal` aborts. `seen` collects every kind of task that the agent was offered. */
async function contractAgent(
  role: 'builder' | 'deploy',
  url: string,
  secret: string,
  engine: Engine,
  seen: Set<string>,
  signal: AbortSignal,
): Promise<void> {
  const call = async (method: string, path: string, body?: unknown): Promise<unknown> => {
    const response = await fetch(url + path, {
      method,
      headers: { 'x-agent-secret': secret, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (!response.ok)
      throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response.json();
  };
  const register = () =>
    call('POST', '/api/agent/register', {
      hostname: `contract-${role}`,
      role,
      host_ip: engine.hostIp,
      max_storage: 10_000_000_000,
    }) as Promise<{ id: string }>;
  const node = await register();
  const config = (await call('GET', '/api/agent/config')) as {
    registry_addr: string;
    registry_user: string;
    registry_password: string;
  };
  await engine.docker(
    ['login', '--username', config.registry_user, '--password-stdin', config.registry_addr],
    {
      input: config.registry_password,
    },
  );
  const done = new Set<string>();
  while (!signal.aborted) {
    for (const task of (await call(
      'GET',
      `/api/agent/tasks?node_id=${node.id}`,
    )) as ContractTask[]) {
      seen.add(task.kind);
      if (done.has(task.id)) continue;
      done.add(task.id);
      await call(
        'POST',
        `/api/agent/tasks/${task.id}/complete`,
        role === 'builder' ? await build(task, engine) : await deploy(task, engine),
      );
    }
    await sleep(5_000, undefined, { signal }).catch(() => undefined);
  }
}

async function build({ payload }: ContractTask, engine: Engine): Promise<object> {
  const dir = await mkdtemp(join(tmpdir(), 'contract-build-'));
  try {
    await run(['git', 'clone', '--depth=1', '--branch', payload.branch, payload.git_url, dir]);
    const sha = (await run(['git', '-C', dir, 'rev-parse', 'HEAD'])).stdout.trim();
    const image_tag = `${payload.image_repository}:${sha}`;
    await engine.docker([
      'buildx',
      'build',
      '--push',
      '-f',
      join(dir, payload.dockerfile_path),
      '-t',
      image_tag,
      dir,
    ]);
    return { status: 'completed', result: 'pushed', image_tag };
  } catch (error) {
    return { status: 'failed', result: String(error) };
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

async function deploy({ payload }: ContractTask, engine: Engine): Promise<object> {
  const name = `svc-${payload.domain_prefix}`;
  await engine.docker(['rm', '-f', name], { mayFail: true });
  await engine.docker([
    'run',
    '-d',
    '--name',
    name,
    '-p',
    `0:${payload.container_port}`,
    payload.image,
  ]);
  const { stdout } = await engine.docker(['port', name, String(payload.container_port)]);
  return { status: 'completed', host_port: Number(stdout.split('\n')[0]?.split(':').at(-1)) };
}

describe.skipIf(reason !== undefined)(
  `contract-only agents${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: World;
    const stop = new AbortController();
    const seen = new Set<string>();
    const agents: Promise<void>[] = [];
    beforeAll(async () => {
      world = await startWorld({ proxy: 'built-in', agents: () => [] });
      const { berth, engine } = world;
      for (const role of ['builder', 'deploy'] as const)
        agents.push(contractAgent(role, berth.url, berth.agentSecret, engine, seen, stop.signal));
    });
    afterAll(async () => {
      stop.abort();
      await Promise.all(agents);
      await world?.engine.docker(['rm', '-f', 'svc-old'], { mayFail: true });
      await world?.stop();
    });

    it('build, deploy and redeploy', async () => {
      const { berth, git } = world;
      const { url } = await git.createRepo('old', pageApp(1));
      const project = await berth.createProject({
        name: 'old',
        git_url: url,
        domain_prefix: 'old',
      });
      expect(await berth.settled(await berth.deploy(project))).toMatchObject({
        status: 'running',
        error: null,
      });
      expect(await berth.get('old')).toMatchObject({ status: 200, body: 'version 1\n' });
      await git.commit('old', pageApp(2), 'version 2');
      expect(await berth.settled(await berth.deploy(project))).toMatchObject({
        status: 'running',
        generation: 2,
      });
      expect(await berth.get('old')).toMatchObject({ status: 200, body: 'version 2\n' });
      // Kinds outside the contract are never offered to such an agent.
      expect([...seen].toSorted()).toEqual(['build', 'deploy']);
    });

    it('a failed build shows the agent’s message, and the old version keeps serving', async () => {
      const { berth, git } = world;
      const [project] = (await berth.api.call('listProjects', { query: {} })).items;
      if (project === undefined) throw new Error('the first test did not create the project');
      await git.commit('old', { Dockerfile: 'FROM busybox:stable\nRUN false\n' }, 'breaks');
      expect(await berth.settled(await berth.deploy(project))).toMatchObject({
        status: 'failed',
        error: { code: 'task_failed', message: expect.stringContaining('buildx') },
      });
      expect(await berth.get('old')).toMatchObject({ status: 200, body: 'version 2\n' });
    });
  },
);
