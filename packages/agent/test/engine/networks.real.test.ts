/** Isolation between the containers of projects, on a real engine with a real firewall. */
import { execOk } from '@berth/kit/exec';
import { findTraefik } from '@berth/testbed/config';
import { freePort } from '@berth/testbed/ports';
import { startProcess } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createPortRule } from '../../src/engine/port-rule.ts';
import { deployTask, retireTask, until } from '../fake-control-plane.ts';
import {
  missingParts,
  type RealParts,
  type Site,
  startRealParts,
  startSite,
} from '../real-parts.ts';

const POOL = '10.98.0.0/26';
/** The ranges of the engine and of the agent. */
const PORTS = [
  { first: 32_768, last: 60_999 },
  { first: 20_000, last: 29_999 },
];
const REST = { builds: null, neighbours: [] };

describe.skipIf(missingParts !== undefined)('projects side by side', () => {
  let parts: RealParts;
  let site: Site;
  let image: string;
  beforeAll(async () => {
    parts = await startRealParts();
    image = `${parts.registry.address}/side:1`;
    await parts.engine.docker(['build', '--quiet', '--tag', image, '-'], {
      input:
        'FROM busybox:stable\nRUN mkdir /www && echo it answers > /www/index.html\nCMD ' +
        '["httpd","-f","-p","8080","-h","/www"]\n',
    });
    await parts.engine.docker(
      ['login', '--username', 'berth', '--password-stdin', parts.registry.address],
      {
        input: parts.registry.password ?? '',
      },
    );
    await parts.engine.docker(['push', image]);
    site = await startSite(parts, { PROJECT_NETWORK_POOL: POOL, DEFAULT_MEMORY: '64m' });
  }, 120_000);
  afterAll(async () => {
    await site?.stop();
    await parts?.stop();
  }, 60_000);

  type Up = { name: string; ip: string; port: number; network: string };
  type Inspected = {
    HostConfig: { CapDrop: string[] | null; Memory: number };
    NetworkSettings: { Networks: Record<string, { IPAddress: string }> };
  };
  const inspect = async (name: string): Promise<Inspected> =>
    (
      JSON.parse((await parts.engine.docker(['inspect', name])).stdout) as Inspected[]
    )[0] as Inspected;
  async function deploy(project: string, generation = 1): Promise<Up> {
    const name = `svc-${project}-g${generation}`;
    const { task } = site.plane.give(
      deployTask(`dep-${project}-${generation}`, {
        image,
        project_id: project,
        container_name: name,
        generation,
        domain_prefix: project,
      }),
    );
    const report = await site.plane.reported(task.id, 40_000);
    expect(report.status, site.plane.text(task.id)).toBe('completed');
    const [[network, { IPAddress: ip }] = ['', { IPAddress: '' }]] = Object.entries(
      (await inspect(name)).NetworkSettings.Networks,
    );
    return { name, ip, port: report.host_port ?? 0, network };
  }
  /** Whether a program in a container gets an answer from the address within 2 s. */
  const reaches = async (from: string, at: string): Promise<boolean> =>
    (
      await parts.engine.docker(
        ['exec', from, 'timeout', '2', 'wget', '-q', '-O', '-', `http://${at}/`],
        { mayFail: true },
      )
    ).stdout.includes('it answers');
  const filter = (argv: readonly string[], stdin?: string) =>
    execOk([...(parts.engine.faults?.nsenterArgv() ?? []), ...argv], {
      env: { PATH: '/usr/sbin:/sbin:/usr/bin:/bin' },
      ...(stdin === undefined ? {} : { stdin }),
    }).catch((error: { result: { code: number; stdout: string; stderr: string } }) => error.result);

  let a: Up;
  let b: Up;
  it('each project has its own network, no raw sockets and the default memory', {
    timeout: 60_000,
  }, async () => {
    [a, b] = [await deploy('prj-a'), await deploy('prj-b')];
    expect(a.network).not.toBe(b.network);
    for (const { ip } of [a, b]) expect(ip).toMatch(/^10\.98\.0\./);
    expect((await inspect(a.name)).HostConfig).toMatchObject({
      CapDrop: [expect.stringMatching(/^(CAP_)?NET_RAW$/)],
      Memory: 64 * 2 ** 20,
    });
    const ping = await parts.engine.docker(
      ['exec', a.name, 'ping', '-c', '1', '-W', '1', '127.0.0.1'],
      { mayFail: true },
    );
    expect(`${ping.stdout}${ping.stderr}`).toMatch(/permission denied|not permitted/i);
    // The control plane compares the report with the project’s settings, which have no limit.
    const seen = await until('a register', () =>
      site.plane.registers.at(-1)?.containers?.find((c) => c.name === a.name),
    );
    expect(seen.memory_bytes).toBeNull();
  });

  it('containers of one project reach each other and not those of another project', {
    timeout: 60_000,
  }, async () => {
    const second = await deploy('prj-a', 2);
    expect(second.network).toBe(a.network);
    expect(await reaches(a.name, `${second.ip}:8080`)).toBe(true);
    expect(await reaches(a.name, `${b.ip}:8080`)).toBe(false);
  });

  it('with PROXY_IPS only the proxy reaches published ports', { timeout: 60_000 }, async () => {
    const published = `${parts.engine.hostIp}:${b.port}`;
    const outside = async (): Promise<boolean> =>
      fetch(`http://${published}/`, { signal: AbortSignal.timeout(2_000) }).then(
        (response) => response.ok,
        () => false,
      );
    await parts.engine.docker(['run', '--detach', '--name', 'old', '--publish', '0:8080', image]);
    const old =
      `${parts.engine.hostIp}:` +
      /:(\d+)/.exec((await parts.engine.docker(['port', 'old', '8080'])).stdout)?.[1];
    expect(await outside()).toBe(true);

    // The proxy is another machine; this machine is a foreign host outside the engine's network
    // namespace.
    expect(
      await createPortRule({
        pool: POOL,
        proxies: ['10.200.0.1'],
        ports: PORTS,
        controlPlane: [],
        ...REST,
        run: filter,
      }).ensure(),
    ).toBeNull();
    expect(await outside()).toBe(false);
    expect(await reaches(a.name, published)).toBe(false);
    expect(await reaches('old', published)).toBe(false);
    expect(await reaches('old', `${b.ip}:8080`)).toBe(false);
    // Traffic inside one project, and to a container on the default network, still passes.
    expect(await reaches(a.name, `${(await secondOfProjectA()).ip}:8080`)).toBe(true);
    await waitFor(
      'the container on the default network answers',
      async () => (await fetch(`http://${old}/`)).ok,
    );

    const rule = createPortRule({
      pool: POOL,
      proxies: ['10.200.0.1', parts.engine.gatewayIp],
      ports: PORTS,
      controlPlane: [],
      ...REST,
      run: filter,
    });
    expect(await rule.ensure()).toBeNull();
    expect(await outside()).toBe(true);
    expect(await reaches(a.name, published)).toBe(false);
    // A reload of the firewall removes the rules; the next call adds them again.
    await filter(['iptables', '-F', 'DOCKER-USER']);
    await filter(['iptables', '-F', 'BERTH-PUBLISHED']);
    await filter(['iptables', '-F', 'INPUT']);
    expect(await rule.ensure()).toBeNull();
    expect(await reaches(a.name, published)).toBe(false);
    expect(
      (await filter(['iptables', '-S', 'DOCKER-USER'])).stdout.match(/BERTH-PUBLISHED/g),
    ).toHaveLength(1);
    expect((await filter(['iptables', '-S', 'INPUT'])).stdout.match(/BERTH-LOCAL/g)).toHaveLength(
      PORTS.length,
    );
    expect(await outside()).toBe(true);
    await parts.engine.docker(['rm', '--force', 'old']);
  });
  const secondOfProjectA = async (): Promise<{ ip: string }> => {
    const [{ IPAddress: ip } = { IPAddress: '' }] = Object.values(
      (await inspect('svc-prj-a-g2')).NetworkSettings.Networks,
    );
    return { ip };
  };

  it('reports why the firewall rules cannot be added', async () => {
    const nowhere = createPortRule({
      pool: POOL,
      proxies: [],
      ports: PORTS,
      controlPlane: [],
      ...REST,
      run: async (argv) => ({
        code: argv.includes('DOCKER-USER') ? 1 : 0,
        stdout: '',
        stderr: 'iptables: No chain/target/match by that name.',
      }),
    });
    expect(await nowhere.ensure()).toContain('No chain/target/match by that name');
  });

  it('a project’s network is removed with its last container, foreign ones stay, and a full pool fails', {
    timeout: 90_000,
  }, async () => {
    await parts.engine.docker(['network', 'create', '--subnet', '10.98.0.32/28', 'not-berth']);
    const c = await deploy('prj-c');
    const { task } = site.plane.give(
      deployTask('dep-full', { image, project_id: 'prj-d', container_name: 'svc-prj-d-g1' }),
    );
    expect((await site.plane.reported(task.id, 40_000)).result).toMatchObject({
      error: { code: 'network_pool_exhausted' },
    });
    // A stopped container needs its network for the next start.
    await parts.engine.docker(['stop', '--time', '0', b.name]);
    const retire = site.plane.give(
      retireTask({
        project_id: 'prj-c',
        remove: [{ deployment_id: 'dep-prj-c-1', reason: 'over' }],
        drain_seconds: 0,
        keep: null,
      }),
    );
    await site.plane.reported(retire.task.id, 30_000);
    const names = async (): Promise<string[]> =>
      (await parts.engine.docker(['network', 'ls', '--format', '{{.Name}}'])).stdout.split('\n');
    await expect.poll(names, { timeout: 20_000 }).not.toContain(c.network);
    expect(await names()).toContain('not-berth');
    expect(await names()).toContain(b.network);
    await parts.engine.docker(['start', b.name]);
    expect(await names()).toContain(a.network);
    await deploy('prj-d');
    await parts.engine.docker(['network', 'rm', 'not-berth']);
  });

  it('a network that another program removed is created again', { timeout: 60_000 }, async () => {
    const gone = await deploy('prj-a', 3);
    for (const name of [a.name, 'svc-prj-a-g2', gone.name])
      await parts.engine.docker(['rm', '--force', name]);
    await parts.engine.docker(['network', 'rm', gone.network]);
    expect((await deploy('prj-a', 4)).network).not.toBe(gone.network);
  });

  it.skipIf(findTraefik() === undefined)(
    'the labels of an image make no router in a Traefik that reads the labels of this engine’s containers',
    { timeout: 90_000 },
    async () => {
      const router = (name: string) =>
        `traefik.http.routers.${name}.rule=Host(\`victim.berth.test\`)`;
      // Traefik ignores case in the names of labels.
      const ways = ['traefik.enable', 'Traefik.Enable', 'traefik.Enable'];
      for (const [i, enable] of ways.entries()) {
        const evil = `${parts.registry.address}/evil:${i}`;
        await parts.engine.docker(['build', '--quiet', '--tag', evil, '-'], {
          input:
            `FROM ${image}\nLABEL ${enable}=true ` +
            `${router(`stolen${i}`).replace('=Host', "='Host")}'\n`,
        });
        await parts.engine.docker(['push', evil]);
        const names = {
          project_id: 'prj-a',
          container_name: `svc-evil${i}`,
          domain_prefix: 'prj-a',
        };
        const { task } = site.plane.give(
          deployTask(`dep-evil${i}`, { ...names, image: evil, generation: 10 + i }),
        );
        expect((await site.plane.reported(task.id, 40_000)).status, site.plane.text(task.id)).toBe(
          'completed',
        );
      }
      // The same by hand: this Traefik does read labels.
      const own = ['traefik.enable=true', router('own')].flatMap((label) => ['--label', label]);
      await parts.engine.docker([
        'run',
        '--detach',
        '--name',
        'own',
        '--publish',
        '0:8080',
        ...own,
        image,
      ]);

      const port = await freePort();
      const traefik = await startProcess(
        [
          findTraefik() ?? '',
          '--api.insecure=true',
          `--entryPoints.traefik.address=127.0.0.1:${port}`,
          `--entryPoints.web.address=127.0.0.1:${await freePort()}`,
          `--providers.docker.endpoint=${parts.engine.host}`,
          '--providers.docker.exposedByDefault=false',
        ],
        { name: 'traefik' },
      );
      try {
        const routers = async (): Promise<string[]> => {
          const answer = await fetch(`http://127.0.0.1:${port}/api/http/routers`).catch(() => null);
          const all =
            answer === null ? [] : ((await answer.json()) as { name: string; provider: string }[]);
          return all.filter(({ provider }) => provider === 'docker').map(({ name }) => name);
        };
        await waitFor('it reads the labels', async () => (await routers()).includes('own@docker'));
        expect((await routers()).filter((name) => name.startsWith('stolen'))).toEqual([]);
      } finally {
        await traefik.stop();
        await parts.engine.docker(['rm', '--force', 'own']);
      }
    },
  );
});
