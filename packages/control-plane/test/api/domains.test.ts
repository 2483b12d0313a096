/** Custom domains through the API: what is refused, what takes effect at once, and where a domain leads. */
import { startDnsServer, type DnsServer } from '@berth/testbed/dns-server';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createWorld } from './deployed.ts';
import { type Api, createApi, createProject, rulesOf } from './harness.ts';

let dns: DnsServer;
let api: Api;
beforeAll(async () => {
  dns = await startDnsServer({
    'here.example.com': { a: ['192.0.2.1'] },
    'old.example.com': { a: ['198.51.100.7'] },
    'hung.example.com': 'hang',
  });
  api = await createApi({
    env: { AUTH_SERVICE_URL: 'http://auth.example.net:4180', PUBLIC_IPS: '192.0.2.1,2001:db8::1', DNS_SERVERS: dns.address },
  });
}, 120_000);
afterAll(async () => {
  await api.close();
  await dns.stop();
});

const patch = (id: string, domains: unknown): ReturnType<Api['call']> => api.call('patchProject', { params: { id }, body: { domains } });
const routersOf = async (): Promise<Record<string, { rule: string }>> =>
  ((await api.call('traefikConfig')).json['http'] as { routers: Record<string, { rule: string }> }).routers;
const policyDomains = async (): Promise<unknown> =>
  ((await api.call('gatewayPolicy')).json['projects'] as { domains?: { host: string }[] }[])
    .flatMap((p) => p.domains ?? [])
    .map((d) => d.host);

test('domains are stored in lower case and as punycode, and take effect without a deployment', async () => {
  const world = await createWorld(api);
  const id = await createProject(api, { name: 'shop', domain_prefix: 'shop', domains: ['WWW.Example.com'] });
  await world.live(id);
  expect((await api.call('getProject', { params: { id } })).json['domains']).toEqual(['www.example.com']);
  expect((await routersOf())['shop_domains']?.rule).toBe('Host(`www.example.com`)');
  expect((await patch(id, ['www.example.com', 'Bücher.example.com.', 'WWW.example.com'])).json['domains']).toEqual([
    'www.example.com',
    'xn--bcher-kva.example.com',
  ]);
  expect((await routersOf())['shop_domains']?.rule).toBe('Host(`www.example.com`) || Host(`xn--bcher-kva.example.com`)');
  expect(await policyDomains()).toEqual(['www.example.com', 'xn--bcher-kva.example.com']);
  expect((await patch(id, [])).status).toBe(200);
  expect((await routersOf())['shop_domains']).toBeUndefined();
  expect(await policyDomains()).toEqual([]);
});

test('hosts of the platform, wildcards, addresses and names of others are refused', async () => {
  const id = await createProject(api, { name: 'refused', domain_prefix: 'refused' });
  const reply = await patch(id, [
    '*.example.com',
    '192.0.2.1',
    'berth.localhost',
    'other.berth.localhost',
    'auth.example.net',
    'registry.test',
    'x',
  ]);
  expect([reply.status, rulesOf(reply)]).toEqual([
    422,
    [
      'domains[0]:wildcard',
      'domains[1]:ip_address',
      'domains[2]:reserved',
      'domains[3]:base_domain',
      'domains[4]:reserved',
      'domains[5]:reserved',
      'domains[6]:host',
    ],
  ]);
  expect(
    rulesOf(
      await patch(
        id,
        Array.from({ length: 21 }, (_, i) => `d${i}.example.com`),
      ),
    ),
  ).toEqual(['domains:max_items']);
  await createProject(api, { name: 'owner', domain_prefix: 'owner', domains: ['taken.example.com'] });
  const taken = await patch(id, ['TAKEN.example.com']);
  expect([taken.status, taken.json['code'], rulesOf(taken)]).toEqual([409, 'domain_taken', ['domains[0]:taken']]);
});

test('a new domain prefix is refused while the project lists its own host', async () => {
  const id = await createProject(api, { name: 'prefixed', domain_prefix: 'prefixed' });
  expect((await patch(id, ['prefixed.berth.localhost'])).status).toBe(200);
  const rename = (more: object = {}): ReturnType<Api['call']> =>
    api.call('patchProject', { params: { id }, body: { domain_prefix: 'renamed', ...more } });
  expect(rulesOf(await rename())).toEqual(['domains[0]:base_domain']);
  expect((await rename({ domains: [] })).status).toBe(200);
});

test('shows where each domain leads, in a bounded time', async () => {
  const id = await createProject(api, {
    name: 'checked',
    domain_prefix: 'checked',
    domains: ['here.example.com', 'old.example.com', 'gone.example.com', 'hung.example.com'],
  });
  const items = (await api.call('projectDomains', { params: { id } })).json['items'] as {
    domain: string;
    url: string;
    published: boolean;
    dns: { state: string; problem: string | null };
  }[];
  expect(items.map(({ domain, url, published, dns: { state } }) => [domain, url, published, state])).toEqual([
    ['here.example.com', 'http://here.example.com:8000', false, 'ok'],
    ['old.example.com', 'http://old.example.com:8000', false, 'elsewhere'],
    ['gone.example.com', 'http://gone.example.com:8000', false, 'missing'],
    ['hung.example.com', 'http://hung.example.com:8000', false, 'unknown'],
  ]);
  expect(items[1]?.dns.problem).toContain('198.51.100.7');
});
