/**
 * An attacker opens thousands of connections: agents, the proxy and log streams keep working
 * (docs/operating.md "Open connections").
 */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, type Socket } from 'node:net';
import { startHandAgent } from '@berth/testbed/hand-agent';
import { type Platform, startPlatform } from '@berth/testbed/platform';
import { waitFor } from '@berth/testbed/wait';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const LIMIT = 2_000;
const ATTACKERS = 30;
const OF_EACH = 150;

describe('thousands of connections to the control plane and the gateway', () => {
  const stops: (() => Promise<unknown>)[] = [];
  const sockets: Socket[] = [];
  let dir = '';
  let berth: Platform;
  let application: Server;

  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), 'berth-connections-'));
    stops.push(() => rm(dir, { recursive: true, force: true }));
    application = createServer((_, response) => response.end('hello'));
    await new Promise<void>((resolve) => application.listen(0, '127.0.0.1', resolve));
    stops.push(async () => application.close());
    const limits = { MAX_CONNECTIONS: String(LIMIT), TRUSTED_PROXIES: '127.0.0.1' };
    berth = await startPlatform({
      dir,
      registry: { address: '127.0.0.1:5000', user: '', password: '' },
      proxy: 'built-in',
      agents: [],
      gateway: {
        env: () => ({
          ...limits,
          OIDC_ISSUER: 'http://127.0.0.1:9',
          OIDC_CLIENT_ID: 'x',
          OIDC_CLIENT_SECRET: 'x',
        }),
      },
      env: { ...limits, PROBE_TIMEOUT: '2s' },
    });
    stops.push(() => berth.stop());
    const agent = await startHandAgent({
      url: berth.url,
      secret: berth.agentSecret,
      ports: { shop: (application.address() as AddressInfo).port },
    });
    stops.push(() => agent.stop());
  }, 60_000);
  afterAll(async () => {
    for (const socket of sockets) socket.destroy();
    for (const stop of stops.splice(0).toReversed()) await stop();
  });

  /** A third sends nothing, a third half a request, and a third asks for the routes and waits. */
  async function attack(url: string): Promise<void> {
    const port = Number(new URL(url).port);
    for (let i = 0; i < ATTACKERS; i++) {
      const opened = Array.from({ length: OF_EACH }, () =>
        connect({ host: '127.0.0.1', port, localAddress: `127.0.1.${i + 1}` }),
      );
      for (const [n, socket] of opened.entries()) {
        socket.on('error', () => undefined).resume();
        if (n % 3 === 1) socket.write('GET / HTTP/1.1\r\nhost: a\r\nx-slow: ');
        if (n % 3 === 2)
          socket.write('GET /api/traefik/config?wait=60 HTTP/1.1\r\nhost: a\r\n\r\n'.repeat(2));
      }
      sockets.push(...opened);
      await Promise.all(
        opened.map(
          (socket) =>
            new Promise<void>((resolve) =>
              socket.once('connect', () => resolve()).once('close', () => resolve()),
            ),
        ),
      );
    }
  }
  const metric = async (url: string, name: string): Promise<number> => {
    const text = await (await fetch(`${url}/metrics`)).text();
    const lines = text
      .split('\n')
      .filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `));
    return lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
  };

  it(`${ATTACKERS * OF_EACH} connections of ${ATTACKERS} addresses: a deployment goes live meanwhile`, {
    timeout: 90_000,
  }, async () => {
    const project = await berth.createProject({
      name: 'shop',
      git_url: 'https://git.example.org/app.git',
      domain_prefix: 'shop',
    });
    await attack(berth.url);
    const open = await metric(berth.url, 'berth_http_connections');
    expect(open).toBeGreaterThan(LIMIT / 2);
    expect(open).toBeLessThanOrEqual(LIMIT);
    expect(await metric(berth.url, 'berth_http_connections_refused_total')).toBeGreaterThan(LIMIT);
    // The agents' held requests, the log stream, the proxy and the API.
    const deployment = await berth.deploy(project);
    expect((await berth.settled(deployment, 30_000)).status).toBe('running');
    expect(await berth.logs(deployment)).toEqual(expect.any(Array));
    await waitFor(
      'the proxy serves the new route',
      async () => (await berth.get('shop')).body === 'hello',
    );
    expect((await fetch(`${berth.url}/readyz`)).status).toBe(200);
    expect(await readFile(join(dir, 'logs/control-plane.log'), 'utf8')).toContain(
      'too many connections',
    );
  });

  it('when the attacker leaves, strangers get in again', async () => {
    for (const socket of sockets.splice(0)) socket.destroy();
    await waitFor(
      'connections are free',
      async () => (await metric(berth.url, 'berth_http_connections')) < 100,
    );
    const answer = await new Promise<string>((resolve, reject) => {
      const socket = connect({
        host: '127.0.0.1',
        port: Number(new URL(berth.url).port),
        localAddress: '127.0.1.1',
      });
      socket.on('error', reject).on('data', (bytes) => resolve(bytes.toString()));
      socket.write('GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n');
      sockets.push(socket);
    });
    expect(answer).toContain('200 OK');
  });

  it('the gateway answers the proxy meanwhile', { timeout: 60_000 }, async () => {
    const url = berth.gateway?.readyUrl.replace('/readyz', '') ?? '';
    await attack(url);
    expect(await metric(url, 'berth_http_connections')).toBeLessThanOrEqual(LIMIT);
    for (let i = 0; i < 20; i++)
      expect(
        (await fetch(`${url}/verify`, { redirect: 'manual', headers: { connection: 'close' } }))
          .status,
      ).toBeLessThan(500);
  });
});
