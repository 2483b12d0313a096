/** Which firewall rules an agent makes without PROXY_IPS, and what it says when it cannot. */
import { once } from 'node:events';
import { expect, it } from 'vitest';
import { silentLogger } from '@berth/kit/log';
import { readConfig } from '../../src/config.ts';
import { createPortGuard, type PortGuard } from '../../src/engine/port-guard.ts';
import type { Network } from '../../src/engine/docker-networks.ts';

const ID = 'ab12'.repeat(16);
const OWN: Network = {
  id: ID,
  name: 'berth-a',
  labels: { 'berth.network': 'me', 'berth.project': 'a' },
  subnets: [],
};

type World = {
  engine: 'answers' | 'hangs' | 'fails';
  networks: Network[];
  isShared: boolean;
  interfaces: string[];
  isRoot: boolean;
  passed: number;
  fails: string | null;
};
async function guardOf(given: Partial<World> = {}, env: Record<string, string> = {}) {
  const world: World = {
    engine: 'answers',
    networks: [OWN],
    isShared: false,
    interfaces: ['docker0', 'br-ab12ab12ab12'],
    isRoot: true,
    passed: 0,
    fails: null,
    ...given,
  };
  const rules = new Set<string>();
  const jumps: string[] = [];
  let asked = 0;
  const config = readConfig({
    NODE_ROLE: 'deploy',
    CONTROL_PLANE_URL: 'http://10.0.0.1:8080',
    ...env,
  });
  const guard = await createPortGuard(config, {
    owner: 'me',
    engineMs: 100,
    log: silentLogger(),
    isRoot: world.isRoot,
    interfaces: async () => new Set(world.interfaces),
    kernelPorts: async () => ({ first: 32_768, last: 60_999 }),
    clock: () => world.passed,
    docker: {
      list: async () => world.networks,
      defaultNetwork: async (stopping) => {
        asked += 1;
        if (world.engine === 'fails') throw new Error('Cannot connect to the Docker daemon');
        if (world.engine === 'hangs')
          await once(stopping as AbortSignal, 'abort').then(() =>
            Promise.reject(new Error('aborted')),
          );
        return { bridge: 'docker0', isShared: world.isShared };
      },
    },
    async run(argv, stdin = '') {
      if (world.fails !== null) return { code: 1, stdout: '', stderr: world.fails };
      if (argv[0] === 'iptables-restore') {
        rules.clear();
        for (const line of stdin.split('\n')) if (line.startsWith('-A')) rules.add(line);
      }
      if (argv.includes('-I')) jumps.push(argv.slice(argv.indexOf('-I') + 1).join(' '));
      return { code: argv.includes('-C') ? 1 : 0, stdout: [...rules].join('\n'), stderr: '' };
    },
  });
  return { guard, world, rules, jumps, asked: () => asked };
}
const of = (rules: ReadonlySet<string>, chain: string): string[] =>
  [...rules]
    .filter((rule) => rule.startsWith(`-A ${chain} `))
    .map((rule) => rule.slice(chain.length + 4));
const textsOf = (guard: PortGuard): string[] => guard.notes().map(({ text }) => text);
const aboutContainers = (guard: PortGuard): string[] =>
  textsOf(guard).filter((note) => !note.startsWith('PROXY_IPS and'));

it('stops containers of projects and build steps, and nobody else', async () => {
  const { guard, rules, jumps } = await guardOf();
  await guard.guard();
  const established = '-m conntrack --ctstate RELATED,ESTABLISHED -j RETURN';
  expect(of(rules, 'BERTH-PUBLISHED')).toEqual([
    established,
    '-s 10.217.0.0/16 -m conntrack ! --ctstate DNAT -j RETURN',
    '-s 10.217.0.0/16 -j DROP',
    '-i docker0 -j DROP',
  ]);
  expect(of(rules, 'BERTH-LOCAL')).toEqual([
    established,
    '-s 10.217.0.0/16 -j DROP',
    '-i docker0 -j DROP',
  ]);
  expect(of(rules, 'BERTH-CONTROL')).toEqual([
    '-p tcp -m conntrack --ctorigdst 10.0.0.1 --ctorigdstport 8080 -j DROP',
  ]);
  for (const range of ['32768:60999', '20000:29999'])
    expect(jumps).toContain(`INPUT 1 -p tcp --dport ${range} -j BERTH-LOCAL`);
  expect(jumps).toContain('1 -d 10.217.0.0/16 -j BERTH-PUBLISHED'.replace('1', 'DOCKER-USER 1'));
  expect(aboutContainers(guard)).toEqual([]);
  expect(guard.problem()).toBeNull();
});

it('closes the ports of other nodes, and lets the answers to their proxies pass', async () => {
  const { guard, rules, world } = await guardOf();
  await guard.guard();
  guard.knows?.(['10.0.0.3', '10.0.0.2', '127.0.0.1', 'node.example', 'fd00::1']);
  world.passed = 20_000;
  await guard.guard();
  const [first, , ...neighbours] = of(rules, 'BERTH-CONTROL');
  expect(first).toBe('-m conntrack --ctstate RELATED,ESTABLISHED -j RETURN');
  // 127.0.0.1 is this machine.
  expect(neighbours).toEqual(
    ['10.0.0.2', '10.0.0.3'].flatMap((ip) => [
      `-d ${ip} -p tcp -m tcp --dport 32768:60999 -j DROP`,
      `-d ${ip} -p tcp -m tcp --dport 20000:29999 -j DROP`,
    ]),
  );
});

it('leaves the engine’s default network open while others use it, because a reverse proxy may be among them', async () => {
  const { guard, rules, world } = await guardOf({ isShared: true });
  await guard.guard();
  expect([...rules].filter((rule) => rule.includes('docker0'))).toEqual([]);
  expect(of(rules, 'BERTH-PUBLISHED')).toContain('-s 10.217.0.0/16 -j DROP');
  expect(aboutContainers(guard)).toEqual([
    expect.stringContaining('other containers use the engine’s default network too'),
  ]);
  world.isShared = false;
  world.passed = 20_000;
  await guard.guard();
  expect(of(rules, 'BERTH-LOCAL')).toContain('-i docker0 -j DROP');
  expect(aboutContainers(guard)).toEqual([]);
});

it('a builder closes the control plane and the nodes for build steps alone', async () => {
  const { guard, rules, jumps } = await guardOf({}, { NODE_ROLE: 'builder' });
  guard.knows?.(['10.0.0.2']);
  await guard.guard();
  expect(of(rules, 'BERTH-BUILDS')).toEqual([
    '-m conntrack --ctstate RELATED,ESTABLISHED -j RETURN',
    '-p tcp -m conntrack --ctorigdst 10.0.0.1 --ctorigdstport 8080 -j DROP',
    '-d 10.0.0.2 -p tcp -m tcp --dport 32768:60999 -j DROP',
    '-d 10.0.0.2 -p tcp -m tcp --dport 20000:29999 -j DROP',
  ]);
  expect(jumps).toEqual([
    'DOCKER-USER 1 -i docker0 -j BERTH-BUILDS',
    'INPUT 1 -i docker0 -j BERTH-BUILDS',
  ]);
  expect(guard.notes()).toEqual([]);
});

it.each<[string, Partial<World>, string]>([
  ['is not root', { isRoot: false }, 'the agent does not run as root'],
  [
    'is in a container, or its engine elsewhere',
    { interfaces: ['eth0'] },
    'the agent does not run in the network of its engine',
  ],
  [
    'finds no firewall',
    { fails: 'iptables: No chain/target/match by that name.' },
    'No chain/target/match by that name',
  ],
])('an agent that %s makes no rule, says so, and stays ready', async (_, given, why) => {
  const { guard, rules } = await guardOf(given);
  await guard.guard();
  expect([...rules]).toEqual([]);
  expect(aboutContainers(guard)).toEqual([expect.stringContaining(why)]);
  expect(guard.problem()).toBeNull();
});

it('makes no rule before the first network of a project, and then at once', async () => {
  const { guard, rules, world, asked } = await guardOf({ networks: [] });
  await guard.guard();
  expect([[...rules], aboutContainers(guard), asked()]).toEqual([[], [], 0]);
  world.networks.push(OWN);
  // Ten seconds have not passed: only the new network asks for it.
  await guard.guard();
  expect(rules.size).toBe(0);
  await guard.guard(true);
  expect(rules.size).toBeGreaterThan(0);
});

it('warns while every machine reaches the ports, and not if PUBLISH_IP or PROXY_IPS closes them', async () => {
  expect((await guardOf()).guard.notes()).toEqual([
    {
      kind: 'setting_missing',
      text: expect.stringContaining('PROXY_IPS and PUBLISH_IP are not set'),
    },
  ]);
  expect((await guardOf({}, { PUBLISH_IP: '127.0.0.1' })).guard.notes()).toEqual([]);
  const strict = await guardOf({ isRoot: false }, { PROXY_IPS: '10.0.0.9' });
  await strict.guard.guard();
  expect(strict.guard.notes()).toEqual([]);
  expect(strict.guard.problem()).toBe('the agent does not run as root');
});

it.each(['fails', 'hangs'] as const)(
  'an engine that %s changes no rule and holds up no registration',
  async (engine) => {
    const { guard, rules, world } = await guardOf();
    await guard.guard();
    const before = [...rules];
    Object.assign(world, { engine, passed: 20_000 });
    await guard.guard();
    expect([[...rules], aboutContainers(guard)]).toEqual([before, []]);
  },
);

it('FIREWALL=off changes nothing and asks for no addresses of other nodes', async () => {
  const { guard, rules, jumps } = await guardOf({}, { FIREWALL: 'off' });
  await guard.guard(true);
  expect([[...rules], jumps, guard.knows]).toEqual([[], [], null]);
});

it('says when connections of this machine may take the ports of its containers', async () => {
  const { guard } = await guardOf({}, { PUBLISH_IP: '127.0.0.1', PUBLISH_PORTS: '30000-40000' });
  expect(textsOf(guard)).toEqual([
    expect.stringMatching(/PUBLISH_PORTS \(30000-40000\) and .*\(32768-60999\) overlap/),
  ]);
  expect(
    (await guardOf({}, { NODE_ROLE: 'builder', PUBLISH_PORTS: '30000-40000' })).guard.notes(),
  ).toEqual([]);
});
