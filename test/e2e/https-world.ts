/**
 * A Berth with https as operators have it: the real Traefik with the files of deploy/traefik, and
 * Pebble as the certificate authority. Nodes by hand report a server of the test as the container
 * of every project.
 */
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingHttpHeaders, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { PeerCertificate, TLSSocket } from 'node:tls';
import type { AcmeChallenge } from '@berth/operator/lib/traefik-config';
import { traefikConfig } from '@berth/operator/lib/traefik-config';
import { type AcmeFront, startAcmeFront } from '@berth/testbed/acme-front';
import { findTraefik, repositoryRoot } from '@berth/testbed/config';
import { copyFiles } from '@berth/testbed/file-provider';
import { startHandAgent } from '@berth/testbed/hand-agent';
import { startPebble, whyNoPebble } from '@berth/testbed/pebble';
import { type Service, service } from '@berth/testbed/platform';
import { freePort, freePorts } from '@berth/testbed/ports';
import { type RunningProcess, startProcess } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import { type Client, createClient } from '@berth/wire/client';
import type { Certificate } from '@berth/wire/certificate';

export const whyNoHttps = (): string | undefined =>
  findTraefik() === undefined ? 'no Traefik: set TRAEFIK_BIN' : whyNoPebble();

export const BASE_DOMAIN = 'berth.test';
export type Answer = {
  status: number;
  headers: IncomingHttpHeaders;
  body: string;
  certificate: PeerCertificate | null;
};
export type HttpsWorld = {
  readonly api: Client;
  readonly front: AcmeFront;
  /** Headers of the requests that reached a project. */
  readonly reached: IncomingHttpHeaders[];
  /**
   * Changes where a name leads, for the authority and for Berth. Every other name leads to this
   * machine.
   */
  pointTo(host: string, address: string): Promise<void>;
  controlPlane: Service;
  traefik(): RunningProcess;
  /** Starts Traefik with this challenge. `change` edits its static configuration. */
  startTraefik(challenge: AcmeChallenge, change?: (config: string) => string): Promise<void>;
  stopTraefik(): Promise<void>;
  /** Changes the mode of acme.json. */
  chmodStorage(mode: number): Promise<void>;
  /** Creates a project and deploys it. */
  publish(prefix: string, settings?: { auth_required?: boolean }): Promise<{ id: string }>;
  /**
   * Requests a host over https and trusts only the root of the authority. Rejects when the
   * certificate is not good.
   */
  get(
    host: string,
    options?: { path?: string; headers?: Record<string, string>; secure?: boolean },
  ): Promise<Answer>;
  certificateOf(project: { id: string }): Promise<Certificate | null>;
  notes(): Promise<string[]>;
  metric(name: string): Promise<number>;
  logOfBerth(): Promise<string>;
  stop(): Promise<void>;
};

/**
 * Traefik makes RSA keys of 4,096 bits by default. That takes seconds of CPU time for each
 * certificate, and no test asks for it.
 */
function withSmallKeys(config: string): string {
  const small = config.replace(
    /^ +(?=(?:tls|http)Challenge:)/m,
    (indent) => `${indent}keyType: EC256\n${indent}`,
  );
  if (small === config) throw new Error('the configuration of Traefik names no challenge');
  return small;
}

/** `validitySeconds`: lifetime of each certificate. `refuses`: hosts that the authority refuses. */
export async function startHttpsWorld(options: {
  validitySeconds: number;
  refuses?: readonly string[];
}): Promise<HttpsWorld> {
  const stops: (() => Promise<unknown>)[] = [];
  const stop = async (): Promise<void> => {
    for (const end of stops.splice(0).toReversed()) await end();
  };
  try {
    const dir = await mkdtemp(join(tmpdir(), 'berth-https-'));
    stops.push(() => rm(dir, { recursive: true, force: true }));
    const [web, websecure] = (await freePorts(2)) as [number, number];
    const pebble = await startPebble({ httpPort: web, tlsPort: websecure, ...options });
    stops.push(() => pebble.stop());
    const front = await startAcmeFront(pebble);
    stops.push(() => front.stop());
    const root = await pebble.rootPem();
    const rootFile = join(dir, 'root.pem');
    await writeFile(rootFile, root);

    const reached: IncomingHttpHeaders[] = [];
    /** Returns the port of a new server, whose answers name the project. */
    const startApplication = async (prefix: string): Promise<number> => {
      const application = createServer((req, res) => {
        reached.push(req.headers);
        res.setHeader('x-project', prefix).end(`project at ${req.headers.host}`);
      });
      await new Promise<void>((listening) => application.listen(0, '127.0.0.1', listening));
      stops.push(async () => {
        application.close();
        application.closeAllConnections();
      });
      return (application.address() as AddressInfo).port;
    };

    const url = `http://127.0.0.1:${await freePort()}`;
    const gatewayUrl = `http://127.0.0.1:${await freePort()}`;
    const [agentSecret, gatewaySecret, sessionSecret, password] = Array.from({ length: 4 }, () =>
      randomBytes(32).toString('hex'),
    ) as [string, string, string, string];
    await mkdir(join(dir, 'logs'));
    const controlPlane = service('control-plane', dir, `${url}/readyz`, ['control-plane'], {
      LISTEN: url.replace('http://', ''),
      DATABASE_URL: `sqlite:${join(dir, 'berth.db')}`,
      BASE_DOMAIN,
      AGENT_SECRET: agentSecret,
      GATEWAY_SECRET: gatewaySecret,
      ADMIN_EMAILS: `ada@${BASE_DOMAIN}`,
      ADMIN_PASSWORD: password,
      REGISTRY_ADDR: '127.0.0.1:5000',
      AUTH_SERVICE_URL: gatewayUrl,
      PROXY_PROBE_URLS: `http://127.0.0.1:${web},https://127.0.0.1:${websecure}`,
      CERTIFICATE_CHECK_INTERVAL: '1s',
      DNS_SERVERS: pebble.dnsAddress,
      NODE_EXTRA_CA_CERTS: rootFile,
    });
    await controlPlane.start();
    stops.push(() => controlPlane.stop());
    const gateway = service('gateway', dir, `${gatewayUrl}/readyz`, ['gateway'], {
      LISTEN: gatewayUrl.replace('http://', ''),
      CONTROL_PLANE_URL: url,
      GATEWAY_SECRET: gatewaySecret,
      SESSION_SECRET: sessionSecret,
      BASE_DOMAIN,
      STATE_DIR: join(dir, 'gateway'),
      // The gateway only needs a provider to start.
      OIDC_ISSUER: 'http://127.0.0.1:9',
      OIDC_CLIENT_ID: 'x',
      OIDC_CLIENT_SECRET: 'x',
    });
    await gateway.start();
    stops.push(() => gateway.stop());
    const ports: Record<string, number> = {};
    const agent = await startHandAgent({ url, secret: agentSecret, ports });
    stops.push(() => agent.stop());
    const body = { email: `ada@${BASE_DOMAIN}`, password };
    const signIn = () => createClient({ baseUrl: url }).call('login', { body });
    const { token } = await waitFor('the admin is signed in', signIn, { deadlineMs: 60_000 });
    const api = createClient({
      baseUrl: url,
      headers: () => ({ authorization: `Bearer ${token}` }),
    });

    const state = join(dir, 'proxy');
    const dynamicDir = join(dir, 'dynamic');
    await mkdir(state);
    await copyFiles(dynamicDir);
    // An entry point for metrics has a fixed port, and other tests may run at the same time.
    const shipped = (
      await readFile(join(repositoryRoot, 'deploy', 'traefik', 'traefik.yml'), 'utf8')
    ).replace('127.0.0.1:8084', `127.0.0.1:${await freePort()}`);
    let traefik: RunningProcess | undefined;
    const stopTraefik = async (): Promise<void> => traefik?.stop(2_000);
    stops.push(stopTraefik);

    const get: HttpsWorld['get'] = (host, { path = '/', headers = {}, secure = true } = {}) =>
      new Promise((resolve, reject) => {
        const to = {
          host: '127.0.0.1',
          path,
          headers: { host, ...headers },
          agent: false as const,
          timeout: 5_000,
        };
        const asking = secure
          ? httpsRequest({ ...to, port: websecure, servername: host, ca: root })
          : httpRequest({ ...to, port: web });
        asking.on('response', (response) => {
          const certificate = secure ? (response.socket as TLSSocket).getPeerCertificate() : null;
          let text = '';
          response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
          response.on('end', () =>
            resolve({
              status: response.statusCode ?? 0,
              headers: response.headers,
              body: text,
              certificate,
            }),
          );
          response.on('error', reject);
        });
        asking.on('timeout', () => asking.destroy(new Error(`no answer of ${host}`)));
        asking.on('error', reject).end();
      });

    return {
      api,
      front,
      reached,
      pointTo: pebble.pointTo,
      controlPlane,
      get,
      stopTraefik,
      stop,
      traefik() {
        if (traefik === undefined) throw new Error('Traefik does not run');
        return traefik;
      },
      async startTraefik(challenge, change = (config) => config) {
        const config = traefikConfig(shipped, {
          acmeEmail: `ops@${BASE_DOMAIN}`,
          acmeCaServer: front.directoryUrl,
          acmeChallenge: challenge,
          stateDir: state,
          routesFrom: url,
          dynamicDir,
          listen: { web: `127.0.0.1:${web}`, websecure: `127.0.0.1:${websecure}` },
        });
        await writeFile(join(dir, 'traefik.yml'), change(withSmallKeys(config)));
        traefik = await startProcess(
          [findTraefik() ?? '', `--configFile=${join(dir, 'traefik.yml')}`],
          {
            name: 'traefik',
            logFile: join(dir, 'traefik.log'),
            env: {
              BASE_DOMAIN,
              AUTH_SERVICE_URL: gatewayUrl,
              CONTROL_PLANE_URL: url,
              LEGO_CA_CERTIFICATES: pebble.caFile,
            },
          },
        );
        const ready = async (): Promise<boolean> =>
          (await get(BASE_DOMAIN, { secure: false })).status === 301;
        await waitFor('Traefik redirects', ready, { deadlineMs: 60_000 });
      },
      chmodStorage: (mode) => chmod(join(state, 'acme.json'), mode),
      async publish(prefix, settings = {}) {
        ports[prefix] ??= await startApplication(prefix);
        const project = await api.call('createProject', {
          body: {
            name: prefix,
            git_url: 'https://git.test/x.git',
            domain_prefix: prefix,
            drain_seconds: 0,
            ...settings,
          },
        });
        const deployment = await api.call('createDeployment', {
          params: { id: project.id },
          body: {},
        });
        await waitFor(
          `${prefix} is running`,
          async () =>
            (await api.call('getDeployment', { params: { id: deployment.id } })).status ===
            'running',
          { deadlineMs: 90_000 },
        );
        return project;
      },
      certificateOf: async ({ id }) =>
        (await api.call('getProject', { params: { id } })).certificate,
      async notes() {
        const { notes } = (await (await fetch(`${url}/readyz`)).json()) as { notes: string[] };
        return notes.filter((note) => note.includes('no good certificate'));
      },
      async metric(name) {
        const line = new RegExp(`^${name} (.*)$`, 'm').exec(
          await (await fetch(`${url}/metrics`)).text(),
        );
        return Number(line?.[1]);
      },
      logOfBerth: () => readFile(controlPlane.logFile, 'utf8'),
    };
  } catch (error) {
    await stop();
    throw error;
  }
}
