/** The configuration of projects with several servers. With one server, nothing differs. */
import { readFileSync } from 'node:fs';
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
const route = (over: Partial<PublishedRoute> = {}): PublishedRoute => ({
  project_id: 'p1',
  project_name: 'shop',
  deployment_id: 'd1',
  node_id: 'n1',
  domain_prefix: 'store',
  host_ip: '10.0.0.1',
  host_port: 32_001,
  published_at: 1,
  auth_required: false,
  sticky: false,
  ...over,
});
const SECOND = { instance_id: 'i2', node_id: 'n2', host_ip: '10.0.0.2', host_port: 32_002 };
const two = (over: Partial<PublishedRoute> = {}): PublishedRoute =>
  route({ servers: [SECOND], ...over });
const parse = (routes: PublishedRoute[]): DynamicConfig['http'] =>
  (JSON.parse(dynamicConfig(routes, SETTINGS).bytes) as DynamicConfig).http;
const SERVERS = [{ url: 'http://10.0.0.1:32001' }, { url: 'http://10.0.0.2:32002' }];

/** One project of each kind, as in version 0.1.0. The file has what that version served. */
const OF_0_1_0: PublishedRoute[] = [
  route({ domains: ['shop.example', 'www.shop.example'] }),
  route({
    project_id: 'p2',
    project_name: 'blog',
    deployment_id: 'd2',
    domain_prefix: 'blog',
    host_port: 32_003,
    auth_required: true,
    domains: ['blog.example'],
  }),
  route({
    project_id: 'p3',
    project_name: 'idle',
    deployment_id: 'd3',
    domain_prefix: 'idle',
    host_ip: 'fd00::3',
    host_port: 32_004,
    stopped: true,
  }),
];

describe('one server', () => {
  const served = readFileSync(new URL('served-by-0.1.0.txt', import.meta.url), 'utf8').trim();
  it('gives byte for byte what version 0.1.0 served', () => {
    expect(dynamicConfig(OF_0_1_0, SETTINGS).bytes).toBe(served);
  });
  it('`sticky` and `health_path` change nothing', () => {
    const routes = OF_0_1_0.map((r) => ({ ...r, sticky: true, health_path: '/healthz' }));
    expect(dynamicConfig(routes, SETTINGS).bytes).toBe(served);
  });
  it('a server whose address another project has leaves one server', () => {
    const blog = route({
      project_id: 'p2',
      project_name: 'blog',
      deployment_id: 'd2',
      domain_prefix: 'blog',
      host_ip: SECOND.host_ip,
      host_port: SECOND.host_port,
      published_at: 2,
    });
    const http = parse([two(), blog]);
    expect(http.services['shop']).toEqual({ loadBalancer: { servers: [SERVERS[0]] } });
    expect(http.routers['shop']?.service).toBe('shop');
    expect(http).not.toHaveProperty('serversTransports');
  });
  it('a stopped project with several instances is like one with a single instance', () => {
    expect(dynamicConfig([two({ stopped: true })], SETTINGS).bytes).toBe(
      dynamicConfig([route({ stopped: true })], SETTINGS).bytes,
    );
  });
});

describe('two servers with a health path', () => {
  const http = parse([two({ health_path: '/healthz' })]);
  it('the proxy checks each server as a visitor, and uses only those below status 400', () => {
    expect(http.services['shop']).toEqual({
      loadBalancer: {
        servers: SERVERS,
        serversTransport: 'berth_instances',
        healthCheck: {
          path: '/healthz',
          interval: '1s',
          timeout: '2s',
          hostname: 'store.berth.test',
          headers: {
            'User-Agent': 'berth-proxy',
            'X-Forwarded-Host': 'store.berth.test',
            'X-Forwarded-Proto': 'https',
          },
          followRedirects: false,
        },
      },
    });
  });
  it('the routers are those of the contract', () => {
    for (const name of ['shop', 'shop-http', 'shop_token'])
      expect(http.routers[name]?.service).toBe('shop');
    expect(Object.keys(http.services)).toEqual(['shop']);
  });
  it('a connection to a silent machine fails soon, and others stay as in traefik.yml', () => {
    expect(http.serversTransports).toEqual({
      berth_instances: {
        maxIdleConnsPerHost: 200,
        forwardingTimeouts: { dialTimeout: '500ms', idleConnTimeout: '50ms' },
      },
    });
    const yml = readFileSync(new URL('../../../../deploy/traefik/traefik.yml', import.meta.url));
    expect(yml.toString()).toContain('idleConnTimeout: 50ms');
  });
});

describe('two servers without a health path', () => {
  const http = parse([two()]);
  it('if no server passes the check at `/`, the proxy uses all of them', () => {
    expect(http.services).toMatchObject({
      shop: { loadBalancer: { servers: SERVERS, healthCheck: { path: '/' } } },
      shop_alive: { failover: { service: 'shop', fallback: 'shop_all' } },
    });
    expect(http.services['shop_all']).toEqual({
      loadBalancer: { servers: SERVERS, serversTransport: 'berth_instances', strategy: 'p2c' },
    });
  });
  it.each(['//status', '/100%'])('a health path that Traefik cannot ask is not one: %s', (path) => {
    expect(parse([two({ health_path: path })]).services).toEqual(http.services);
  });
  it('all routers that lead to the application use it', () => {
    const { routers } = parse([two({ domains: ['shop.example'] })]);
    const leading = ['shop', 'shop_token', 'shop_domains', 'shop_domains_token'];
    for (const name of leading) expect(routers[name]?.service, name).toBe('shop_alive');
    for (const name of ['shop-http', 'shop_domains-http'])
      expect(routers[name]).toMatchObject({
        service: 'shop',
        middlewares: ['redirect-to-https@file'],
      });
  });
});

describe('requests to a server that cannot be reached', () => {
  it('go to another server, after the login and the removal of headers', () => {
    const open = parse([two({ domains: ['shop.example'] })]);
    const last = (name: string) => open.routers[name]?.middlewares;
    expect(last('shop')).toEqual(['berth-strip-identity', 'berth-other-instance']);
    expect(last('shop_domains')).toEqual(['berth-strip-identity', 'berth-other-instance']);
    // The middlewares of their parents come before.
    expect(last('shop_token')).toEqual(['berth-other-instance']);
    expect(last('shop_domains_token')).toEqual(['berth-other-instance']);
    const closed = parse([two({ auth_required: true })]);
    expect(closed.routers['shop']?.middlewares).toEqual(['shop-auth', 'berth-other-instance']);
  });
  it('only if nothing was sent: no status and no method is added to the middleware', () => {
    expect(parse([two()]).middlewares['berth-other-instance']).toEqual({
      retry: { attempts: 6, initialInterval: '50ms' },
    });
  });
});

describe('sticky', () => {
  const cookie = { name: 'berth_instance', httpOnly: true, secure: true };
  it('gives one cookie for both load balancers of a project', () => {
    const { services } = parse([two({ sticky: true })]);
    expect(services['shop']?.loadBalancer?.sticky).toEqual({ cookie });
    expect(services['shop_all']?.loadBalancer?.sticky).toEqual({ cookie });
  });
  it('without it, there is no cookie', () => {
    expect(dynamicConfig([two()], SETTINGS).bytes).not.toContain('cookie');
  });
});

it('a server with an invalid address omits only its own project', () => {
  const bad = two({ servers: [{ ...SECOND, host_ip: '10.0.0.2/evil' }] });
  const built = dynamicConfig(
    [bad, route({ project_name: 'blog', domain_prefix: 'blog', host_ip: '10.0.0.3' })],
    SETTINGS,
  );
  expect(built.problems).toEqual(['shop: the address "10.0.0.2/evil" of its node is invalid']);
});

it('lists an address once that two instances have for a moment', () => {
  // Their engine has restarted and exchanged its ports, and only one of them is reported.
  const same = { ...SECOND, host_ip: '10.0.0.1', host_port: 32_001 };
  const third = { ...SECOND, instance_id: 'i3' };
  const { services } = parse([route({ servers: [same, third] })]);
  expect(services['shop']?.loadBalancer?.servers).toEqual(SERVERS);
});
