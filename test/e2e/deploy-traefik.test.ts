/**
 * The real Traefik with the files of deploy/traefik, between stand-ins for the gateway and the
 * control plane.
 */
import { mkdir, mkdtemp, readdir, readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, request as httpRequest, type Server } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findTraefik, repositoryRoot } from '@berth/testbed/config';
import { copyFiles } from '@berth/testbed/file-provider';
import { FORGED_HEADERS } from '@berth/testbed/forged-headers';
import { freePorts } from '@berth/testbed/ports';
import { type RunningProcess, startProcess } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';

const traefik = findTraefik();
const READ_TIMEOUT = 'readTimeout: 2h';
type Seen = { url: string; headers: IncomingMessage['headers'] };
type Answer = { status: number; headers: IncomingMessage['headers']; body: string };

describe.skipIf(traefik === undefined)(
  `deploy/traefik${traefik === undefined ? ' (skipped: no Traefik: set TRAEFIK_BIN)' : ''}`,
  () => {
    let dir: string;
    let running: RunningProcess;
    let impatient: RunningProcess;
    let shortPort: number;
    let ports: { web: number; websecure: number };
    /** Ports that only this machine reaches: metrics. */
    let inside: number[];
    const servers: Server[] = [];
    const toGateway: Seen[] = [];
    const toControlPlane: Seen[] = [];
    const toRegistry: Seen[] = [];
    /** The stand-in gateway's answer to /verify and /verify/admin. */
    let verdict: { status: number; headers: Record<string, string> } = { status: 401, headers: {} };

    const listen = async (
      answer: (req: IncomingMessage) => {
        status: number;
        headers?: Record<string, string>;
        body?: string;
      },
    ) => {
      const server = createServer((req, res) => {
        const { status, headers, body } = answer(req);
        // Answers after the whole request, like an application that accepts an upload.
        req.resume().on('end', () => res.writeHead(status, headers).end(body ?? ''));
      });
      servers.push(server);
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    };

    const ask = (
      host: string,
      path: string,
      headers: Record<string, string> = {},
      secure = true,
      port?: number,
    ): Promise<Answer> =>
      new Promise((resolve, reject) => {
        const options = {
          host: '127.0.0.1',
          path,
          headers: { host, ...headers },
          agent: false as const,
          timeout: 5_000,
        };
        const request = secure
          ? httpsRequest({
              ...options,
              port: port ?? ports.websecure,
              servername: host,
              rejectUnauthorized: false,
            })
          : httpRequest({ ...options, port: ports.web });
        request.on('response', (response) => {
          let body = '';
          response.setEncoding('utf8').on('data', (chunk: string) => (body += chunk));
          response.on('end', () =>
            resolve({ status: response.statusCode ?? 0, headers: response.headers, body }),
          );
        });
        request.on('timeout', () => request.destroy(new Error('no answer')));
        request.on('error', reject);
        request.end();
      });

    beforeAll(async () => {
      dir = await mkdtemp(join(tmpdir(), 'berth-deploy-'));
      const gateway = await listen((req) => {
        toGateway.push({ url: req.url ?? '', headers: req.headers });
        return req.url?.startsWith('/verify') === true ? verdict : { status: 200, body: 'gateway' };
      });
      const controlPlane = await listen((req) => {
        const routers = {
          m: {
            rule: 'Host(`berth.invalid`)',
            service: 'noop@internal',
            entryPoints: ['websecure'],
            tls: {},
          },
        };
        if (
          req.url?.startsWith('/api/traefik/config?') === true &&
          req.headers.host?.startsWith('127.') === true
        )
          return {
            status: 200,
            headers: { 'content-type': 'application/json' },
            body: JSON.stringify({ http: { routers } }),
          };
        toControlPlane.push({ url: req.url ?? '', headers: req.headers });
        return { status: 200, body: 'control plane' };
      });
      const registry = await listen((req) => {
        toRegistry.push({ url: req.url ?? '', headers: req.headers });
        return { status: 200, body: 'registry' };
      });
      const [web, websecure] = (await freePorts(2)) as [number, number];
      ports = { web, websecure };
      const files = join(dir, 'dynamic');
      await mkdir(files);
      await copyFiles(files);
      // Replaces only values of this machine: addresses, folders, and the certificate authority,
      // which tests must not contact.
      const shipped = await readFile(
        join(repositoryRoot, 'deploy', 'traefik', 'traefik.yml'),
        'utf8',
      );
      const METRICS = '127.0.0.1:8084';
      const [metrics, metrics2] = (await freePorts(2)) as [number, number];
      inside = shipped.includes(METRICS) ? [metrics] : [];
      const text = shipped.replace(METRICS, `127.0.0.1:${metrics}`);
      const replaced = [
        ['":80"', `"127.0.0.1:${web}"`],
        ['":443"', `"127.0.0.1:${websecure}"`],
        ['/var/lib/berth-proxy/acme.json', join(dir, 'acme.json')],
        ['https://acme-v02.api.letsencrypt.org/directory', 'https://127.0.0.1:9/directory'],
        ['http://10.0.0.1:8080', controlPlane],
        ['/etc/berth/traefik/dynamic', files],
      ].reduce((before, [from = '', to = '']) => {
        expect(before).toContain(from);
        return before.replace(from, to);
      }, text);
      await writeFile(join(dir, 'traefik.yml'), replaced);
      running = await startProcess([traefik ?? '', `--configFile=${join(dir, 'traefik.yml')}`], {
        name: 'traefik',
        logFile: join(dir, 'traefik.log'),
        env: {
          BASE_DOMAIN: 'berth.test',
          AUTH_SERVICE_URL: gateway,
          CONTROL_PLANE_URL: controlPlane,
          REGISTRY_URL: registry,
        },
      });
      // A second Traefik, which reads a request for at most 1 s and has no registry.
      const [web2, websecure2] = (await freePorts(2)) as [number, number];
      shortPort = websecure2;
      const short = replaced
        .replaceAll(READ_TIMEOUT, 'readTimeout: 1s')
        .replace(`:${web}"`, `:${web2}"`)
        .replace(`:${websecure}"`, `:${websecure2}"`)
        .replace(`127.0.0.1:${metrics}`, `127.0.0.1:${metrics2}`)
        .replace(join(dir, 'acme.json'), join(dir, 'acme2.json'));
      expect(short.match(/readTimeout: 1s/g)).toHaveLength(2);
      await writeFile(join(dir, 'short.yml'), short);
      impatient = await startProcess([traefik ?? '', `--configFile=${join(dir, 'short.yml')}`], {
        name: 'traefik with a short readTimeout',
        env: {
          BASE_DOMAIN: 'berth.test',
          AUTH_SERVICE_URL: gateway,
          CONTROL_PLANE_URL: controlPlane,
        },
      });
      await waitFor(
        'the auth host answers',
        async () => (await ask('berth.test', '/_oauth/userinfo')).status === 200,
      );
    });
    afterAll(async () => {
      await running?.stop();
      await impatient?.stop();
      for (const server of servers) {
        server.close();
        server.closeAllConnections();
      }
      await rm(dir, { recursive: true, force: true });
    });

    it('only the two entry points are open: no 8081, no 8080', async () => {
      expect(await listeningPorts(running.pid)).toEqual(
        [ports.web, ports.websecure, ...inside].toSorted((a, b) => a - b),
      );
    });

    it('the dashboard shows the gateway’s refusal, or its data to users whom the gateway accepts', async () => {
      for (const status of [401, 403, 503]) {
        verdict = { status, headers: { 'x-says': 'gateway' } };
        for (const path of ['/api/overview', '/dashboard/', '/'])
          expect(await ask('traefik.berth.test', path)).toMatchObject({
            status,
            headers: { 'x-says': 'gateway' },
          });
      }
      verdict = {
        status: 302,
        headers: { location: 'https://berth.test/_oauth/login', 'set-cookie': 'berth_nonce=x' },
      };
      expect(await ask('traefik.berth.test', '/dashboard/')).toMatchObject({
        status: 302,
        headers: { location: 'https://berth.test/_oauth/login', 'set-cookie': ['berth_nonce=x'] },
      });
      expect(toGateway.at(-1)).toMatchObject({
        url: '/verify/admin',
        headers: {
          'x-forwarded-host': 'traefik.berth.test',
          'x-forwarded-uri': '/dashboard/',
          'x-forwarded-proto': 'https',
        },
      });
      verdict = { status: 200, headers: { 'x-forwarded-user': 'ada@example.org' } };
      const overview = await ask('traefik.berth.test', '/api/overview');
      expect(overview.status).toBe(200);
      expect(JSON.parse(overview.body)).toHaveProperty('http.routers');
      // No other host serves any of it.
      expect((await ask('berth.test', '/dashboard/')).body).toBe('control plane');
      for (const host of ['app.berth.test', 'localhost', `127.0.0.1:${ports.websecure}`])
        expect((await ask(host, '/dashboard/')).status).toBe(404);
      const asControlPlane = toControlPlane.length;
      expect((await ask('berth.test', '/api/overview')).body).toBe('control plane');
      expect(toControlPlane).toHaveLength(asControlPlane + 1);
    });

    it('internal paths are unreachable from outside, in every spelling', async () => {
      const before = toControlPlane.length;
      const asked = toGateway.length;
      for (const path of ['internal/policy', 'agent/tasks?node_id=x', 'traefik/config'])
        for (const written of [
          `/api/${path}`,
          `/api//${path}`,
          `/api/./${path}`,
          `/api/x/../${path}`,
          `/api/%69nternal/../${path}`,
          `//api/${path}`,
        ])
          expect((await ask('berth.test', written)).status, written).not.toBe(200);
      for (const encoded of [
        '/api/%69nternal/policy',
        '/api/%61gent/tasks',
        '/api/in%74ernal/policy',
      ])
        expect((await ask('berth.test', encoded)).status, encoded).not.toBe(200);
      for (const path of [
        '/verify',
        '/verify/admin',
        '/_oauth/../verify',
        '/_oauth/%2e%2e/verify',
        '/healthz',
        '/metrics',
        '/readyz',
      ])
        expect((await ask('berth.test', path)).status, path).not.toBe(200);
      expect(toControlPlane.slice(before)).toEqual([]);
      expect(toGateway.slice(asked)).toEqual([]);
    });

    it('a forged identity reaches neither the API nor the gateway, in any spelling', async () => {
      const forged = Object.fromEntries(
        FORGED_HEADERS.map((name) => [name, 'mallory@example.org']),
      );
      await ask('berth.test', '/api/projects', {
        ...forged,
        authorization: 'Bearer theirs',
        'x-forwarded-for': '6.6.6.6',
      });
      expect(JSON.stringify(toControlPlane.at(-1))).not.toContain('mallory');
      // The API's own token passes.
      expect(toControlPlane.at(-1)).toMatchObject({
        headers: { authorization: 'Bearer theirs', 'x-forwarded-for': '127.0.0.1' },
      });
      await ask('berth.test', '/_oauth/userinfo', { ...forged, cookie: 'svc_fwd_session=s' });
      expect(JSON.stringify(toGateway.at(-1))).not.toContain('mallory');
      expect(toGateway.at(-1)).toMatchObject({ headers: { cookie: 'svc_fwd_session=s' } });

      verdict = {
        status: 200,
        headers: { 'x-forwarded-user': 'ada@example.org', 'x-forwarded-user-assertion': 'signed' },
      };
      await ask('berth.test', '/api/auth/exchange', {
        ...forged,
        authorization: 'Bearer berth_x',
        cookie: 'svc_fwd_session=s',
      });
      const { headers } = toControlPlane.at(-1) ?? { headers: {} };
      expect(JSON.stringify(headers)).not.toContain('mallory');
      expect(headers).toMatchObject({
        'x-forwarded-user': 'ada@example.org',
        'x-forwarded-user-assertion': 'signed',
      });
      expect(headers).not.toHaveProperty('authorization');
      expect(headers).not.toHaveProperty('cookie');

      verdict = { status: 401, headers: {} };
      const before = toControlPlane.length;
      expect((await ask('berth.test', '/api/auth/exchange', forged)).status).toBe(401);
      expect(toControlPlane).toHaveLength(before);
    });

    it('an upload may take as long as readTimeout, and both entry points have more than the default of 60 s', async () => {
      /** Sends a body for 3 s. Returns the status, or null when the connection was cut. */
      const upload = (port: number): Promise<number | null> =>
        new Promise((resolve) => {
          const request = httpsRequest({
            host: '127.0.0.1',
            port,
            servername: 'berth.test',
            rejectUnauthorized: false,
            method: 'POST',
            path: '/api/upload',
            headers: { host: 'berth.test' },
            agent: false,
          });
          request.on('response', (response) => resolve(response.resume().statusCode ?? 0));
          request.on('error', () => resolve(null));
          let sent = 0;
          const timer = setInterval(() => {
            request.write('x'.repeat(100));
            if (++sent < 30) return;
            clearInterval(timer);
            request.end();
          }, 100);
        });
      const [patient, cut] = await Promise.all([upload(ports.websecure), upload(shortPort)]);
      expect(patient).toBe(200);
      expect(cut).not.toBe(200);
      verdict = { status: 200, headers: { 'x-forwarded-user': 'ada@example.org' } };
      const points = JSON.parse((await ask('traefik.berth.test', '/api/entrypoints')).body) as {
        name: string;
        transport: { respondingTimeouts: { readTimeout: string } };
      }[];
      const open = points.filter(({ name }) => name !== 'metrics');
      expect(
        open.map(({ name, transport }) => [name, transport.respondingTimeouts.readTimeout]),
      ).toEqual([
        ['web', '2h0m0s'],
        ['websecure', '2h0m0s'],
      ]);
    });

    it('the registry has its own host where REGISTRY_URL is set, and no other', async () => {
      expect(
        (
          await ask('registry.berth.test', '/v2/', {
            authorization: 'Basic dTpw',
            'X-Forwarded-User': 'mallory',
          })
        ).body,
      ).toBe('registry');
      expect(toRegistry.at(-1)).toMatchObject({
        url: '/v2/',
        headers: { authorization: 'Basic dTpw', 'x-forwarded-proto': 'https' },
      });
      expect(toRegistry.at(-1)?.headers).not.toHaveProperty('x-forwarded-user');
      expect((await ask('registry.berth.test', '/v2/', {}, true, shortPort)).status).toBe(404);
      expect(running.tail() + impatient.tail()).not.toContain('registry.yml');
    });

    it('plain http is redirected', async () => {
      for (const host of ['berth.test', 'traefik.berth.test'])
        expect(await ask(host, '/_oauth/login?redirect=%2F', {}, false)).toMatchObject({
          status: 301,
          headers: { location: `https://${host}/_oauth/login?redirect=%2F` },
        });
    });
  },
);

/**
 * Returns the TCP ports on which a process listens, from /proc: its sockets by inode, in state
 * LISTEN (0A).
 */
async function listeningPorts(pid: number): Promise<number[]> {
  const fds = await readdir(`/proc/${pid}/fd`);
  const links = await Promise.all(
    fds.map((fd) => readlink(`/proc/${pid}/fd/${fd}`).catch(() => '')),
  );
  const inodes = new Set(links.flatMap((link) => /^socket:\[(\d+)\]$/.exec(link)?.[1] ?? []));
  const rows = (
    await Promise.all(['tcp', 'tcp6'].map((table) => readFile(`/proc/${pid}/net/${table}`, 'utf8')))
  )
    .join('\n')
    .split('\n');
  return rows
    .map((row) => row.trim().split(/\s+/))
    .filter((row) => row[3] === '0A' && inodes.has(row[9] ?? ''))
    .map((row) => Number.parseInt(row[1]?.split(':').at(-1) ?? '', 16))
    .toSorted((a, b) => a - b);
}
