import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { PublishedRoute } from '../../src/domain/routes/route-stores.ts';
import {
  type DynamicConfig,
  dynamicConfig,
  type RoutingSettings,
} from '../../src/routing/traefik.ts';

const SETTINGS: RoutingSettings = {
  baseDomain: 'berth.test',
  authServiceUrl: 'http://auth:4180',
  acmeResolver: 'letsencrypt',
};
/** Each project has a port of its own. */
const portOf = (name: string): number =>
  32_001 + (Buffer.from(name).reduce((sum, byte) => sum + byte, 0) % 4096) - 442;
const route = (over: Partial<PublishedRoute> = {}): PublishedRoute => ({
  project_id: 'p1',
  project_name: 'shop',
  deployment_id: 'd1',
  node_id: 'n1',
  domain_prefix: 'store',
  host_ip: '10.0.0.1',
  host_port: portOf(over.project_name ?? 'shop'),
  published_at: 1,
  auth_required: false,
  ...over,
});
const parse = (routes: PublishedRoute[], settings = SETTINGS): DynamicConfig['http'] =>
  (JSON.parse(dynamicConfig(routes, settings).bytes) as DynamicConfig).http;

const MARKERS = [
  'berth-marker-alias-web',
  'berth-marker-alias-websecure',
  'berth-marker-web',
  'berth-marker-websecure',
];

describe('the configuration follows the contract', () => {
  it('an open project', () => {
    const http = parse([route()]);
    expect(http.routers['shop']).toMatchObject({
      rule: 'Host(`store.berth.test`)',
      entryPoints: ['websecure'],
      service: 'shop',
      tls: { certResolver: 'letsencrypt' },
    });
    // The redirecting router is exactly the contract’s.
    expect(http.routers['shop-http']).toEqual({
      rule: 'Host(`store.berth.test`)',
      entryPoints: ['web'],
      service: 'shop',
      middlewares: ['redirect-to-https@file'],
    });
    expect(http.services['shop']).toEqual({
      loadBalancer: { servers: [{ url: 'http://10.0.0.1:32001' }] },
    });
    expect(http.middlewares['shop-auth']).toBeUndefined();
  });
  it('a project that requires a login', () => {
    const http = parse([route({ auth_required: true })]);
    expect(http.routers['shop']?.middlewares).toEqual(['shop-auth']);
    expect(http.middlewares['shop-auth']).toEqual({
      forwardAuth: expect.objectContaining({
        address: 'http://auth:4180/verify?project=p1',
        authResponseHeaders: ['X-Forwarded-User'],
        trustForwardHeader: true,
      }),
    });
  });
  it('an open project gets no forged identity header in any spelling', () => {
    const http = parse([route()]);
    const strip = http.routers['shop']?.middlewares
      ?.map((name) => http.middlewares[name])
      .find((m) => m !== undefined && 'headers' in m);
    const removed =
      strip !== undefined && 'headers' in strip ? strip.headers.customRequestHeaders : {};
    for (const name of [
      'X-Forwarded-User',
      'X_Forwarded_User',
      'X-Forwarded_User-Name',
      'X-Forwarded-User_Provider',
      'X_Forwarded-User-Avatar',
      'X-Forwarded-User-Assertion',
    ])
      expect(removed[name]).toBe('');
  });
});

describe('device tokens', () => {
  const blog = { project_name: 'blog', domain_prefix: 'blog', deployment_id: 'd2' };
  const shut = {
    project_name: 'shut',
    domain_prefix: 'shut',
    deployment_id: 'd3',
    auth_required: true,
  };
  const http = parse([route(), route(blog), route(shut)]);
  it('one router matches requests to open projects with a token and removes it', () => {
    expect(http.routers['berth_tokens']).toEqual({
      rule:
        'HeaderRegexp(`Authorization`, `berth_[A-Za-z0-9_-]{43}`) && (Host(`berth.invalid`) || ' +
        'HostRegexp(`^(blog|store)\\.berth\\.test\\.?$`))',
      entryPoints: ['websecure'],
      middlewares: ['berth-strip-identity', 'berth-strip-token'],
      tls: {},
    });
    expect(http.middlewares['berth-strip-token']).toEqual({
      headers: { customRequestHeaders: { Authorization: '' } },
    });
  });
  it('its rule is longer than any project’s rule, so the proxy tries it first', () => {
    const { routers } = parse([route({ domain_prefix: 'a'.repeat(63) })]);
    expect(routers['berth_tokens']?.rule.length).toBeGreaterThan(
      routers['shop']?.rule.length ?? Infinity,
    );
  });
  it('each open project has a child router to its service', () => {
    expect(http.routers['shop_token']).toEqual({
      rule: 'Host(`store.berth.test`)',
      parentRefs: ['berth_tokens'],
      priority: 1,
      service: 'shop',
    });
    expect(Object.keys(http.routers).filter((name) => name.endsWith('_token'))).toEqual([
      'blog_token',
      'shop_token',
    ]);
  });
  it('preflights to projects that need a login go to the gateway, others to their application', () => {
    const { routers, services } = parse([route(shut), route()]);
    expect(routers['berth_preflights']?.rule).toMatch(
      /^Method\(`OPTIONS`\) && HeaderRegexp\(`Origin`, .*\^\(shut\)/,
    );
    expect(routers['berth_preflights']).toMatchObject({
      service: 'berth_preflights',
      priority: 100_000,
    });
    expect(Object.keys(services)).toContain('berth_preflights');
    expect(Object.keys(parse([route()]).routers)).not.toContain('berth_preflights');
  });
  it('it does not exist without an open project, because the gateway removes tokens', () => {
    const alone = parse([route(shut)]);
    expect(Object.keys(alone.routers)).toEqual([
      ...MARKERS,
      'berth_preflights',
      'shut',
      'shut-http',
    ]);
    expect(Object.keys(alone.middlewares)).not.toContain('berth-strip-token');
  });
});

describe('robustness', () => {
  it('contains only the marker and no empty sections if there is no project', () => {
    const http = parse([]);
    expect(Object.keys(http)).toEqual(['routers']);
    expect(Object.keys(http.routers)).toEqual(MARKERS);
  });
  it('the marker’s path is the hash of the configuration without the marker', () => {
    const built = dynamicConfig([route()], SETTINGS);
    const config = JSON.parse(built.bytes) as DynamicConfig;
    expect(config.http.routers['berth-marker-web']?.rule).toBe(
      `Host(\`berth.invalid\`) && Path(\`/${built.hash}\`)`,
    );
    expect(config.http.routers['berth-marker-websecure']).toMatchObject({
      entryPoints: ['websecure'],
      service: 'noop@internal',
    });
    for (const name of MARKERS) delete config.http.routers[name];
    expect(createHash('sha256').update(JSON.stringify(config)).digest('hex').slice(0, 16)).toBe(
      built.hash,
    );
  });
  it('another route changes the hash', () => {
    expect(dynamicConfig([route()], SETTINGS).hash).not.toBe(
      dynamicConfig([route({ host_port: 32_002 })], SETTINGS).hash,
    );
  });
  it('a project that requires a login is omitted without a forward-auth service', () => {
    const built = dynamicConfig(
      [
        route({ auth_required: true }),
        route({ project_name: 'blog', domain_prefix: 'blog', deployment_id: 'd2' }),
      ],
      { ...SETTINGS, authServiceUrl: null },
    );
    expect(built.bytes).not.toContain('store.berth.test');
    expect(built.bytes).toContain('blog.berth.test');
    expect([...built.deployments.keys()]).toEqual(['d2']);
    expect(built.problems).toEqual([
      'shop: it requires a login, but AUTH_SERVICE_URL is not set, so it is not published',
    ]);
  });
  it.each([
    ['a name that would break the rule', { project_name: 'a`b' }],
    ['a prefix that would break the rule', { domain_prefix: 'x`) || Host(`evil' }],
    ['an address with a path', { host_ip: '10.0.0.1/evil' }],
    ['no port', { host_port: 0 }],
  ])('%s omits only its own project', (_, over) => {
    const built = dynamicConfig(
      [route(over), route({ project_name: 'blog', domain_prefix: 'blog', deployment_id: 'd2' })],
      SETTINGS,
    );
    expect(built.problems).toHaveLength(1);
    expect([...built.deployments.keys()]).toEqual(['d2']);
  });
  it('two projects cannot have one host', () => {
    expect(
      dynamicConfig([route(), route({ project_name: 'zoo', deployment_id: 'd2' })], SETTINGS)
        .problems,
    ).toEqual(['zoo: store.berth.test belongs to shop']);
  });
  it('the address of an IPv6 node has brackets', () => {
    const { shop } = parse([route({ host_ip: 'fd00::2' })]).services;
    expect(shop?.loadBalancer?.servers).toEqual([{ url: 'http://[fd00::2]:32001' }]);
  });
  it('the order of the routes does not change the bytes', () => {
    const many = Array.from({ length: 30 }, (_, i) =>
      route({ project_name: `p${i}`, domain_prefix: `h${i}`, deployment_id: `d${i}` }),
    );
    fc.assert(
      fc.property(
        fc.shuffledSubarray(many, { minLength: many.length }),
        (shuffled) =>
          dynamicConfig(shuffled, SETTINGS).bytes === dynamicConfig(many, SETTINGS).bytes,
      ),
    );
  });
});

describe('two routes with one address', () => {
  const shop = route({ host_port: 32_768, published_at: 1, domains: ['shop.example'] });
  const blog = (over: Partial<PublishedRoute> = {}): PublishedRoute =>
    route({
      project_id: 'p2',
      project_name: 'blog',
      deployment_id: 'd2',
      domain_prefix: 'blog',
      host_port: 32_768,
      published_at: 2,
      ...over,
    });
  it('only the later one is published, under every host, and the other project is named', () => {
    const built = dynamicConfig([shop, blog()], SETTINGS);
    const { http } = JSON.parse(built.bytes) as DynamicConfig;
    expect(Object.keys(http.services)).toEqual(['blog']);
    expect(built.bytes).not.toContain('shop');
    expect([...built.deployments.keys()]).toEqual(['d2']);
    expect(built.problems).toEqual([
      'shop: its address 10.0.0.1:32768 now belongs to project blog',
    ]);
    expect(built.collisions).toEqual([
      { deployment_id: 'd1', host_ip: '10.0.0.1', host_port: 32_768, holder: 'project blog' },
    ]);
  });
  it.each<[string, PublishedRoute]>([
    ['another port', blog({ host_port: 32_769 })],
    ['another address', blog({ host_ip: '10.0.0.2' })],
    ['the page of a project that was there before', blog({ stopped: true, published_at: 0 })],
    ['the page of a project without web', blog({ stopped: true, host_port: 0 })],
  ])('%s is no collision', (_, other) => {
    expect(dynamicConfig([shop, other], SETTINGS)).toMatchObject({ problems: [], collisions: [] });
  });
  it('a project that has just been stopped has its address still: its container might run', () => {
    const built = dynamicConfig([shop, blog({ stopped: true })], SETTINGS);
    const { http } = JSON.parse(built.bytes) as DynamicConfig;
    expect(http.services['shop']).toBeUndefined();
    expect(http.routers['blog']).toBeDefined();
    expect(built.collisions).toMatchObject([{ deployment_id: 'd1', holder: 'project blog' }]);
  });
  it.each([
    ['fd00::1', 'FD00:0:0::0001'],
    ['10.0.0.1', '::ffff:10.0.0.1'],
    ['node-1.lan', 'Node-1.LAN'],
  ])('%s and %s are one address', (one, other) => {
    expect(
      dynamicConfig([{ ...shop, host_ip: one }, blog({ host_ip: other })], SETTINGS).collisions,
    ).toHaveLength(1);
  });
  it('routes of the same moment leave one of them, and three leave one', () => {
    const third = blog({
      project_id: 'p3',
      project_name: 'wiki',
      deployment_id: 'd3',
      domain_prefix: 'wiki',
    });
    for (const order of [
      [shop, blog(), third],
      [third, blog(), shop],
    ])
      expect([...dynamicConfig(order, SETTINGS).deployments.keys()]).toEqual(['d2']);
  });
});
