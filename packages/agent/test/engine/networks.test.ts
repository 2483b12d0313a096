/** Which addresses project networks get, and which networks are removed. */
import { silentLogger } from '@berth/kit/log';
import { expect, it } from 'vitest';
import { readConfig } from '../../src/config.ts';
import { createLocks } from '../../src/locks.ts';
import { createNetworks, freeSubnet, rangeOf } from '../../src/engine/networks.ts';
import { controlPlaneAddresses } from '../../src/engine/port-guard.ts';
import { type ControlPlaneAddress, createPortRule } from '../../src/engine/port-rule.ts';
import type { DockerNetworks, Network } from '../../src/engine/docker-networks.ts';

const never = new AbortController().signal;
const range = (cidr: string): { first: number; last: number } => {
  const found = rangeOf(cidr);
  if (found === null) throw new Error(cidr);
  return found;
};

function engine(networks: Network[], used: string[] = []) {
  const removed: string[] = [];
  const docker: DockerNetworks = {
    list: async () => [...networks],
    async create({ name, subnet, labels }) {
      const taken = networks.some((n) =>
        n.subnets.some(
          (s) => range(s).first <= range(subnet).last && range(s).last >= range(subnet).first,
        ),
      );
      if (taken) return null;
      networks.push({ id: `id-${networks.length}`, name, labels, subnets: [subnet] });
      return `id-${networks.length - 1}`;
    },
    isUsed: async (id) => used.includes(id),
    defaultNetwork: async () => ({ bridge: 'docker0', isShared: false }),
    async remove(id) {
      removed.push(id);
      networks.splice(
        networks.findIndex((n) => n.id === id),
        1,
      );
      return true;
    },
  };
  return { docker, removed };
}
const on = (docker: DockerNetworks, pool: string | null = '10.9.0.0/26') =>
  createNetworks({
    docker,
    locks: createLocks(),
    pool: pool === null ? null : range(pool),
    owner: 'me',
    log: silentLogger(),
    delayMs: 1,
  });

it('freeSubnet returns the first free /28 of the pool', () => {
  expect(freeSubnet(range('10.9.0.0/16'), [])).toBe('10.9.0.0/28');
  expect(
    freeSubnet(range('10.9.0.0/16'), ['10.9.0.0/28', '10.9.0.16/30', '192.168.0.0/16'].map(range)),
  ).toBe('10.9.0.32/28');
  expect(freeSubnet(range('10.9.0.0/27'), ['10.0.0.0/8'].map(range))).toBeNull();
  expect(freeSubnet(range('10.9.255.0/24'), [])).toBe('10.9.255.0/28');
  for (const wrong of ['10.9.0.0', '10.9.0.0/33', '10.9.0.256/28', 'fd00::/8'])
    expect(rangeOf(wrong)).toBeNull();
});

it('each project gets its own network, and parallel requests create one', async () => {
  const networks: Network[] = [];
  const all = on(engine(networks).docker);
  const ids = await Promise.all(
    ['a', 'b', 'a', 'a'].map((project) => all.of(project, 'node-1', never)),
  );
  expect(ids[0]).toBe(ids[2]);
  expect(ids[0]).not.toBe(ids[1]);
  expect(
    networks.map((n) => [n.labels['berth.project'], n.labels['berth.network'], n.subnets[0]]),
  ).toEqual([
    ['a', 'me', '10.9.0.0/28'],
    ['b', 'me', '10.9.0.16/28'],
  ]);
  // Another process of this agent finds the network by its label.
  expect(await on(engine(networks).docker).of('a', 'node-1', never)).toBe(ids[0]);
});

it('a full pool fails with network_pool_exhausted', async () => {
  const all = on(engine([]).docker);
  for (const project of ['a', 'b', 'c', 'd']) await all.of(project, 'node-1', never);
  await expect(all.of('e', 'node-1', never)).rejects.toMatchObject({
    code: 'network_pool_exhausted',
    message: expect.stringContaining('10.9.0.0'),
  });
  expect(await all.of('a', 'node-1', never)).not.toBeNull();
});

it('without a pool projects get no network', async () => {
  expect(await on(engine([]).docker, null).of('a', 'node-1', never)).toBeNull();
});

it('unused networks of this agent are removed; used, protected and foreign networks stay', async () => {
  const network = (id: string, labels: Record<string, string>): Network => ({
    id,
    name: id,
    labels,
    subnets: [],
  });
  const networks = [
    network('others', { 'berth.project': 'x', 'berth.network': 'another agent' }),
    network('not berth', {}),
    network('used', { 'berth.project': 'used', 'berth.network': 'me' }),
    network('protected', { 'berth.project': 'protected', 'berth.network': 'me' }),
    network('empty', { 'berth.project': 'empty', 'berth.network': 'me' }),
  ];
  const { docker, removed } = engine(networks, ['used']);
  const all = on(docker);
  expect(await all.of('empty', 'node-1', never)).toBe('empty');
  const release = all.protect('protected');
  all.cleanLater();
  await expect.poll(() => removed).toEqual(['empty']);
  // The removed network is not cached.
  expect(await all.of('empty', 'node-1', never)).not.toBe('empty');
  release();
  await all.stop();
});

it('settings: validates the pool, the proxy addresses and the default memory', () => {
  const good = { NODE_ROLE: 'deploy', CONTROL_PLANE_URL: 'http://10.0.0.1:8080/' };
  expect(readConfig(good).PROJECT_NETWORK_POOL).toMatchObject({ cidr: '10.217.0.0/16' });
  expect(readConfig({ ...good, PROJECT_NETWORK_POOL: 'none' }).PROJECT_NETWORK_POOL).toBeNull();
  expect(
    readConfig({ ...good, DEFAULT_MEMORY: '512m', PROXY_IPS: '10.0.0.1, 10.1.0.0/24' }),
  ).toMatchObject({
    DEFAULT_MEMORY: 512 * 2 ** 20,
    PROXY_IPS: ['10.0.0.1', '10.1.0.0/24'],
  });
  for (const wrong of [
    { PROJECT_NETWORK_POOL: '10.0.0.0/29' },
    { PROJECT_NETWORK_POOL: 'fd00::/64' },
    { PROXY_IPS: 'proxy.example' },
    { FIREWALL: 'off', PROXY_IPS: '10.0.0.1' },
    { FIREWALL: 'on' },
    { PROXY_IPS: '10.0.0.1', PROJECT_NETWORK_POOL: 'none' },
    // The firewall rules cover IPv4 only: a port that is published on IPv6 would stay open.
    { PROXY_IPS: '10.0.0.1', PUBLISH_IP: '::' },
    { DEFAULT_MEMORY: '1m' },
    { DEFAULT_MEMORY: 'much' },
  ])
    expect(() => readConfig({ ...good, ...wrong }), JSON.stringify(wrong)).toThrow(
      Object.keys(wrong)[0],
    );
});

it('the control plane is closed at its address, at every address of this node if it runs here, and never at a port of the proxy', async () => {
  expect(await controlPlaneAddresses('http://10.255.0.9:8080')).toEqual([
    { ip: '10.255.0.9', port: 8080, here: false },
  ]);
  expect(await controlPlaneAddresses('http://127.0.0.1:8080/')).toEqual([
    { ip: '127.0.0.1', port: 8080, here: true },
  ]);
  for (const shared of [
    'https://berth.example.com',
    'http://10.0.0.1',
    'http://10.0.0.1:443',
    'http://[fd00::1]:8080',
  ])
    expect(await controlPlaneAddresses(shared)).toEqual([]);
  await expect(controlPlaneAddresses('http://nowhere.invalid:8080')).rejects.toThrow(
    'nowhere.invalid',
  );

  const rulesFor = async (controlPlane: ControlPlaneAddress[]): Promise<string[]> => {
    let given = '';
    const run = async (argv: readonly string[], stdin = '') => {
      given += stdin;
      return { code: argv.includes('-C') ? 1 : 0, stdout: '', stderr: '' };
    };
    const options = {
      pool: '10.217.0.0/16',
      proxies: [],
      builds: null,
      neighbours: [],
      ports: [],
      controlPlane,
      run,
    };
    await createPortRule(options).ensure();
    return given.split('\n').filter((line) => line.startsWith('-A BERTH-CONTROL'));
  };
  expect(await rulesFor([])).toEqual([]);
  expect(
    await rulesFor([
      { ip: '10.0.0.1', port: 8080, here: true },
      { ip: '10.0.0.2', port: 9, here: false },
    ]),
  ).toEqual([
    '-A BERTH-CONTROL -p tcp -m conntrack --ctorigdst 10.0.0.1 --ctorigdstport 8080 -j DROP',
    '-A BERTH-CONTROL -p tcp -m tcp --dport 8080 -m addrtype --dst-type LOCAL -j DROP',
    '-A BERTH-CONTROL -p tcp -m conntrack --ctorigdst 10.0.0.2 --ctorigdstport 9 -j DROP',
  ]);
});
