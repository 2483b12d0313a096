/**
 * Custom domains through the API: what is refused, what takes effect at once, and where a domain
 * leads.
 */
import { startDnsServer, type DnsServer } from '@berth/testbed/dns-server';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createWorld } from './deployed.ts';
import { type Api, createApi, createProject, register, rulesOf } from './harness.ts';

let dns: DnsServer;
let api: Api;
beforeAll(async () => {
  dns = await startDnsServer({
    'here.example.com': { a: ['192.0.2.1'] },
    'old.example.com': { a: ['198.51.100.7'] },
    'hung.example.com': 'hang',
  });
  api = await createApi({
    env: {
      AUTH_SERVICE_URL: 'http://auth.example.net:4180',
      PUBLIC_IPS: '192.0.2.1,2001:db8::1',
      DNS_SERVERS: dns.address,
      RESERVED_PREFIXES: 'grafana,Git.Example.net',
    },
  });
}, 120_000);
afterAll(async () => {
  await api.close();
  await dns.stop();
});

const patch = (id: string, domains: unknown): ReturnType<Api['call']> =>
  api.call('patchProject', { params: { id }, body: { domains } });
const routersOf = async (): Promise<Record<string, { rule: string }>> =>
  ((await api.call('traefikConfig')).json['http'] as { routers: Record<string, { rule: string }> })
    .routers;
const policyDomains = async (): Promise<unknown> =>
  ((await api.call('gatewayPolicy')).json['projects'] as { domains?: { host: string }[] }[])
    .flatMap((p) => p.domains ?? [])
    .map((d) => d.host);

test('domains are stored in lower case and as punycode, and take effect without a deployment', async () => {
  const world = await createWorld(api);
  const id = await createProject(api, {
    name: 'shop',
    domain_prefix: 'shop',
    domains: ['WWW.Example.com'],
  });
  await world.live(id);
  expect((await api.call('getProject', { params: { id } })).json['domains']).toEqual([
    'www.example.com',
  ]);
  expect((await routersOf())['shop_domains']?.rule).toBe('Host(`www.example.com`)');
  expect(
    (await patch(id, ['www.example.com', 'Bücher.example.com.', 'WWW.example.com'])).json[
      'domains'
    ],
  ).toEqual(['www.example.com', 'xn--bcher-kva.example.com']);
  expect((await routersOf())['shop_domains']?.rule).toBe(
    'Host(`www.example.com`) || Host(`xn--bcher-kva.example.com`)',
  );
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
    'GIT.example.net.',
    'www.git.example.net',
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
      'domains[7]:reserved',
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
  await createProject(api, {
    name: 'owner',
    domain_prefix: 'owner',
    domains: ['taken.example.com'],
  });
  const taken = await patch(id, ['TAKEN.example.com']);
  expect([taken.status, taken.json['code'], rulesOf(taken)]).toEqual([
    409,
    'domain_taken',
    ['domains[0]:taken'],
  ]);
});

test('a new domain prefix is refused while the project lists its own host', async () => {
  const id = await createProject(api, { name: 'prefixed', domain_prefix: 'prefixed' });
  expect((await patch(id, ['prefixed.berth.localhost'])).status).toBe(200);
  const rename = (more: object = {}): ReturnType<Api['call']> =>
    api.call('patchProject', { params: { id }, body: { domain_prefix: 'renamed', ...more } });
  expect(rulesOf(await rename())).toEqual(['domains[0]:base_domain']);
  expect((await rename({ domains: [] })).status).toBe(200);
});

test('a refusal names field and rule, also in a new project, and stores nothing', async () => {
  const bad = [
    '*.example.com',
    '127.1',
    '[2001:db8::1]',
    'www.example.com:8443',
    'BERTH.localhost.',
    'a'.repeat(301),
  ];
  for (const [i, domain] of bad.entries()) {
    const body = {
      name: `bad-${i}`,
      git_url: 'https://git.example.com/x.git',
      domain_prefix: `bad-${i}`,
      domains: ['ok.example.com', domain],
    };
    const reply = await api.call('createProject', { body });
    expect([reply.status, rulesOf(reply)], domain).toEqual([
      422,
      [expect.stringMatching(/^domains\[1\]:[a-z_]+$/)],
    ]);
    // People read this sentence alone in the command line.
    expect(String(reply.json['detail'])).toContain('domains[1]');
  }
  const id = await createProject(api, {
    name: 'later',
    domain_prefix: 'later',
    domains: ['ok.example.com'],
  });
  expect((await patch(id, ['ok.example.com', '*.example.com'])).status).toBe(422);
  expect((await api.call('getProject', { params: { id } })).json['domains']).toEqual([
    'ok.example.com',
  ]);
});

test('no other project takes the prefix of one that moved, and the policy names who has it', async () => {
  const world = await createWorld(api);
  const id = await createProject(api, { name: 'mover', domain_prefix: 'mover' });
  await world.live(id);
  const claims = async (): Promise<unknown> =>
    (
      (await api.call('gatewayPolicy')).json['projects'] as {
        id: string;
        host_claims?: { host: string; claim: string }[];
      }[]
    )
      .find((project) => project.id === id)
      ?.host_claims?.map(({ host }) => host);
  expect(await claims()).toEqual(['mover.berth.localhost']);
  await api.call('patchProject', { params: { id }, body: { domain_prefix: 'next' } });
  await world.live(id);
  await waitFor(
    'the policy names the new host',
    async () => JSON.stringify(await claims()) === '["next.berth.localhost"]',
  );
  const reply = await api.call('createProject', {
    body: { name: 'taker', git_url: 'https://git.example.com/x.git', domain_prefix: 'mover' },
  });
  expect([reply.status, reply.json['code'], rulesOf(reply)]).toEqual([
    409,
    'domain_prefix_taken',
    ['domain_prefix:kept'],
  ]);
  expect(String(reply.json['detail'])).toMatch(
    /mover until recently; it is kept for that project until 20/,
  );
  expect(
    (await api.call('patchProject', { params: { id }, body: { domain_prefix: 'mover' } })).status,
  ).toBe(200);
});

test('no other project takes a domain of one that is stopped, that moves to another prefix or that is deleted', async () => {
  const world = await createWorld(api);
  const name = 'www.kept.example.com';
  const id = await createProject(api, { name: 'kept', domain_prefix: 'kept', domains: [name] });
  await world.live(id);
  const other = await createProject(api, { name: 'thief', domain_prefix: 'thief' });
  const refusal = async (): Promise<unknown> => {
    const reply = await patch(other, [name.toUpperCase()]);
    return [reply.status, reply.json['code'], rulesOf(reply)];
  };
  const [taken, kept] = [
    [409, 'domain_taken', ['domains[0]:taken']],
    [409, 'domain_taken', ['domains[0]:kept']],
  ];
  await api.call('stopProject', { params: { id } });
  expect(await refusal()).toEqual(taken);
  // The stopped project has its page there, and a login if it needs one.
  expect((await routersOf())['kept_domains']?.rule).toBe(`Host(\`${name}\`)`);

  await api.call('patchProject', { params: { id }, body: { domain_prefix: 'moved' } });
  expect(await refusal()).toEqual(taken);
  expect((await routersOf())['kept_domains']?.rule).toBe(`Host(\`${name}\`)`);
  await world.work(world.home, {});

  await api.call('deleteProject', { params: { id } });
  expect(await refusal()).toEqual(taken);
  await world.work(world.home, {});
  await waitFor('the project is removed', async () => {
    // The node lists its containers again, at a later millisecond than its last task: none of the
    // project is left.
    await register(api, { hostname: 'node-1', role: 'deploy', containers: [] });
    await api.stores.nodes.flush?.();
    return api.stores.projects.removeIfGone(id);
  });
  expect(await refusal()).toEqual(kept);
  expect((await routersOf())['kept_domains']).toBeUndefined();
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
  expect(
    items.map(({ domain, url, published, dns: { state } }) => [domain, url, published, state]),
  ).toEqual([
    ['here.example.com', 'http://here.example.com:8000', false, 'ok'],
    ['old.example.com', 'http://old.example.com:8000', false, 'elsewhere'],
    ['gone.example.com', 'http://gone.example.com:8000', false, 'missing'],
    ['hung.example.com', 'http://hung.example.com:8000', false, 'unknown'],
  ]);
  expect(items[1]?.dns.problem).toContain('198.51.100.7');
});

test('cors_origins are stored as browsers send them, reach the gateway at once, and each refusal names its field', async () => {
  const id = await createProject(api, {
    name: 'called',
    domain_prefix: 'called',
    auth_required: true,
    cors_origins: ['HTTPS://App.Example.com/'],
  });
  const stored = async (): Promise<unknown> =>
    (await api.call('getProject', { params: { id } })).json['cors_origins'];
  const inPolicy = async (): Promise<unknown> =>
    (
      (await api.call('gatewayPolicy')).json['projects'] as {
        id: string;
        cors_origins?: string[];
      }[]
    ).find((p) => p.id === id)?.cors_origins;
  expect(await stored()).toEqual(['https://app.example.com']);
  const set = (cors_origins: unknown) =>
    api.call('patchProject', { params: { id }, body: { cors_origins } });
  const good = [
    'https://bücher.example:443',
    'http://localhost:3000',
    'https://xn--bcher-kva.example',
    'https://[::1]:8443',
  ];
  expect((await set(good)).status).toBe(200);
  const normal = ['https://xn--bcher-kva.example', 'http://localhost:3000', 'https://[::1]:8443'];
  expect(await stored()).toEqual(normal);
  await waitFor(
    'the policy has them',
    async () => JSON.stringify(await inPolicy()) === JSON.stringify(normal),
  );
  const bad = [
    '*',
    'https://*.example.com',
    'null',
    'app.example.com',
    'https://a.example/path',
    'https://u@a.example',
    'ftp://a.example',
    'https://a.example?x',
    'https://a\tb.example',
  ];
  const reply = await set(bad);
  const rules = [
    'wildcard',
    'wildcard',
    'null',
    'origin',
    'origin',
    'origin',
    'origin',
    'origin',
    'origin',
  ];
  expect([reply.status, rulesOf(reply)]).toEqual([
    422,
    rules.map((rule, i) => `cors_origins[${i}]:${rule}`),
  ]);
  expect((await set(Array.from({ length: 21 }, (_, i) => `https://a${i}.example`))).status).toBe(
    422,
  );
  expect(await stored()).toEqual(normal);
  expect((await set([])).status).toBe(200);
  await waitFor('the policy has none', async () => (await inPolicy()) === undefined);
});

test('an admin frees a prefix and a domain that are kept, in any spelling, and the audit log and the feed say so', async () => {
  const world = await createWorld(api);
  const id = await createProject(api, {
    name: 'leaving',
    domain_prefix: 'leaving',
    domains: ['leaving.example.com'],
  });
  await world.live(id);
  const take = async (more: object): Promise<number> =>
    (
      await api.call('createProject', {
        body: {
          git_url: 'https://git.example.com/x.git',
          name: 'taking',
          domain_prefix: 'taking',
          ...more,
        },
      })
    ).status;
  const free = (host: string, as: 'developer' | 'admin' = 'admin'): ReturnType<Api['call']> =>
    api.call('freeHost', { params: { host }, as });
  const rename = (domain_prefix: string): ReturnType<Api['call']> =>
    api.call('patchProject', { params: { id }, body: { domain_prefix, domains: [] } });
  // In use, and then served until the next deployment is live.
  expect((await free('leaving.berth.localhost')).json['code']).toBe('wrong_state');
  expect((await free('leaving.example.com')).json['code']).toBe('wrong_state');
  expect((await rename('left')).status).toBe(200);
  expect((await free('leaving')).json['code']).toBe('wrong_state');
  await world.live(id);
  expect([
    await take({ domain_prefix: 'leaving' }),
    await take({ domains: ['leaving.example.com'] }),
  ]).toEqual([409, 409]);
  expect((await free('leaving', 'developer')).status).toBe(403);
  expect((await free('Leaving.Berth.localhost.')).status).toBe(204);
  expect((await free('LEAVING.example.com')).status).toBe(204);
  expect((await free('leaving')).json['code']).toBe('not_found');
  expect(await take({ domain_prefix: 'leaving', domains: ['leaving.example.com'] })).toBe(201);
  const audit = (await api.call('audit', { query: { limit: 200 }, as: 'admin' })).json[
    'items'
  ] as Record<string, unknown>[];
  const freed = audit
    .filter(({ action, outcome }) => action === 'freeHost' && outcome === 'done')
    .map(({ target }) => String(target));
  expect(freed.toSorted()).toEqual(['leaving.berth.localhost', 'leaving.example.com']);
  const events = (await api.call('events', { query: { limit: 1000 } })).json['items'] as {
    kind: string;
    message: string;
  }[];
  expect(
    events.filter(({ kind }) => kind === 'host.freed').map(({ message }) => message.split(' ')[1]),
  ).toEqual(['leaving.berth.localhost', 'leaving.example.com']);
});
