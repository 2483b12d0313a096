/**
 * A complete Berth of real processes (bin/berth …) and real parts. The demo, the end-to-end tests
 * and the benchmarks start it. Each process can be killed and started again with the same settings
 * and addresses.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { join } from 'node:path';
import { defined } from '@berth/kit/defined';
import { type Client, createClient } from '@berth/wire/client';
import type { Deployment } from '@berth/wire/deployment';
import type { Project, ProjectCreate } from '@berth/wire/project';
import { isSettled } from '@berth/wire/vocabulary';
import { startAgentTap } from './agent-tap.ts';
import { findTraefik, programsRoot, toolsDir } from './config.ts';
import type { Engine } from './engine-handle.ts';
import { writeFileConfig } from './file-provider.ts';
import type { History } from './history.ts';
import { freePort } from './ports.ts';
import { startInside } from './process-tree.ts';
import { type RunningProcess, startProcess, untilReady } from './process.ts';
import type { Registry } from './registry.ts';
import { startTraefik, type Traefik } from './traefik.ts';
import { waitFor } from './wait.ts';

export type ProxyKind = 'built-in' | 'traefik' | 'traefik-plain';

export type PlatformOptions = {
  /** Folder for the databases, state and logs of this run. */
  dir: string;
  registry: Pick<Registry, 'address' | 'user' | 'password'>;
  /**
   * `traefik` holds its requests for configuration; `traefik-plain` polls every 5 s, as the
   * contract allows.
   */
  proxy: ProxyKind;
  /** Starts the relay between Traefik and the control plane. */
  relay?: boolean;
  /** Address on which the control plane listens; all agents must reach it (default 127.0.0.1). */
  address?: string;
  /**
   * Agents to start, each with its engine. `enter` runs an agent on another host (hosts.ts), which
   * must be the engine's host.
   */
  agents: {
    name: string;
    role: 'builder' | 'deploy';
    engine: Engine;
    env?: Record<string, string>;
    enter?: readonly string[];
  }[];
  /**
   * Starts the gateway. `env` returns the settings of its identity providers; they send browsers
   * back to `${publicUrl}/_oauth/callback/{provider}`.
   */
  gateway?: {
    env: (publicUrl: string) => Record<string, string> | Promise<Record<string, string>>;
    /** Starts two gateways, with Traefik in front of them. */
    two?: boolean;
  };
  /** Root folder of another version of Berth, whose programs the processes run (release.ts). */
  release?: string;
  /** Further admins, besides the first one, who has the local account. */
  adminEmails?: string[];
  baseDomain?: string;
  /** Port of the built-in proxy (default: a free one). */
  proxyPort?: number;
  /** Further settings of the control plane. */
  env?: Record<string, string>;
  /**
   * Folder like /etc/berth: the secrets of control plane and gateway are in files there, and
   * `berth rotate --etc` finds them.
   */
  etc?: string;
  /** Records the agents' requests and answers. */
  history?: History;
};

/** A process of Berth that a test can stop and start again. */
export type Service = {
  readonly name: string;
  /** File with the log of all its starts. */
  readonly logFile: string;
  /** Address of its /readyz, without a proxy in between. */
  readonly readyUrl: string;
  readonly process: () => RunningProcess;
  /** Sends SIGKILL and waits for its end. */
  crash(): Promise<void>;
  /** Sends SIGTERM, waits for its end and returns the exit code. */
  stop(): Promise<number | null>;
  /** Starts it. `extraEnv` applies to this start only. */
  start(extraEnv?: Record<string, string>): Promise<void>;
  /** Later starts run the programs in this root folder. */
  use(root: string): void;
};

export type Answer = {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  body: string;
};

export type Platform = {
  controlPlane: Service;
  agents: Record<string, Service>;
  /** Set when the option `gateway` is given. */
  gateway: Service | undefined;
  /** Every gateway. */
  gateways: Service[];
  relay: Service | undefined;
  /** The built-in proxy; undefined with Traefik. */
  proxy: Service | undefined;
  traefik: Traefik | undefined;
  url: string;
  /** Address of the auth host, through the proxy. */
  publicUrl: string;
  baseDomain: string;
  agentSecret: string;
  /** Secrets that must appear in no output of this run, by name. */
  secrets: Readonly<Record<string, string>>;
  admin: { email: string; password: string };
  /** API client of the first admin. */
  api: Client;
  /** Returns the address of a project, as a browser on this machine would open it. */
  address(prefix: string): string;
  /**
   * Requests a project through the proxy, like a client from outside. Throws when no answer comes.
   */
  get(prefix: string, path?: string, options?: { timeoutMs?: number }): Promise<Answer>;
  /** Host, port and protocol of the proxy, for clients that set the Host header themselves. */
  entry: { host: string; port: number; secure: boolean };
  createProject(input: ProjectCreate): Promise<Project>;
  deploy(project: { id: string }, body?: { commit?: string; note?: string }): Promise<Deployment>;
  /** Waits until the deployment is settled and returns it. */
  settled(deployment: { id: string }, deadlineMs?: number): Promise<Deployment>;
  logs(deployment: { id: string }): Promise<string[]>;
  stop(): Promise<void>;
};

/** Addresses, ports and secrets of one run, and the services that have started. */
type Run = {
  options: PlatformOptions;
  dir: string;
  baseDomain: string;
  secrets: Record<'agent' | 'admin' | 'gateway' | 'session' | 'jwt', string>;
  admin: { email: string; password: string };
  adminEmails: string;
  /** Address on which the control plane listens. */
  address: string;
  port: number;
  url: string;
  configUrl: string;
  /** undefined: the built-in proxy serves. */
  traefikPorts: { web: number; websecure: number; api: number } | undefined;
  proxyPort: number;
  entry: Platform['entry'];
  publicUrl: string;
  gatewayUrls: readonly [string, string];
  /** Port of Traefik in front of two gateways. */
  gatewaysPort: number | undefined;
  /** Variables of the files in deploy/traefik/dynamic. */
  files: { BASE_DOMAIN: string; AUTH_SERVICE_URL: string; CONTROL_PLANE_URL: string };
  /** Stops what has started, the first part first. */
  stops: (() => Promise<unknown>)[];
};

export async function startPlatform(options: PlatformOptions): Promise<Platform> {
  await mkdir(join(options.dir, 'logs'), { recursive: true, mode: 0o700 });
  const run = await newRun(options);
  try {
    const controlPlane = await startControlPlane(run);
    const [gateways, proxy, { relay, traefik }, agents] = await together([
      startGateways(run),
      startBuiltInProxy(run),
      startRelay(run).then(async (started) => ({
        relay: started,
        traefik: await startTraefikFor(run, started?.url),
      })),
      startAgents(run),
    ]);
    const api = await signedIn(run);
    const { url, publicUrl, baseDomain, secrets, admin, entry } = run;
    return {
      controlPlane,
      agents,
      gateway: gateways[0],
      gateways,
      relay: relay?.service,
      proxy,
      traefik,
      url,
      publicUrl,
      baseDomain,
      agentSecret: secrets.agent,
      secrets,
      admin,
      api,
      entry,
      address: (prefix) =>
        `${entry.secure ? 'https' : 'http'}://${prefix}.${baseDomain}:${entry.port}`,
      get: (prefix, path = '/', { timeoutMs = 5_000 } = {}) =>
        ask(entry, `${prefix}.${baseDomain}`, path, timeoutMs),
      createProject: (body) => api.call('createProject', { body }),
      deploy: (project, body = {}) =>
        api.call('createDeployment', { params: { id: project.id }, body }),
      settled: (deployment, deadlineMs) => settled(api, deployment, deadlineMs),
      logs: (deployment) => linesOf(api, deployment),
      stop: () => stopAll(run),
    };
  } catch (error) {
    await stopAll(run);
    throw error;
  }
}

/** Waits until all have ended, also when one fails: each part that started has its entry in `stops`. */
async function together<T extends readonly unknown[]>(
  starts: {
    [K in keyof T]: Promise<T[K]>;
  },
): Promise<T> {
  await Promise.allSettled(starts);
  return Promise.all(starts) as Promise<unknown> as Promise<T>;
}

async function stopAll({ stops }: Run): Promise<void> {
  const failures: unknown[] = [];
  // One part that does not stop must not leave the others running.
  for (const end of stops.splice(0).toReversed())
    await end().catch((error: unknown) => failures.push(error));
  if (failures.length > 0) throw new AggregateError(failures, 'the platform did not stop cleanly');
}

async function newRun(options: PlatformOptions): Promise<Run> {
  const { dir, baseDomain = 'berth.localhost', address = '127.0.0.1' } = options;
  const secrets = {
    agent: randomBytes(32).toString('hex'),
    admin: randomBytes(12).toString('base64url'),
    gateway: randomBytes(32).toString('hex'),
    session: randomBytes(32).toString('hex'),
    jwt: randomBytes(32).toString('hex'),
  };
  const admin = { email: 'admin@berth.localhost', password: secrets.admin };
  const port = await freePort(address);
  const url = `http://${address}:${port}`;
  const traefikPorts =
    options.proxy === 'built-in'
      ? undefined
      : { web: await freePort(), websecure: await freePort(), api: await freePort() };
  const proxyPort = options.proxyPort ?? (await freePort());
  const entry =
    traefikPorts === undefined
      ? { host: '127.0.0.1', port: proxyPort, secure: false }
      : { host: '127.0.0.1', port: traefikPorts.websecure, secure: true };
  const gatewayUrls = [
    `http://127.0.0.1:${await freePort()}`,
    `http://127.0.0.1:${await freePort()}`,
  ] as const;
  const gatewaysPort = options.gateway?.two === true ? await freePort() : undefined;
  const gatewayUrl =
    gatewaysPort === undefined ? gatewayUrls[0] : `http://127.0.0.1:${gatewaysPort}`;
  return {
    options,
    dir,
    baseDomain,
    secrets,
    admin,
    adminEmails: [admin.email, ...(options.adminEmails ?? [])].join(','),
    address,
    port,
    url,
    configUrl: `${url}/api/traefik/config`,
    traefikPorts,
    proxyPort,
    entry,
    publicUrl: `${entry.secure ? 'https' : 'http'}://${baseDomain}:${entry.port}`,
    gatewayUrls,
    gatewaysPort,
    files: { BASE_DOMAIN: baseDomain, AUTH_SERVICE_URL: gatewayUrl, CONTROL_PLANE_URL: url },
    stops: [],
  };
}

/** Starts a process of Berth and stops it with the run. */
async function begin(
  { options, dir, stops }: Run,
  name: string,
  readyUrl: string,
  settings: Record<string, string>,
  { command = name, enter }: { command?: string; enter?: readonly string[] | undefined } = {},
): Promise<Service> {
  const started = service(name, dir, readyUrl, [command], settings, enter);
  if (options.release !== undefined) started.use(options.release);
  await started.start();
  stops.push(() => started.stop());
  return started;
}

/** Returns settings with secrets; with the option `etc`, the secrets are in files. */
async function secretSettings(
  { options: { etc } }: Run,
  process: string,
  values: Record<string, string>,
): Promise<Record<string, string>> {
  return etc === undefined ? values : asFiles(etc, process, values);
}

async function startControlPlane(run: Run): Promise<Service> {
  const { options, dir, secrets, traefikPorts, url, files } = run;
  const databaseUrl = `sqlite:${join(dir, 'berth.db')}`;
  const withGateway: Record<string, string> =
    options.gateway === undefined
      ? {}
      : {
          AUTH_SERVICE_URL: files.AUTH_SERVICE_URL,
          ...(await secretSettings(run, 'control-plane', {
            GATEWAY_SECRET: secrets.gateway,
            JWT_SECRET: secrets.jwt,
          })),
        };
  const settings = {
    LISTEN: `${run.address}:${run.port}`,
    DATABASE_URL: databaseUrl,
    BASE_DOMAIN: run.baseDomain,
    PUBLIC_URL: run.publicUrl,
    ...(await secretSettings(run, 'control-plane', { AGENT_SECRET: secrets.agent })),
    ADMIN_EMAILS: run.adminEmails,
    ADMIN_PASSWORD: run.admin.password,
    REGISTRY_ADDR: options.registry.address,
    REGISTRY_USER: options.registry.user ?? '',
    REGISTRY_PASSWORD: options.registry.password ?? '',
    PROXY_PROBE_URLS:
      traefikPorts === undefined
        ? `http://127.0.0.1:${run.proxyPort}`
        : `http://127.0.0.1:${traefikPorts.web},https://127.0.0.1:${traefikPorts.websecure}`,
    ...withGateway,
    ...options.env,
  };
  if (options.etc !== undefined)
    await writeFile(join(options.etc, 'control-plane.env'), `DATABASE_URL=${databaseUrl}\n`);
  return begin(run, 'control-plane', `${url}/readyz`, settings);
}

async function startGateways(run: Run): Promise<Service[]> {
  const { options, dir, secrets, url } = run;
  if (options.gateway === undefined) return [];
  const ofProviders = await options.gateway.env(run.publicUrl);
  const gateways: Service[] = [];
  const urls = run.gatewayUrls.slice(0, run.gatewaysPort === undefined ? 1 : 2);
  for (const [i, gatewayUrl] of urls.entries()) {
    const name = i === 0 ? 'gateway' : 'gateway-2';
    const settings = {
      LISTEN: gatewayUrl.replace('http://', ''),
      CONTROL_PLANE_URL: url,
      ...(await secretSettings(run, name, {
        GATEWAY_SECRET: secrets.gateway,
        SESSION_SECRET: secrets.session,
      })),
      BASE_DOMAIN: run.baseDomain,
      PUBLIC_URL: run.publicUrl,
      ADMIN_EMAILS: run.adminEmails,
      STATE_DIR: join(dir, name),
      ...ofProviders,
    };
    gateways.push(await begin(run, name, `${gatewayUrl}/readyz`, settings, { command: 'gateway' }));
  }
  return gateways;
}

async function startBuiltInProxy(run: Run): Promise<Service | undefined> {
  if (run.traefikPorts !== undefined) return undefined;
  const hasGateway = run.options.gateway !== undefined;
  const fileConfig = join(run.dir, 'proxy-files.json');
  if (hasGateway) await writeFileConfig(fileConfig, run.files);
  return begin(run, 'proxy', `http://127.0.0.1:${run.proxyPort}/readyz`, {
    LISTEN: `127.0.0.1:${run.proxyPort}`,
    CONFIG_URL: run.configUrl,
    ...defined({ FILE_CONFIG: hasGateway ? fileConfig : undefined }),
  });
}

async function startRelay(run: Run): Promise<{ service: Service; url: string } | undefined> {
  if (run.options.relay !== true) return undefined;
  const url = `http://127.0.0.1:${await freePort()}`;
  const relay = await begin(run, 'relay', `${url}/readyz`, {
    LISTEN: url.replace('http://', ''),
    CONTROL_PLANE_URL: run.url,
    STATE_DIR: join(run.dir, 'relay'),
  });
  return { service: relay, url };
}

async function startTraefikFor(
  run: Run,
  relayUrl: string | undefined,
): Promise<Traefik | undefined> {
  const { options, dir, traefikPorts, gatewaysPort, gatewayUrls } = run;
  if (traefikPorts === undefined) return undefined;
  const traefik = await startTraefik({
    dir: join(dir, 'traefik'),
    configUrl: relayUrl === undefined ? run.configUrl : `${relayUrl}/api/traefik/config`,
    held: options.proxy === 'traefik',
    ports: traefikPorts,
    ...defined({
      deploy: options.gateway === undefined ? undefined : run.files,
      gateways: gatewaysPort === undefined ? undefined : { port: gatewaysPort, urls: gatewayUrls },
      bin: findTraefik(),
    }),
  });
  run.stops.push(() => traefik.stop());
  return traefik;
}

async function startAgents(run: Run): Promise<Record<string, Service>> {
  const { options, url, address } = run;
  const tap =
    options.history === undefined ? undefined : await startAgentTap(url, options.history, address);
  if (tap !== undefined) run.stops.push(() => tap.stop());
  const agents: Record<string, Service> = {};
  await together(
    options.agents.map(async (agent, i) => {
      // The port of another host cannot be checked from here.
      const listen =
        agent.enter === undefined
          ? `127.0.0.1:${await freePort()}`
          : `${agent.engine.hostIp}:${7070 + i}`;
      const settings = agentSettings(run, agent, listen, tap?.url ?? url);
      agents[agent.name] = await begin(run, agent.name, `http://${listen}/readyz`, settings, {
        command: 'agent',
        enter: agent.enter,
      });
    }),
  );
  return agents;
}

function agentSettings(
  { dir, secrets }: Run,
  agent: PlatformOptions['agents'][number],
  listen: string,
  controlPlaneUrl: string,
): Record<string, string> {
  const state = join(dir, 'agents', agent.name);
  return {
    NODE_ROLE: agent.role,
    NODE_NAME: agent.name,
    AGENT_SECRET: secrets.agent,
    CONTROL_PLANE_URL: controlPlaneUrl,
    HOST_IP: agent.engine.hostIp,
    ...defined({ PUBLISH_IP: agent.engine.publishIp }),
    DOCKER_HOST: agent.engine.host,
    DOCKER_PLUGINS_DIR: join(toolsDir, 'docker-plugins'),
    STATE_DIR: state,
    SVC_ROOT: join(state, 'svc'),
    // With a fixed size, equal nodes have equal scores whatever else is written to this disk.
    MAX_STORAGE: '10000000000',
    LISTEN: listen,
    // Elsewhere than in its engine's own network, an agent would change this machine's firewall.
    ...defined({ FIREWALL: agent.enter === undefined ? 'off' : undefined }),
    ...agent.env,
  };
}

/** Returns a client of the first admin that signs in again while the run lasts. */
async function signedIn({ url, admin, stops }: Run): Promise<Client> {
  let token = '';
  const anonymous = createClient({ baseUrl: url });
  const signIn = async (): Promise<void> => {
    ({ token } = await anonymous.call('login', { body: admin }));
  };
  await signIn();
  // A token is valid for 1 h; a soak takes longer. While the control plane is down, the next
  // renewal is soon enough.
  const renewing = setInterval(() => void signIn().catch(() => {}), 10 * 60_000);
  stops.push(async () => clearInterval(renewing));
  return createClient({ baseUrl: url, headers: () => ({ authorization: `Bearer ${token}` }) });
}

const settled = (api: Client, { id }: { id: string }, deadlineMs = 120_000): Promise<Deployment> =>
  waitFor(
    `deployment ${id} is settled`,
    async () => {
      const deployment = await api.call('getDeployment', { params: { id } });
      return isSettled(deployment.status) && deployment;
    },
    { deadlineMs, intervalMs: 50 },
  );

async function linesOf(api: Client, { id }: { id: string }): Promise<string[]> {
  const page = await api.call('deploymentLogs', { params: { id }, query: { limit: 5000 } });
  return page.lines.map((line) => line.text);
}

/** Writes one file for each secret, and returns the settings that name them. */
async function asFiles(
  etc: string,
  process: string,
  values: Record<string, string>,
): Promise<Record<string, string>> {
  const folder = join(etc, 'secrets', process);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const settings: Record<string, string> = {};
  for (const [name, value] of Object.entries(values)) {
    settings[`${name}_FILE`] = join(folder, name);
    await writeFile(join(folder, name), `${value}\n`, { mode: 0o600 });
  }
  return settings;
}

/** `enter`: a prefix that runs the service in other namespaces, including a pid namespace. */
export function service(
  name: string,
  dir: string,
  readyUrl: string,
  argv: string[],
  env: Record<string, string>,
  enter?: readonly string[],
): Service {
  const logFile = join(dir, 'logs', `${name}.log`);
  let running: RunningProcess | undefined;
  let root = programsRoot();
  const present = (): RunningProcess => {
    if (running === undefined) throw new Error(`${name} was never started`);
    return running;
  };
  return {
    name,
    logFile,
    readyUrl,
    process: present,
    use: (other) => void (root = other),
    async crash() {
      present().kill('SIGKILL');
      await present().exited;
    },
    async stop() {
      await present().stop(20_000);
      return present().exit()?.code ?? null;
    },
    async start(extraEnv = {}) {
      const program = [process.execPath, join(root, 'bin', 'berth'), ...argv] as const;
      const how = { name, logFile, env: { LOG_FORMAT: 'json', ...env, ...extraEnv } };
      running =
        enter === undefined
          ? await startProcess(program, how)
          : await startInside(enter, program, how);
      await untilReady(
        running,
        async () => (await fetch(readyUrl, { signal: AbortSignal.timeout(2_000) })).ok,
        60_000,
      );
    },
  };
}

/**
 * Connects to the proxy and sends the project's Host header, because Node.js does not resolve
 * `*.localhost` (docs/testbed.md).
 */
function ask(
  entry: Platform['entry'],
  host: string,
  path: string,
  timeoutMs: number,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const options = {
      host: entry.host,
      port: entry.port,
      path,
      headers: { host },
      timeout: timeoutMs,
      agent: false as const,
      ...defined({
        servername: entry.secure ? host : undefined,
        rejectUnauthorized: entry.secure ? false : undefined,
      }),
    };
    const request = (entry.secure ? httpsRequest : httpRequest)(options, (response) => {
      let body = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => (body += chunk));
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body }),
      );
      response.on('error', reject);
    });
    request.on('timeout', () =>
      request.destroy(new Error(`request to ${host}${path} timed out after ${timeoutMs} ms`)),
    );
    request.on('error', reject);
    request.end();
  });
}
