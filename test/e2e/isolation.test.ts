/**
 * A container and a build step try to reach another project and the control plane, past the proxy,
 * on a machine without PROXY_IPS. The agents run in the network of their machine, as on a real
 * node. The same containers show that metrics come from the node to the API.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import type { Deployment } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pageApp, startWorld, whyNot, type World } from './world.ts';

const reason = await whyNot();
const LIMIT = 32 * 1_048_576;

describe.skipIf(reason !== undefined)('a container that attacks its neighbours', () => {
  let world: World;
  let victim: { project: Project; deployment: Deployment };
  let attacker: { project: Project; deployment: Deployment };

  async function deploy(
    name: string,
    settings: { memory_bytes?: number } = {},
    files: Record<string, string> = pageApp(7),
  ): Promise<typeof victim> {
    const { url } = await world.git.createRepo(name, files);
    const project = await world.berth.createProject({
      name,
      git_url: url,
      domain_prefix: name,
      ...settings,
    });
    const deployment = await world.berth.settled(await world.berth.deploy(project));
    expect(deployment.status, JSON.stringify(deployment.error)).toBe('running');
    return { project, deployment };
  }
  beforeAll(async () => {
    world = await startWorld({
      proxy: 'built-in',
      address: ({ gatewayIp }) => gatewayIp,
      env: { ALLOWED_NOTIFY_HOSTS: '127.0.0.1' },
      agents: (engine) => {
        const inside = engine.faults === undefined ? {} : { enter: engine.faults.nsenterArgv() };
        return [
          { name: 'builder-1', role: 'builder' as const, engine, ...inside },
          {
            name: 'node-1',
            role: 'deploy' as const,
            engine,
            ...inside,
            env: { PROJECT_NETWORK_POOL: '10.97.0.0/24' },
          },
        ];
      },
    });
    victim = await deploy('victim');
    attacker = await deploy('attacker', { memory_bytes: LIMIT });
  }, 180_000);
  afterAll(() => world?.stop(), 60_000);

  const container = (of: typeof victim): Promise<string> =>
    waitFor('the container has its final name', async () => {
      const name = `svc-${of.project.domain_prefix}`;
      const { stdout } = await world.engine.docker(['ps', '--quiet', '--filter', `name=^${name}$`]);
      return stdout.trim() !== '' && name;
    });
  const addressOf = async (name: string, field: 'IPAddress' | 'Gateway'): Promise<string> => {
    const { stdout } = await world.engine.docker([
      'inspect',
      '--format',
      `{{range .NetworkSettings.Networks}}{{.${field}}}{{end}}`,
      name,
    ]);
    return stdout.trim();
  };
  /** Returns what a program in the container gets from the address within 3 s. */
  async function tries(
    from: string,
    at: string,
    argv = ['wget', '-q', '-O', '-'],
  ): Promise<string> {
    const { stdout } = await world.engine.docker(['exec', from, 'timeout', '3', ...argv, at], {
      mayFail: true,
    });
    return stdout.trim();
  }

  /** Where the victim and the control plane are, without the proxy. */
  async function addresses(name: string): Promise<Record<string, string>> {
    const { host_port } = victim.deployment;
    const [ip, gateway] = [
      await addressOf(name, 'IPAddress'),
      await addressOf('svc-attacker', 'Gateway'),
    ];
    return {
      'the container of the victim': `http://${ip}:8080/`,
      'its published port': `http://${world.engine.hostIp}:${host_port}/`,
      'its published port at the gateway of the attacker’s own network': `http://${gateway}:${host_port}/`,
      'the control plane': `${world.berth.url}/healthz`,
      'the routes of all projects': `${world.berth.url}/api/traefik/config`,
      'the configuration of agents': `${world.berth.url}/api/agent/config`,
    };
  }

  it('reaches itself, and neither another project nor the control plane by any address', {
    timeout: 90_000,
  }, async () => {
    const [name] = [await container(victim), await container(attacker)];
    // Visitors and the control plane still reach both.
    expect((await world.berth.get('victim')).body).toContain('version 7');
    expect(await tries('svc-attacker', 'http://127.0.0.1:8080/')).toBe('version 7');
    const forbidden = await addresses(name);
    const reachedFrom = async (from: string): Promise<string[]> => {
      const answers = await Promise.all(
        Object.entries(forbidden).map(async ([what, at]) =>
          (await tries(from, at)) === '' ? [] : [what],
        ),
      );
      return answers.flat();
    };
    expect(await reachedFrom('svc-attacker')).toEqual([]);
    // All of them answer: the node itself reaches them.
    await world.engine.docker([
      'run',
      '--detach',
      '--name',
      'on-the-node',
      '--network',
      'host',
      'busybox:stable',
      'sleep',
      '600',
    ]);
    // wget prints nothing of an answer with an error, so the last one, which needs a secret, is
    // compared with its status.
    expect(await reachedFrom('on-the-node')).toEqual(Object.keys(forbidden).slice(0, -1));
    expect((await fetch(`${world.berth.url}/api/agent/config`)).status).toBe(401);
    // A host that is neither a container nor a build step, such as a proxy on another machine, is
    // not stopped without PROXY_IPS.
    expect((await fetch(forbidden['its published port'] ?? '')).status).toBe(200);
    await world.engine.docker(['rm', '--force', 'on-the-node']);
    expect(await tries('svc-attacker', '127.0.0.1', ['ping', '-c', '1', '-W', '1'])).not.toContain(
      '1 packets received',
    );
  });

  it('nor does a build step', { timeout: 120_000 }, async () => {
    const { stdout: inner } = await world.engine.docker([
      'network',
      'inspect',
      'bridge',
      '--format',
      '{{(index .IPAM.Config 0).Gateway}}',
    ]);
    const forbidden = [
      ...Object.values(await addresses(await container(victim))),
      `http://${inner.trim()}:${victim.deployment.host_port}/`,
    ];
    // The steps do have a network: they reach what they may.
    const open = `${victim.project.git_url}/info/refs?service=git-upload-pack`;
    const step = (at: string, i: number): string =>
      `RUN timeout 3 wget -q -O /www/${i} '${at}' || echo closed > /www/${i}`;
    const spy = await deploy('spy', {}, pageApp(8, [...forbidden, open].map(step)));
    const read = async (i: number): Promise<string> =>
      (await world.berth.get('spy', `/${i}`)).body.trim();
    expect(await Promise.all(forbidden.map(async (at, i) => [at, await read(i)]))).toEqual(
      forbidden.map((at) => [at, 'closed']),
    );
    expect(await read(forbidden.length)).toContain('git-upload-pack');
    await world.berth.api.call('deleteProject', { params: { id: spy.project.id } });
  });

  it('has metrics and out-of-memory kills, also right after a restart of the agent', {
    timeout: 90_000,
  }, async () => {
    const { berth, engine } = world;
    const agent = berth.agents['node-1'];
    // tail keeps the last line in memory, and this one never ends.
    await engine.docker(['exec', 'svc-attacker', 'tail', '/dev/zero'], { mayFail: true });
    const isShort = async (): Promise<boolean> => {
      const { health } = await berth.api.call('getDeployment', {
        params: { id: attacker.deployment.id },
      });
      return (
        health?.status === 'healthy' &&
        health.detail?.includes(
          `killed a process of its container, which reached its memory limit of ${LIMIT} bytes`,
        ) === true
      );
    };
    await waitFor('the health says that memory ran out', isShort, { deadlineMs: 60_000 });
    const saidAt = Date.now();
    await agent?.crash();
    await agent?.start();
    const page = await waitFor(
      'the API has a point of the restarted agent',
      async () => {
        const metrics = await berth.api.call('projectMetrics', { params: { id: 'attacker' } });
        // On a busy machine, the agent read the container before the kill too.
        return Date.parse(metrics.points.at(-1)?.at ?? '') > saidAt && metrics;
      },
      { deadlineMs: 60_000 },
    );
    expect(page.unavailable).toBeUndefined();
    const point = page.points.at(-1);
    expect(point).toMatchObject({
      deployment_id: attacker.deployment.id,
      restarts: 0,
      oom_kills: 1,
      memory_limit: LIMIT,
    });
    expect(point?.memory_bytes).toBeGreaterThan(10_000);
    expect(point?.cpu_seconds).toBeGreaterThan(0);
    expect(await isShort()).toBe(true);
    // Its requests were answered by nobody, but they were sent.
    expect(point?.net_tx).toBeGreaterThan(0);
  });

  it('a container that needs more than its limit ends: its exit, its health and a notification say why', {
    timeout: 120_000,
  }, async () => {
    const { api } = world.berth;
    const told: string[] = [];
    const receiver = createServer((request, response) => {
      void text(request).then((body) => {
        told.push(body);
        response.writeHead(204).end();
      });
    });
    await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve));
    try {
      const target = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`;
      await api.call('createNotification', {
        body: { name: 'team', kind: 'webhook', target, on: ['unhealthy'] },
      });
      // The file stays when the engine starts the container again, so that it ends again.
      const main =
        'httpd -p 8080 -h /www; while [ ! -e /leak ]; do sleep 1; done; echo leaking; exec ' +
        'tail /dev/zero';
      const leaky = await deploy(
        'leaky',
        { memory_bytes: LIMIT },
        pageApp(9, [`RUN echo '${main}' > /main`, 'ENTRYPOINT ["sh", "/main"]']),
      );
      const name = await container(leaky);
      await world.engine.docker(['exec', name, 'touch', '/leak']);
      const params = { id: leaky.deployment.id };
      const exit = await waitFor(
        'the exit is known',
        async () =>
          (await api.call('deploymentExits', { params })).items.find((one) => one.out_of_memory) ??
          false,
        { deadlineMs: 60_000 },
      );
      expect(exit).toMatchObject({ exit_code: 137, out_of_memory: true });
      await waitFor(
        'its health says why',
        async () => {
          const { health } = await api.call('getDeployment', { params });
          return (
            health?.status === 'unhealthy' &&
            health.detail?.includes('killed because it ran out of memory') === true
          );
        },
        { deadlineMs: 60_000 },
      );
      await waitFor(
        'the notification came',
        () => told.some((body) => body.includes('leaky') && body.includes('ran out of memory')),
        {
          deadlineMs: 60_000,
        },
      );
    } finally {
      receiver.close();
    }
  });
});
