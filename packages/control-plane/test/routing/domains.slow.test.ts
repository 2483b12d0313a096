/** Custom domains: their normal form and rules, their routers, and where they lead. */
import { startDnsServer } from '@berth/testbed/dns-server';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { claimRefusal, domainProblems, normalDomains } from '../../src/domain/routes/domains.ts';
import { judgeDns, type Resolved } from '../../src/domain/routes/dns.ts';
import type { PublishedRoute } from '../../src/domain/routes/route-stores.ts';
import { createDnsCheck } from '../../src/routing/dns.ts';
import { policyOf } from '../../src/routing/policy-source.ts';
import {
  type DynamicConfig,
  dynamicConfig,
  type RoutingSettings,
} from '../../src/routing/traefik.ts';

const RULES = {
  baseDomain: 'berth.test',
  ownHosts: ['berth.test', 'auth.other.test', 'registry.other.test'],
};

describe('names', () => {
  it.each([
    ['WWW.Example.COM', 'www.example.com'],
    ['Straße.example', 'xn--strae-oqa.example'],
    ['ＷＷＷ．example.com', 'www.example.com'],
    ['www.example.com.', 'www.example.com'],
    ['XN--BCHER-KVA.example', 'xn--bcher-kva.example'],
    ['www.exam\u00adple.com', 'www.example.com'],
    ['пример.рф', 'xn--e1afmkfd.xn--p1ai'],
    [`${'a'.repeat(63)}.example.com`, `${'a'.repeat(63)}.example.com`],
  ])('%s is stored as %s', (given, stored) => {
    expect(normalDomains([given, stored])).toEqual([stored]);
    expect(domainProblems([stored], 'shop', RULES)).toEqual([]);
  });

  it.each([
    ['*.example.com', 'wildcard'],
    ['192.0.2.1', 'ip_address'],
    ['127.1', 'ip_address'],
    ['0x7f.1', 'ip_address'],
    ['2001:db8::1', 'ip_address'],
    ['[2001:db8::1]', 'ip_address'],
    ['%31.2.3.4', 'ip_address'],
    ['2130706433', 'ip_address'],
    ['017700000001', 'ip_address'],
    ['0x7f000001', 'ip_address'],
    ['127.0.0.1.', 'ip_address'],
    ['１２７.１', 'ip_address'],
    ['::ffff:127.0.0.1', 'ip_address'],
    ['127.0.0.1:80', 'host'],
    ['[::1]:80', 'host'],
    ['example', 'host'],
    ['a_b.example.com', 'host'],
    ['a..example.com', 'host'],
    ['.example.com', 'host'],
    ['-a.example.com', 'host'],
    [`${'a'.repeat(64)}.example.com`, 'host'],
    [`${'a.'.repeat(130)}example.com`, 'host'],
    ['https://www.example.com', 'host'],
    ['www.example.com:443', 'host'],
    ['www.example.com/path', 'host'],
    ['user@www.example.com', 'host'],
    ['www.example.com`) || Host(`x', 'host'],
    ['www example.com', 'host'],
    ['www.example.com..', 'host'],
    ['www.example.com\u0000', 'host'],
    ['www.exam\nple.com', 'host'],
    ['\u202ewww.example.com', 'host'],
    // Punycode that stands for nothing: no browser opens it.
    ['xn--a.example', 'host'],
    ['xn--zzzzzzzz.example', 'host'],
    ['xn--www-.example', 'host'],
    ['localhost', 'host'],
    ['berth.invalid', 'reserved'],
    ['shop.localhost', 'reserved'],
    ['berth.test', 'reserved'],
    ['BERTH.test', 'reserved'],
    ['berth.test.', 'reserved'],
    ['be\u00adrth.test', 'reserved'],
    ['ｂerth。test', 'reserved'],
    ['AUTH.Other.Test.', 'reserved'],
    ['auth.other.test', 'reserved'],
    ['registry.other.test', 'reserved'],
    ['blog.berth.test', 'base_domain'],
    ['a.shop.berth.test', 'base_domain'],
    ['TRAEFIK.Berth.Test', 'base_domain'],
    ['registry\u3002berth.test', 'base_domain'],
    ['traefik.berth.test.', 'base_domain'],
  ])('%s is refused: %s', (given, rule) => {
    expect(
      domainProblems(normalDomains(['ok.example.com', given]), 'shop', RULES).map(
        (p) => `${p.field}:${p.rule}`,
      ),
    ).toEqual([`domains[1]:${rule}`]);
  });

  it('the project’s own host under BASE_DOMAIN is allowed, a parent of BASE_DOMAIN too', () => {
    expect(domainProblems(['shop.berth.test'], 'shop', RULES)).toEqual([]);
    expect(
      domainProblems(['example.com'], 'shop', { ...RULES, baseDomain: 'apps.example.com' }),
    ).toEqual([]);
  });

  it('a domain is kept for its last project until the quarantine is over', () => {
    const claim = { host: 'a.test', id: 'c', project_id: 'p1', claimed_at: 0, released_at: 1_000 };
    expect(claimRefusal({ ...claim, released_at: null }, 'p2', 500, 1_400)).toEqual({
      rule: 'taken',
    });
    expect(claimRefusal(claim, 'p2', 500, 1_499)).toEqual({ rule: 'kept', until: 1_500 });
    expect(claimRefusal(claim, 'p2', 500, 1_500)).toBeNull();
    expect(claimRefusal(claim, 'p1', 500, 1_001)).toBeNull();
    expect(claimRefusal(claim, 'p2', 0, 1_000)).toBeNull();
    expect(claimRefusal(undefined, 'p2', 500, 0)).toBeNull();
  });
});

const SETTINGS: RoutingSettings = {
  baseDomain: 'berth.test',
  authServiceUrl: 'http://auth:4180',
  acmeResolver: 'le',
  ownHosts: RULES.ownHosts,
};
/** Each project has an address of its own. */
const PORTS: Record<string, number> = {
  shop: 32_001,
  intern: 32_002,
  other: 32_003,
  a: 32_004,
  b: 32_005,
};
const route = (name: string, more: Partial<PublishedRoute> = {}): PublishedRoute => ({
  project_id: `id-${name}`,
  project_name: name,
  deployment_id: `d-${name}`,
  node_id: 'n1',
  domain_prefix: name,
  host_ip: '10.0.0.1',
  host_port: PORTS[name] ?? 32_000,
  published_at: 1,
  auth_required: false,
  ...more,
});
const httpOf = (routes: PublishedRoute[]): DynamicConfig['http'] =>
  (JSON.parse(dynamicConfig(routes, SETTINGS).bytes) as DynamicConfig).http;

describe('routers', () => {
  const plain = [route('shop'), route('intern', { auth_required: true }), route('other')];
  const custom = [
    route('shop', { domains: ['www.shop.example', 'shop.example'] }),
    route('intern', { auth_required: true, domains: ['intern.example'] }),
    route('other'),
  ];

  it('without domains the configuration is byte for byte the same, with and without the field', () => {
    expect(
      dynamicConfig(
        plain.map((one) => ({ ...one, domains: [] })),
        SETTINGS,
      ).bytes,
    ).toBe(dynamicConfig(plain, SETTINGS).bytes);
  });

  it('routers of the contract stay as they are when projects get domains', () => {
    const [before, after] = [httpOf(plain), httpOf(custom)];
    for (const [name, router] of Object.entries(before.routers).filter(
      ([name]) => !name.startsWith('berth-marker'),
    ))
      expect(after.routers[name], name).toEqual(router);
    expect(after.services).toEqual(before.services);
    expect(after.middlewares).toEqual(before.middlewares);
  });

  it('an open project has its own routers for its domains, each domain with a certificate of its own', () => {
    const { routers } = httpOf(custom);
    expect(routers['shop_domains']).toEqual({
      rule: 'Host(`shop.example`) || Host(`www.shop.example`)',
      entryPoints: ['websecure'],
      service: 'shop',
      middlewares: ['berth-strip-identity'],
      tls: {
        certResolver: 'le',
        domains: [{ main: 'shop.example' }, { main: 'www.shop.example' }],
      },
    });
    expect(routers['shop_domains-http']).toMatchObject({
      entryPoints: ['web'],
      middlewares: ['redirect-to-https@file'],
    });
    expect(routers['shop_domains_token']).toMatchObject({
      parentRefs: ['berth_domain_tokens'],
      service: 'shop',
    });
    expect(routers['berth_domain_tokens']?.rule).toContain(
      'HostRegexp(`^(shop\\.example|www\\.shop\\.example)\\.?$`)',
    );
  });

  it('a project with a login has the same login at its domains', () => {
    const { routers } = httpOf(custom);
    expect(routers['intern_domains']?.middlewares).toEqual(['intern-auth']);
    expect(routers['intern_domains_token']).toBeUndefined();
    expect(routers['berth_domain_tokens']?.rule).not.toContain('intern');
  });

  it('a project at count 0 has a page of its own, and a stopped one keeps its own', () => {
    const at_zero = custom.map((one) => ({ ...one, stopped: true as const, at_zero: true }));
    const { routers, middlewares } = httpOf(at_zero);
    expect(Object.keys(middlewares).filter((name) => name.startsWith('berth_'))).toContain(
      'berth_at_zero',
    );
    expect(middlewares['berth_at_zero']).toMatchObject({
      errors: { status: ['503'], query: expect.stringMatching(/\/stopped\?zero$/) },
    });
    expect(middlewares['berth_stopped']).toBeUndefined();
    expect(routers['shop_domains']?.middlewares).toContain('berth_at_zero');
  });
  it('a stopped project has its page at its domains too, behind the login', () => {
    const stopped = custom.map((one) => ({ ...one, stopped: true as const }));
    const { routers, middlewares } = httpOf(stopped);
    const page = Object.keys(middlewares).filter((name) => 'errors' in (middlewares[name] ?? {}));
    expect(page).toHaveLength(1);
    expect(routers['shop_domains']?.middlewares).toEqual(['berth-strip-identity', ...page]);
    expect(routers['shop_domains_token']?.middlewares).toEqual(page);
    expect(routers['intern_domains']?.middlewares).toEqual(['intern-auth', ...page]);
  });

  it('a device token never reaches an open project with twenty long domains', () => {
    const domains = Array.from(
      { length: 20 },
      (_, i) => `${`${'a'.repeat(60)}.`.repeat(3)}d${i}.example`,
    );
    const { routers } = httpOf([route('shop', { domains })]);
    expect(priorityOf(routers['berth_domain_tokens'])).toBeGreaterThan(
      priorityOf(routers['shop_domains']),
    );
  });

  it('hosts of the platform, doubled ones and texts that are no host are omitted with a reason', () => {
    const built = dynamicConfig(
      [
        route('a', {
          domains: ['a.berth.test', 'x.berth.test', 'auth.other.test', 'same.example', 'bad`)host'],
        }),
        route('b', { domains: ['same.example', 'b.example'] }),
      ],
      SETTINGS,
    );
    expect([...built.domains]).toEqual([
      ['same.example', 'id-a'],
      ['b.example', 'id-b'],
    ]);
    expect(built.problems).toHaveLength(4);
  });

  it('the gateways’ policy has domains outside BASE_DOMAIN only, apart from the hosts', () => {
    const project = {
      id: 'p',
      name: 'shop',
      prefixes: ['shop'],
      auth_required: true,
      auth_epoch: 0,
    };
    const facts = { disabled: [], deleted: [], revoked: [], tokens: [] };
    const domains = [{ host: 'shop.berth.test', claim: 'c1' }];
    const build = (given: object, domainQuarantineMs = 7_200_000) =>
      policyOf(
        { projects: [{ ...project, ...given }], ...facts },
        { baseDomain: 'berth.test', domainQuarantineMs },
      );
    expect(build({ domains })).toEqual(build({}));
    domains.push({ host: 'shop.example', claim: 'c2' });
    expect(build({ domains }).projects[0]).toMatchObject({
      hosts: ['shop.berth.test'],
      domains: [{ host: 'shop.example', claim: 'c2', cookie_seconds: 7200 }],
    });
    // An operator without a quarantine does not want that visitors sign in every moment.
    expect(build({ domains }, 0).projects[0]?.domains).toEqual([
      { host: 'shop.example', claim: 'c2' },
    ]);
  });
});

const priorityOf = (router: DynamicConfig['http']['routers'][string] | undefined): number =>
  router?.priority ?? router?.rule.length ?? 0;

const answer = (...addresses: string[]): Resolved => ({ kind: 'answer', addresses, cname: null });
describe('where a domain leads', () => {
  const here = { from: 'PUBLIC_IPS' as const, resolved: answer('192.0.2.1', '2001:DB8:0::1') };
  it.each<[string, Resolved, Parameters<typeof judgeDns>[2], string]>([
    ['one address', answer('192.0.2.1'), here, 'ok'],
    ['IPv6 in another spelling', answer('2001:db8::1', '192.0.2.1'), here, 'ok'],
    ['one address elsewhere', answer('198.51.100.9'), here, 'elsewhere'],
    ['IPv4 here and IPv6 elsewhere', answer('192.0.2.1', '2001:db8::9'), here, 'partly'],
    ['no address', answer(), here, 'missing'],
    ['no answer', { kind: 'failed', why: 'ETIMEOUT' }, here, 'unknown'],
    [
      'BASE_DOMAIN without an address',
      answer('192.0.2.1'),
      { from: 'BASE_DOMAIN', resolved: answer() },
      'unknown',
    ],
    [
      'BASE_DOMAIN without an answer',
      answer('192.0.2.1'),
      { from: 'BASE_DOMAIN', resolved: { kind: 'failed', why: 'ETIMEOUT' } },
      'unknown',
    ],
  ])('%s', (_, seen, expected, state) => {
    const verdict = judgeDns('www.example.com', seen, expected);
    expect(verdict.state).toBe(state);
    if (state !== 'ok') expect(verdict.problem).toBeTruthy();
  });
});

describe('name servers', () => {
  let dns: Awaited<ReturnType<typeof startDnsServer>>;
  beforeAll(async () => {
    dns = await startDnsServer({
      'berth.test': { a: ['192.0.2.1', '192.0.2.2'], aaaa: ['2001:db8::1'] },
      'all.example': { a: ['192.0.2.2', '192.0.2.1'], aaaa: ['2001:db8::1'] },
      'alias.example': { cname: 'berth.test' },
      'lost.example': { cname: 'nowhere.example' },
      'mixed.example': { a: ['192.0.2.1', '198.51.100.1'] },
      'empty.example': {},
      'broken.example': 'refuse',
      'hung.example': 'hang',
    });
  });
  afterAll(() => dns.stop());
  const check = (
    more: Partial<Parameters<typeof createDnsCheck>[0]> = {},
  ): ReturnType<typeof createDnsCheck> =>
    createDnsCheck({
      baseDomain: 'berth.test',
      publicIps: undefined,
      servers: [dns.address],
      now: Date.now,
      ...more,
    });

  it('compares all addresses, follows aliases, and ends although a name server does not answer', async () => {
    const seen = await check()([
      'all.example',
      'alias.example',
      'lost.example',
      'mixed.example',
      'empty.example',
      'gone.example',
      'broken.example',
      'hung.example',
    ]);
    expect(Object.fromEntries([...seen].map(([name, { state }]) => [name, state]))).toEqual({
      'all.example': 'ok',
      'alias.example': 'ok',
      'lost.example': 'missing',
      'mixed.example': 'partly',
      'empty.example': 'missing',
      'gone.example': 'missing',
      'broken.example': 'unknown',
      'hung.example': 'unknown',
    });
    expect(seen.get('alias.example')?.cname).toBe('berth.test');
  });

  it('asks once for a name within ten seconds', async () => {
    const ask = check({ publicIps: ['192.0.2.1'] });
    await ask(['all.example']);
    const before = dns.asked();
    await Promise.all(Array.from({ length: 20 }, () => ask(['all.example'])));
    expect(dns.asked()).toBe(before);
  });
});
