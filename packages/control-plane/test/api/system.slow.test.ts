/** Liveness, readiness with reasons, metrics, the OpenAPI document, and errors in settings. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { SettingsError } from '@berth/kit/config';
import { nodeWarning } from '@berth/wire/version';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { readConfig } from '../../src/config.ts';
import { type Api, createApi, JWT_SECRET, NODE, register } from './harness.ts';

let api: Api;
beforeAll(async () => {
  api = await createApi({ env: { PROXY_PROBE_URLS: 'https://127.0.0.1:1' } });
});
afterAll(() => api.close());

describe('readyz', () => {
  test('lists all parts, and notes for the operator', async () => {
    const reply = await api.call('readyz');
    expect(reply.json).toMatchObject({
      status: 'ready',
      parts: [
        { name: 'database', ok: true },
        { name: 'routes', ok: true },
        { name: 'secrets', ok: true },
      ],
    });
    expect((reply.json['notes'] as string[]).filter((note) => !note.startsWith('Node.js'))).toEqual(
      ['AUTH_SERVICE_URL is not set: projects that require a login cannot be deployed'],
    );
    expect(reply.json['warnings']).toContainEqual({
      kind: 'setting_missing',
      text: 'AUTH_SERVICE_URL is not set: projects that require a login cannot be deployed',
    });
  });
  test('notes that route switches are not checked if PROXY_PROBE_URLS is not set', async () => {
    const other = await createApi();
    expect(JSON.stringify((await other.call('readyz')).json['notes'])).toContain(
      'PROXY_PROBE_URLS is not set',
    );
    await other.close();
  });
  test('notes that probe addresses that only redirect cannot confirm that the proxy reaches a node', async () => {
    const other = await createApi({
      env: { PROXY_PROBE_URLS: 'http://127.0.0.1:1', PUBLIC_URL: 'https://berth.test' },
    });
    expect(JSON.stringify((await other.call('readyz')).json['notes'])).toContain(
      'PROXY_PROBE_URLS has no https address',
    );
    await other.close();
  });
  test('gets 503 if the database fails or hangs, without the message of the database', async () => {
    for (const ping of [
      () => Promise.reject(new Error('secret path')),
      () => new Promise<void>(() => undefined),
    ]) {
      const other = await createApi({ stores: (real) => ({ ...real, ping }) });
      const reply = await other.call('readyz');
      expect([reply.status, reply.json['status']]).toEqual([503, 'not_ready']);
      expect(reply.text).not.toContain('secret path');
      await other.close();
    }
  });
  test('liveness does not use the database', async () => {
    expect((await api.call('healthz')).json).toEqual({ status: 'ok' });
  });
});

test('the settings in force, without secrets, and the backups: for admins only', async () => {
  const other = await createApi({
    env: {
      SMTP_URL: 'smtp://mailer:mail-password@mail.example:587',
      SMTP_FROM: 'berth@example.org',
      KEEP_RELEASES: '7',
    },
  });
  const reply = await other.call('system');
  expect(reply.status, reply.text).toBe(200);
  const { settings, backups, readiness } = reply.json as unknown as {
    settings: { name: string }[];
    backups: object;
    readiness: object;
  };
  // The shipped proxy files keep /readyz from the internet, so the dashboard reads the same here.
  expect(readiness).toEqual((await other.call('readyz')).json);
  const of = (name: string) => settings.find((one) => one.name === name);
  expect(of('KEEP_RELEASES')).toMatchObject({ value: '7', source: 'set' });
  expect(of('LOG_LEVEL')).toMatchObject({ doc: expect.stringMatching(/./) });
  expect(of('SMTP_URL')).toMatchObject({ value: null, source: 'hidden' });
  expect(reply.text).not.toContain('mail-password');
  expect(reply.text).not.toContain(JWT_SECRET);
  expect(backups).toEqual({ interval_seconds: null, next_at: null, items: [] });
  await other.close();
});

test('readyz warns if the Node.js that runs lacks security fixes', async () => {
  const { notes } = (await api.call('readyz')).json as { notes: string[] };
  const warning = nodeWarning(process.versions.node);
  expect(notes.filter((note) => note.startsWith('Node.js'))).toEqual(
    warning === null ? [] : [warning],
  );
});

describe('missing settings of deploy nodes in readyz', () => {
  let other: Api;
  beforeEach(async () => void (other = await createApi()));
  afterEach(() => other.close());
  const UNSET = { role: 'deploy', publish_ip: null, default_memory: null };
  const notes = async (): Promise<string[]> =>
    ((await other.call('readyz')).json['notes'] as string[]).filter((note) =>
      /PUBLISH_IP|DEFAULT_MEMORY/.test(note),
    );

  test('a node without PUBLISH_IP or DEFAULT_MEMORY is counted, without its name and address', async () => {
    await register(other, { ...UNSET, hostname: 'd1', host_ip: '10.1.2.3', default_memory: 512e6 });
    await register(other, {
      ...UNSET,
      hostname: 'd2',
      host_ip: '10.1.2.4',
      publish_ip: '10.1.2.4',
    });
    expect(await notes()).toEqual([
      'PUBLISH_IP is not set on 1 node: published ports of containers there are reachable on ' +
        'every address of the machine',
      'DEFAULT_MEMORY is not set on 1 node: containers of projects without a memory limit may ' +
        'use all memory of the machine',
    ]);
    expect((await other.call('readyz')).text).not.toMatch(/10\.1\.2\.|\bd[12]\b/);
  });
  test('an agent that does not send them, and a builder, get no note', async () => {
    await register(other, { hostname: 'older', role: 'deploy' });
    await register(other, {
      hostname: 'contract',
      role: 'deploy',
      agent_version: undefined,
      boot_id: undefined,
    });
    await register(other, { ...UNSET, hostname: 'b1', role: 'builder' });
    expect(await notes()).toEqual([]);
  });
  test('nodes are counted', async () => {
    for (let n = 1; n <= 5; n++) await register(other, { ...UNSET, hostname: `d${n}` });
    expect((await notes())[0]).toContain('is not set on 5 nodes: ');
    for (let n = 6; n <= 7; n++) await register(other, { ...UNSET, hostname: `d${n}` });
    expect((await notes())[0]).toContain('is not set on 7 nodes: ');
  });
  test('the note ends when the node has the setting, and when it is offline', async () => {
    const set = { ...UNSET, publish_ip: '127.0.0.1', default_memory: 1e9 };
    await register(other, { ...UNSET, hostname: 'd1' });
    await register(other, { ...set, hostname: 'd1' });
    expect(await notes()).toEqual([]);
    await register(other, { ...UNSET, hostname: 'd2' });
    expect(await notes()).toHaveLength(2);
    other.pass(121_000);
    expect(await notes()).toEqual([]);
  });
  test('a wrong value is refused with the name of the field', async () => {
    for (const wrong of [
      { publish_ip: 7 },
      { default_memory: '1g' },
      { default_memory: -1 },
      { publish_ip: 'x'.repeat(300) },
    ]) {
      const reply = await other.call('agentRegister', { body: { ...NODE, ...wrong } });
      expect([reply.status, reply.text]).toEqual([
        422,
        expect.stringContaining(Object.keys(wrong)[0] ?? ''),
      ]);
    }
  });
});

describe('nodes whose container engine does not answer, in readyz', () => {
  let other: Api;
  beforeEach(async () => void (other = await createApi()));
  afterEach(() => other.close());
  const dead = { engine: { ok: false, version: null, error: 'dial unix /run/docker.sock' } };
  const works = { engine: { ok: true, version: '28.0', error: null } };
  const notes = async (): Promise<string[]> =>
    ((await other.call('readyz')).json['notes'] as string[]).filter((note) =>
      note.includes('engine'),
    );

  test('if all nodes of a role are affected, the note says what waits', async () => {
    await register(other, { ...dead, hostname: 'b1', role: 'builder' });
    await register(other, { ...dead, hostname: 'b2', role: 'builder' });
    await register(other, { ...works, hostname: 'd1', role: 'deploy' });
    expect(await notes()).toEqual([
      'the container engine answers on no builder node (2 nodes): builds wait',
    ]);
    expect((await other.call('readyz')).text).not.toContain('docker.sock');
  });
  test('if only some nodes are affected, the note counts them', async () => {
    await register(other, { ...dead, hostname: 'd1', role: 'deploy' });
    await register(other, { ...works, hostname: 'd2', role: 'deploy' });
    await register(other, {
      hostname: 'contract',
      role: 'deploy',
      agent_version: undefined,
      boot_id: undefined,
    });
    expect(await notes()).toEqual([
      'the container engine does not answer on 1 of 3 deploy nodes, which get no tasks: berth ' +
        'status names them',
    ]);
  });
  test('the note ends when the engine answers, and when the node is offline', async () => {
    await register(other, { ...dead, hostname: 'd1', role: 'deploy' });
    await register(other, { ...works, hostname: 'd1', role: 'deploy' });
    expect(await notes()).toEqual([]);
    await register(other, { ...dead, hostname: 'd1', role: 'deploy' });
    expect(await notes()).toEqual([
      'the container engine answers on no deploy node (1 node): deployments wait',
    ]);
    other.pass(121_000);
    expect(await notes()).toEqual([]);
  });
});

test('metrics count by route and not by path', async () => {
  await api.call('getProject', { params: { id: 'x1' } });
  await api.call('getProject', { params: { id: 'x2' } });
  await api.server.inject({ url: '/random/path' });
  const { text, headers } = await api.call('metrics');
  expect(headers['content-type']).toMatch(/^text\/plain/);
  expect(text).toContain(
    'berth_http_request_duration_seconds_count{route="getProject",method="GET",status="404"} 2',
  );
  expect(text).toContain(
    'berth_http_request_duration_seconds_count{route="none",method="GET",status="404"} 1',
  );
  expect(text).toContain('berth_deployments{status="pending"} 0');
  expect(text).not.toContain('/random/path');
});

describe('OpenAPI', () => {
  test('is shown at /docs, and the page loads everything from its own origin', async () => {
    const page = await api.server.inject({ url: '/docs/' });
    expect(page.statusCode).toBe(200);
    expect(page.body).not.toMatch(/(src|href)="(https?:)?\/\//);
    expect(page.headers['content-security-policy']).toContain("default-src 'self'");
  });
});

test('a control plane at https sends Strict-Transport-Security; one at http does not', async () => {
  const secure = await createApi({ env: { PUBLIC_URL: 'https://berth.localhost' } });
  for (const url of ['/healthz', '/api/nothing', '/docs/']) {
    expect((await secure.server.inject({ url })).headers['strict-transport-security'], url).toBe(
      'max-age=31536000',
    );
    expect((await api.server.inject({ url })).headers, url).not.toHaveProperty(
      'strict-transport-security',
    );
  }
  await secure.close();
});

test('a setting with a short secret is named, and the secret is not shown', async () => {
  const long = 'x'.repeat(32);
  const notes = async (env: Record<string, string>): Promise<string> => {
    const other = await createApi({ env: { AGENT_SECRET: long, GATEWAY_SECRET: long, ...env } });
    const { text } = await other.call('readyz');
    await other.close();
    return text;
  };
  expect(await notes({})).not.toContain('shorter');
  for (const name of ['AGENT_SECRET', 'GATEWAY_SECRET', 'JWT_SECRET']) {
    const text = await notes({
      [name]: name === 'JWT_SECRET' ? `hunter2, ${JWT_SECRET}` : `${long}, hunter2`,
    });
    expect(text).toContain(`${name} has a secret of fewer than 32 characters`);
    expect(text).not.toContain('hunter2');
  }
});

test('HEAD equals GET without a body', async () => {
  const reply = await api.server.inject({ method: 'HEAD', url: '/healthz' });
  expect([reply.statusCode, reply.body]).toEqual([200, '']);
});

describe('settings', () => {
  const problems = (env: Record<string, string>): readonly string[] => {
    try {
      readConfig(env);
      return [];
    } catch (error) {
      if (error instanceof SettingsError) return error.problems.map((p) => p.split(':', 1)[0] ?? p);
      throw error;
    }
  };
  test('have defaults that depend on other settings', () => {
    expect(readConfig({ BASE_DOMAIN: 'Example.com' })).toMatchObject({
      LISTEN: { host: '127.0.0.1', port: 8080 },
      DATABASE_URL: 'sqlite:data/berth.db',
      BASE_DOMAIN: 'example.com',
      PUBLIC_URL: 'https://example.com',
      CONTROL_PLANE_URL: 'http://127.0.0.1:8080',
      ACME_RESOLVER: 'letsencrypt',
      OFFLINE_AFTER: 120_000,
      LEASE_TTL: 30_000,
    });
    expect(readConfig({ BASE_DOMAIN: 'a.b', LISTEN: '0.0.0.0:9000' }).CONTROL_PLANE_URL).toBe(
      'http://127.0.0.1:9000',
    );
    expect(readConfig({ BASE_DOMAIN: 'a.b', LISTEN: '[::1]:9000' }).CONTROL_PLANE_URL).toBe(
      'http://[::1]:9000',
    );
    expect(readConfig({ BASE_DOMAIN: 'a.b', AGENT_SECRET: 'new, old' }).AGENT_SECRET).toEqual([
      'new',
      'old',
    ]);
  });
  test('are all named at once if they are wrong', () => {
    const wrong = {
      LISTEN: 'nowhere',
      DATABASE_URL: 'mysql://x',
      BASE_DOMAIN: 'https://x',
      PUBLIC_URL: 'x',
      AGENT_SECRET: ',',
      ADMIN_EMAILS: 'me',
      DEFAULT_ROLE: 'king',
      REGISTRY_ADDR: 'http://r',
      AUTH_SERVICE_URL: 'ftp://x',
      PROXY_PROBE_URLS: 'a,b',
      LEASE_TTL: '30',
      OFFLINE_AFTER: '0s',
      LOG_LEVEL: 'loud',
    };
    expect([...problems(wrong)].sort()).toEqual(Object.keys(wrong).sort());
    expect(problems({})).toEqual(['BASE_DOMAIN']);
    expect(problems({ BASE_DOMAIN: 'a.b', JWT_SECRET_FILE: '/nonexistent' })).toEqual([
      'JWT_SECRET_FILE',
    ]);
  });
});

test.each([
  [true, 418],
  [false, 404],
])('/readyz warns of a proxy that hands on odd header names: %s', async (warned, answer) => {
  const asked: string[] = [];
  const proxy = createServer((request, response) => {
    const alias = request.url?.endsWith('/alias') === true;
    asked.push(alias ? `alias ${String(request.headers['x!berth!alias'])}` : 'marker');
    response.writeHead(alias ? answer : 418).end();
  });
  await new Promise<void>((listening) => proxy.listen(0, '127.0.0.1', listening));
  const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  const own = await createApi({ env: { PROXY_PROBE_URLS: url }, overrides: { loops: true } });
  await own.listen();
  await expect.poll(() => asked.includes('alias 1'), { timeout: 5_000 }).toBe(true);
  const notes = async (): Promise<string[]> =>
    ((await own.call('readyz')).json['notes'] as string[]).filter((note) =>
      note.includes('X!Forwarded!User'),
    );
  if (warned) await expect.poll(notes, { timeout: 5_000 }).toHaveLength(1);
  else expect(await notes()).toEqual([]);
  expect((await notes()).join()).not.toContain('127.0.0.1');
  await own.close();
  proxy.close();
});
