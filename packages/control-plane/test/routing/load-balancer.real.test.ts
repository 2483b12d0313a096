/**
 * The real Traefik, with instances on two machines of their own. A machine loses its power: no
 * packet reaches or leaves it.
 */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type RequestListener } from 'node:http';
import https from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { startSwitch, type Switch } from '@berth/testbed/cable';
import { findProgram, findTraefik } from '@berth/testbed/config';
import { type Namespace, startNamespace } from '@berth/testbed/namespace';
import { type ProbeReport, type Prober, startProber } from '@berth/testbed/prober';
import { type Argv, type RunningProcess, startProcess } from '@berth/testbed/process';
import { startTraefik, type Traefik } from '@berth/testbed/traefik';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import type { PublishedRoute } from '../../src/domain/routes/route-stores.ts';
import { markerAnswers } from '../../src/routing/confirm.ts';
import { dynamicConfig } from '../../src/routing/traefik.ts';

const missing =
  process.getuid?.() !== 0 || findTraefik() === undefined || findProgram('ip') === undefined
    ? ' (skipped: needs root, ip and Traefik)'
    : '';
const APP = join(import.meta.dirname, 'instance-app.ts');
const HOST = 'shop.berth.localhost';
const PORT = 8080;
const NEXT_PORT = 8081;
/**
 * Twice the time in ms after which Traefik closes an idle connection, also that of a health check.
 * A request on a connection that was open when the machine lost its power waits for an answer.
 */
const IDLE_MS = 100;
/** Lines for docs/proxy.md, in the output of the run. */
const measured = (what: string, figures: object): void =>
  console.log(`measured ${what}: ${JSON.stringify(figures)}`);

describe.skipIf(missing !== '')(`a dead instance behind Traefik${missing}`, () => {
  const stops: (() => Promise<unknown>)[] = [];
  let network: Switch;
  let machines: [Namespace, Namespace];
  let proxy: Traefik;
  let authUrl: string;
  let built = dynamicConfig([], {
    baseDomain: 'berth.localhost',
    authServiceUrl: null,
    acmeResolver: 'berth',
  });

  async function serve(listener: RequestListener): Promise<string> {
    const server = createServer(listener);
    await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
    stops.push(async () => {
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    });
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }
  const startApp = async (at: 0 | 1, port: number): Promise<RunningProcess> => {
    const machine = machines[at];
    const app = await startProcess(
      [
        ...machine.enter(),
        process.execPath,
        '--experimental-strip-types',
        '--no-warnings',
        APP,
        `m${at}-${port}`,
        String(port),
      ] as unknown as Argv,
      { name: `instance ${at}` },
    );
    const url = `http://${machine.hostIp}:${port}/name`;
    await waitFor('the instance answers', async () => (await fetch(url)).ok);
    return app;
  };

  beforeAll(async () => {
    const dir = await mkdtemp(join(tmpdir(), 'berth-instances-'));
    stops.push(() => rm(dir, { recursive: true, force: true }));
    network = await startSwitch({ preferredNetwork: 117 });
    stops.push(() => network.stop());
    const machine = async (): Promise<Namespace> => {
      const namespace = await startNamespace({
        log: () => undefined,
        logFile: join(dir, 'namespace.log'),
        preferredNetwork: 117,
        network,
      });
      stops.push(() => namespace.stop());
      return namespace;
    };
    machines = [await machine(), await machine()];
    for (const at of [0, 1] as const) {
      const app = await startApp(at, PORT);
      stops.push(() => app.stop());
    }
    authUrl = await serve((request, response) => {
      response.statusCode = request.headers.authorization === 'let me in' ? 200 : 401;
      response.setHeader('X-Forwarded-User', 'ann').end();
    });
    const configUrl = await serve((_request, response) =>
      response.setHeader('content-type', 'application/json').end(built.bytes),
    );
    const files = join(dir, 'files');
    await mkdir(files);
    await writeFile(
      join(files, 'redirect.yml'),
      JSON.stringify({
        http: { middlewares: { 'redirect-to-https': { redirectScheme: { scheme: 'https' } } } },
      }),
    );
    proxy = await startTraefik({ dir, configUrl, held: true, fileProviderDir: files });
    stops.push(() => proxy.stop());
  }, 60_000);
  afterAll(async () => {
    for (const stop of stops.splice(0).toReversed()) await stop();
  });
  afterEach(async () => {
    for (const machine of machines) await machine.connect(true);
    for (const at of [0, 1] as const)
      for (const path of ['/', '/healthz'])
        await waitFor('the instance is reached', () => setStatus(at, path, 200));
  });

  const setStatus = async (at: 0 | 1, path: string, status: number): Promise<boolean> => {
    const query = new URLSearchParams({ path, status: String(status) });
    const url = `http://${machines[at].hostIp}:${PORT}/set?${query.toString()}`;
    return (await fetch(url, { signal: AbortSignal.timeout(1_000) })).ok;
  };
  /** Serves the project with an instance on each machine. */
  async function use(over: Partial<PublishedRoute> = {}, port = PORT): Promise<void> {
    const [first, second] = machines;
    const route: PublishedRoute = {
      project_id: 'p1',
      project_name: 'shop',
      deployment_id: 'd1',
      node_id: 'n1',
      domain_prefix: 'shop',
      host_ip: first.hostIp,
      host_port: port,
      published_at: 1,
      auth_required: false,
      servers: [{ instance_id: 'i2', node_id: 'n2', host_ip: second.hostIp, host_port: port }],
      ...over,
    };
    built = dynamicConfig([route], {
      baseDomain: 'berth.localhost',
      authServiceUrl: authUrl,
      acmeResolver: 'berth',
    });
    const urls = [proxy.web, proxy.websecure];
    await waitFor('the configuration is live', () => markerAnswers(urls, built.hash));
  }
  type Answer = { status: number; body: string; cookie: string | undefined; ms: number };
  async function ask(
    path: string,
    { method = 'GET', headers = {} }: { method?: string; headers?: Record<string, string> } = {},
  ): Promise<Answer> {
    const from = performance.now();
    const response = await new Promise<IncomingMessage>((resolve, reject) =>
      https
        .request(
          {
            host: '127.0.0.1',
            port: proxy.websecurePort,
            path,
            method,
            servername: HOST,
            rejectUnauthorized: false,
            agent: false,
            timeout: 10_000,
            headers: { host: HOST, ...headers },
          },
          resolve,
        )
        .on('timeout', () => reject(new Error('no answer in 10 s')))
        .on('error', reject)
        .end(),
    );
    let body = '';
    for await (const chunk of response.setEncoding('utf8')) body += String(chunk);
    return {
      status: response.statusCode ?? 0,
      body,
      cookie: response.headers['set-cookie']?.[0],
      ms: Math.round(performance.now() - from),
    };
  }
  /** Names of the instances that answer ten requests. */
  async function answering(headers: Record<string, string> = {}): Promise<string[]> {
    const answers: Answer[] = [];
    for (let i = 0; i < 10; i++) answers.push(await ask('/name', { headers }));
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    return [...new Set(answers.map(({ body }) => body))].sort();
  }
  const BOTH = [`m0-${PORT}`, `m1-${PORT}`];
  const load = (path = '/name'): Prober =>
    startProber({
      entry: { host: '127.0.0.1', port: proxy.websecurePort, secure: true },
      host: HOST,
      path,
      perSecond: 50,
      versionOf: () => 1,
    });
  /** Whether Traefik uses this machine for the checked service. */
  async function isUsed(at: 0 | 1): Promise<boolean> {
    const answer = await fetch(`${proxy.api}/api/http/services/shop@http`);
    const { serverStatus = {} } = (await answer.json()) as {
      serverStatus?: Record<string, string>;
    };
    return serverStatus[`http://${machines[at].hostIp}:${PORT}`] !== 'DOWN';
  }
  /** Cuts the power of the second machine and returns the seconds until it is out of use. */
  async function cut(): Promise<number> {
    const from = performance.now();
    await machines[1].connect(false);
    await waitFor('the machine is out of use', async () => !(await isUsed(1)), { intervalMs: 20 });
    return Math.round(performance.now() - from) / 1_000;
  }
  /** 1,000 GETs at 50 a second; the machine loses its power after the first 100. */
  async function thousandGets(during: () => Promise<unknown>): Promise<ProbeReport> {
    const prober = load();
    await pause(2_000);
    await during();
    await pause(18_000);
    return prober.stop();
  }

  describe('a machine loses its power at 50 GETs a second', { timeout: 60_000 }, () => {
    it('with a health path it is out of use within 3 s, and at most 1 % fail', async () => {
      await use({ health_path: '/healthz' });
      let seconds = Number.NaN;
      const report = await thousandGets(() => cut().then((s) => (seconds = s)));
      measured('health path', { seconds, ...report });
      expect(seconds).toBeLessThanOrEqual(3);
      expect(report.failed, report.failures.join('\n')).toBeLessThanOrEqual(10);
    });
    it('without a health path too, if `/` answers below 400', async () => {
      await use();
      let seconds = Number.NaN;
      const report = await thousandGets(() => cut().then((s) => (seconds = s)));
      measured('no health path', { seconds, ...report });
      expect(seconds).toBeLessThanOrEqual(3);
      expect(report.failed, report.failures.join('\n')).toBeLessThanOrEqual(10);
    });
    it('at most 1 % fail if `/` answers 404', async () => {
      for (const at of [0, 1] as const) await setStatus(at, '/', 404);
      await use();
      const report = await thousandGets(() => machines[1].connect(false));
      measured('404 at /', report);
      expect(report.failed, report.failures.join('\n')).toBeLessThanOrEqual(10);
    });
    it('it is used again when it is back', async () => {
      await use({ health_path: '/healthz' });
      await cut();
      expect(await answering()).toEqual([BOTH[0]]);
      await machines[1].connect(true);
      await waitFor('the machine is used', () => isUsed(1));
      expect(await answering()).toEqual(BOTH);
    });
  });

  describe('statuses', { timeout: 30_000 }, () => {
    it.each([404, 500])(
      '%i at `/` without a health path takes nothing out of use',
      async (status) => {
        for (const at of [0, 1] as const) await setStatus(at, '/', status);
        await use();
        for (const at of [0, 1] as const)
          await waitFor('the check has failed', async () => !(await isUsed(at)));
        const seen = new Set<string>();
        for (let i = 0; i < 4; i++) for (const one of await answering()) seen.add(one);
        expect([...seen].sort()).toEqual(BOTH);
      },
    );
    it('503 at the health path takes the instance out of use, 200 brings it back', async () => {
      await use({ health_path: '/healthz' });
      expect(await answering()).toEqual(BOTH);
      await setStatus(1, '/healthz', 503);
      await waitFor('it is out of use', async () => !(await isUsed(1)), { deadlineMs: 3_000 });
      expect(await answering()).toEqual([BOTH[0]]);
      await setStatus(1, '/healthz', 200);
      await waitFor('it is used', () => isUsed(1), { deadlineMs: 3_000 });
      expect(await answering()).toEqual(BOTH);
    });
  });

  describe('no server is left', { timeout: 30_000 }, () => {
    it('machines without power: soon a 504, and with a health path at once a 503', async () => {
      await use({ health_path: '/healthz' });
      for (const machine of machines) await machine.connect(false);
      await pause(IDLE_MS);
      const first = await ask('/name');
      measured('all silent, first answer', first);
      expect([502, 503, 504]).toContain(first.status);
      expect(first.ms).toBeLessThan(4_000);
      for (const at of [0, 1] as const)
        await waitFor('it is out of use', async () => !(await isUsed(at)));
      const second = await ask('/name');
      expect(second.status).toBe(503);
      expect(second.ms).toBeLessThan(500);
    });
    it('machines without power and no health path: an error within 4 s', async () => {
      await use();
      for (const machine of machines) await machine.connect(false);
      for (const at of [0, 1] as const)
        await waitFor('it is out of use', async () => !(await isUsed(at)));
      const answer = await ask('/name');
      measured('all silent, no health path', answer);
      expect([502, 504]).toContain(answer.status);
      expect(answer.ms).toBeLessThan(4_000);
    });
    it.each([null, '/healthz'])('refused connections: an error at once (%s)', async (path) => {
      await use({ health_path: path }, 9_999);
      const answer = await ask('/name');
      measured('all refuse', answer);
      expect([502, 503]).toContain(answer.status);
      expect(answer.ms).toBeLessThan(1_000);
    });
  });

  describe('requests that must not be repeated or cut', { timeout: 40_000 }, () => {
    it('a POST reaches one instance once, also while a machine loses its power', async () => {
      await use();
      const sent: { id: string; status: number }[] = [];
      const open: Promise<void>[] = [];
      const post = async (id: string): Promise<void> => {
        const { status } = await ask(`/order?id=${id}`, { method: 'POST' }).catch(() => ({
          status: 0,
        }));
        sent.push({ id, status });
      };
      for (let i = 0; i < 150; i++) {
        if (i === 25) void machines[1].connect(false);
        open.push(post(String(i)));
        await pause(20);
      }
      await Promise.all(open);
      await machines[1].connect(true);
      const received: string[] = [];
      for (const machine of machines) {
        const url = `http://${machine.hostIp}:${PORT}/orders`;
        const orders = await waitFor('the orders are read', async () => (await fetch(url)).json());
        received.push(...(orders as string[]));
      }
      expect(new Set(received).size).toBe(received.length);
      const failed = sent.filter(({ status }) => status !== 200);
      measured('POST', { sent: sent.length, failed: failed.length });
      expect(failed.length).toBeLessThanOrEqual(2);
    });
    it('streams, WebSockets and slow answers of the other machine go on', async () => {
      await use();
      let events = '';
      const stream = await new Promise<IncomingMessage>((resolve, reject) =>
        https
          .get(
            `${proxy.websecure}/events`,
            { headers: { host: HOST }, servername: HOST, rejectUnauthorized: false, agent: false },
            resolve,
          )
          .on('error', reject),
      );
      stream.setEncoding('utf8').on('data', (text: string) => (events += text));
      await waitFor('the stream has begun', () => events !== '');
      const there = events.includes('m0') ? 0 : 1;
      const name = `m${there}-${PORT}`;
      // Only a stream and a WebSocket at the machine that stays show something.
      const socket = await waitFor('a WebSocket leads to the same machine', async () => {
        const one = new WebSocket(`wss://127.0.0.1:${proxy.websecurePort}/ws`, {
          headers: { host: HOST },
          rejectUnauthorized: false,
        });
        one.on('error', () => undefined);
        await new Promise((open) => one.once('open', open));
        one.send('hello');
        const [said] = await new Promise<[Buffer]>((heard) =>
          one.once('message', (data: Buffer) => heard([data])),
        );
        if (said.toString() === `${name} hello`) return one;
        one.close();
        return undefined;
      });
      const slow = ask('/slow');
      const slow2 = ask('/slow');
      await machines[there === 0 ? 1 : 0].connect(false);
      await waitFor('it is out of use', async () => !(await isUsed(there === 0 ? 1 : 0)));
      const before = events.length;
      await waitFor('the stream goes on', () => events.length > before + 200);
      const echo = new Promise<string>((heard) =>
        socket.once('message', (data: Buffer) => heard(data.toString())),
      );
      socket.send('again');
      expect(await echo).toBe(`${name} again`);
      const answered = await Promise.any([slow, slow2]);
      expect(answered).toMatchObject({ status: 200, body: name });
      stream.destroy();
      socket.close();
      await Promise.allSettled([slow, slow2]);
    });
  });

  it('the login comes first, and its identity arrives', { timeout: 30_000 }, async () => {
    await use({ auth_required: true });
    expect((await ask('/user')).status).toBe(401);
    const headers = { authorization: 'let me in' };
    expect((await ask('/user', { headers })).body).toBe('ann');
    expect(await answering(headers)).toEqual(BOTH);
  });

  it('`sticky` keeps a visitor on one instance, until its machine dies', {
    timeout: 30_000,
  }, async () => {
    await use({ sticky: true });
    expect(await answering()).toEqual(BOTH);
    const first = await waitFor('the second machine answers', async () => {
      const answer = await ask('/name');
      return answer.body === BOTH[1] ? answer : undefined;
    });
    expect(first.cookie).toMatch(/^berth_instance=\w+; Path=\/; HttpOnly; Secure$/);
    const headers = { cookie: first.cookie?.split(';')[0] ?? '' };
    expect(await answering(headers)).toEqual([BOTH[1]]);
    await machines[1].connect(false);
    await pause(IDLE_MS);
    const moved = await ask('/name', { headers });
    measured('sticky', moved);
    expect(moved).toMatchObject({ status: 200, body: BOTH[0] });
  });

  it('a switch to new instances under load loses no request', { timeout: 40_000 }, async () => {
    await use();
    const prober = load();
    await pause(1_000);
    const next = [await startApp(0, NEXT_PORT), await startApp(1, NEXT_PORT)];
    await use({ deployment_id: 'd2' }, NEXT_PORT);
    await pause(1_000);
    // Scale to one and back.
    await use({ deployment_id: 'd2', servers: [] }, NEXT_PORT);
    await pause(500);
    await use({ deployment_id: 'd2' }, NEXT_PORT);
    await pause(500);
    await use();
    await pause(1_000);
    for (const app of next) await app.stop();
    await pause(1_000);
    const report = await prober.stop();
    measured('switch', report);
    expect(report.failures).toEqual([]);
  });
});
