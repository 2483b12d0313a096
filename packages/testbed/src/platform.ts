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
import { findTraefik, repositoryRoot, toolsDir } from './config.ts';
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

export async function startPlatform(options: PlatformOptions): Promise<Platform> {
  const { dir } = options;
  const baseDomain = options.baseDomain ?? 'berth.localhost';
  const secrets = {
    agent: randomBytes(32).toString('hex'),
    admin: randomBytes(12).toString('base64url'),
    gateway: randomBytes(32).toString('hex'),
    session: randomBytes(32).toString('hex'),
    jwt: randomBytes(32).toString('hex'),
  };
  const admin = { email: 'admin@berth.localhost', password: secrets.admin };
  const adminEmails = [admin.email, ...(options.adminEmails ?? [])].join(',');
  await mkdir(join(dir, 'logs'), { recursive: true, mode: 0o700 });

  const address = options.address ?? '127.0.0.1';
  const port = await freePort(address);
  const url = `http://${address}:${port}`;
  const configUrl = `${url}/api/traefik/config`;
  const stops: (() => Promise<unknown>)[] = [];
  const stop = async (): Promise<void> => {
    const failures: unknown[] = [];
    // One part that does not stop must not leave the others running.
    for (const end of stops.splice(0).toReversed())
      await end().catch((error: unknown) => failures.push(error));
    if (failures.length > 0)
      throw new AggregateError(failures, 'the platform did not stop cleanly');
  };

  try {
    const traefikPorts =
      options.proxy === 'built-in'
        ? undefined
        : { web: await freePort(), websecure: await freePort(), api: await freePort() };
    const proxyPort = options.proxyPort ?? (await freePort());
    const entry =
      traefikPorts === undefined
        ? { host: '127.0.0.1', port: proxyPort, secure: false }
        : { host: '127.0.0.1', port: traefikPorts.websecure, secure: true };
    const publicUrl = `${entry.secure ? 'https' : 'http'}://${baseDomain}:${entry.port}`;
    const urlsOfGateways = [
      `http://127.0.0.1:${await freePort()}`,
      `http://127.0.0.1:${await freePort()}`,
    ] as const;
    const gatewaysPort = options.gateway?.two === true ? await freePort() : undefined;
    const gatewayUrl =
      gatewaysPort === undefined ? urlsOfGateways[0] : `http://127.0.0.1:${gatewaysPort}`;
    const program: typeof service = (...parts) => {
      const made = service(...parts);
      if (options.release !== undefined) made.use(options.release);
      return made;
    };
    const inFile = (
      process: string,
      values: Record<string, string>,
    ): Promise<Record<string, string>> =>
      options.etc === undefined ? Promise.resolve(values) : asFiles(options.etc, process, values);
    const withGateway: Record<string, string> =
      options.gateway === undefined
        ? {}
        : {
            AUTH_SERVICE_URL: gatewayUrl,
            ...(await inFile('control-plane', {
              GATEWAY_SECRET: secrets.gateway,
              JWT_SECRET: secrets.jwt,
            })),
          };
    const files = { BASE_DOMAIN: baseDomain, AUTH_SERVICE_URL: gatewayUrl, CONTROL_PLANE_URL: url };

    const controlPlane = program('control-plane', dir, `${url}/readyz`, ['control-plane'], {
      LISTEN: `${address}:${port}`,
      DATABASE_URL: `sqlite:${join(dir, 'berth.db')}`,
      BASE_DOMAIN: baseDomain,
      PUBLIC_URL: publicUrl,
      ...(await inFile('control-plane', { AGENT_SECRET: secrets.agent })),
      ADMIN_EMAILS: adminEmails,
      ADMIN_PASSWORD: admin.password,
      REGISTRY_ADDR: options.registry.address,
      REGISTRY_USER: options.registry.user ?? '',
      REGISTRY_PASSWORD: options.registry.password ?? '',
      PROXY_PROBE_URLS:
        traefikPorts === undefined
          ? `http://127.0.0.1:${proxyPort}`
          : `http://127.0.0.1:${traefikPorts.web},https://127.0.0.1:${traefikPorts.websecure}`,
      ...withGateway,
      ...options.env,
    });
    if (options.etc !== undefined)
      await writeFile(
        join(options.etc, 'control-plane.env'),
        `DATABASE_URL=sqlite:${join(dir, 'berth.db')}\n`,
      );
    await controlPlane.start();
    stops.push(() => controlPlane.stop());

    const gateways: Service[] = [];
    if (options.gateway !== undefined) {
      const own = await options.gateway.env(publicUrl);
      for (const [i, at] of urlsOfGateways.slice(0, gatewaysPort === undefined ? 1 : 2).entries()) {
        const name = i === 0 ? 'gateway' : 'gateway-2';
        const started = program(name, dir, `${at}/readyz`, ['gateway'], {
          LISTEN: at.replace('http://', ''),
          CONTROL_PLANE_URL: url,
          ...(await inFile(name, {
            GATEWAY_SECRET: secrets.gateway,
            SESSION_SECRET: secrets.session,
          })),
          BASE_DOMAIN: baseDomain,
          PUBLIC_URL: publicUrl,
          ADMIN_EMAILS: adminEmails,
          STATE_DIR: join(dir, name),
          ...own,
        });
        await started.start();
        stops.push(() => started.stop());
        gateways.push(started);
      }
    }
    const [gateway] = gateways;

    if (gateway !== undefined && traefikPorts === undefined)
      await writeFileConfig(join(dir, 'proxy-files.json'), files);
    const proxy =
      traefikPorts === undefined
        ? program('proxy', dir, `http://127.0.0.1:${proxyPort}/readyz`, ['proxy'], {
            LISTEN: `127.0.0.1:${proxyPort}`,
            CONFIG_URL: configUrl,
            ...defined({
              FILE_CONFIG: gateway === undefined ? undefined : join(dir, 'proxy-files.json'),
            }),
          })
        : undefined;
    if (proxy !== undefined) {
      await proxy.start();
      stops.push(() => proxy.stop());
    }
    const relayUrl = `http://127.0.0.1:${await freePort()}`;
    const relay =
      options.relay === true
        ? program('relay', dir, `${relayUrl}/readyz`, ['relay'], {
            LISTEN: relayUrl.replace('http://', ''),
            CONTROL_PLANE_URL: url,
            STATE_DIR: join(dir, 'relay'),
          })
        : undefined;
    if (relay !== undefined) {
      await relay.start();
      stops.push(() => relay.stop());
    }
    let traefik: Traefik | undefined;
    if (traefikPorts !== undefined) {
      const bin = findTraefik();
      traefik = await startTraefik({
        dir: join(dir, 'traefik'),
        configUrl: relay === undefined ? configUrl : `${relayUrl}/api/traefik/config`,
        held: options.proxy === 'traefik',
        ports: traefikPorts,
        ...defined({
          deploy: gateway === undefined ? undefined : files,
          gateways:
            gatewaysPort === undefined ? undefined : { port: gatewaysPort, urls: urlsOfGateways },
          bin,
        }),
      });
      stops.push(() => traefik?.stop() ?? Promise.resolve());
    }

    const tap =
      options.history === undefined
        ? undefined
        : await startAgentTap(url, options.history, address);
    if (tap !== undefined) stops.push(() => tap.stop());
    const agents: Record<string, Service> = {};
    const begun = await Promise.allSettled(
      options.agents.map(async (agent, i) => {
        // The port of another host cannot be checked from here.
        const health =
          agent.enter === undefined
            ? `127.0.0.1:${await freePort()}`
            : `${agent.engine.hostIp}:${7070 + i}`;
        const state = join(dir, 'agents', agent.name);
        const settings = {
          NODE_ROLE: agent.role,
          NODE_NAME: agent.name,
          AGENT_SECRET: secrets.agent,
          CONTROL_PLANE_URL: tap?.url ?? url,
          HOST_IP: agent.engine.hostIp,
          ...defined({ PUBLISH_IP: agent.engine.publishIp }),
          DOCKER_HOST: agent.engine.host,
          DOCKER_PLUGINS_DIR: join(toolsDir, 'docker-plugins'),
          STATE_DIR: state,
          SVC_ROOT: join(state, 'svc'),
          // A fixed size: equal nodes then have equal scores, whatever else is written to this
          // disk.
          MAX_STORAGE: '10000000000',
          LISTEN: health,
          // Only an agent in its engine's own network may change a firewall: elsewhere it would be
          // that of this machine.
          ...defined({ FIREWALL: agent.enter === undefined ? 'off' : undefined }),
          ...agent.env,
        };
        const started = program(
          agent.name,
          dir,
          `http://${health}/readyz`,
          ['agent'],
          settings,
          agent.enter,
        );
        await started.start();
        stops.push(() => started.stop());
        agents[agent.name] = started;
      }),
    );
    // Each agent that started has its entry in `stops` by now.
    for (const result of begun) if (result.status === 'rejected') throw result.reason;

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
    const api = createClient({
      baseUrl: url,
      headers: () => ({ authorization: `Bearer ${token}` }),
    });

    return {
      controlPlane,
      agents,
      gateway,
      gateways,
      relay,
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
      settled: (deployment, deadlineMs = 120_000) =>
        waitFor(
          `deployment ${deployment.id} is settled`,
          async () => {
            const now = await api.call('getDeployment', { params: { id: deployment.id } });
            return isSettled(now.status) && now;
          },
          { deadlineMs, intervalMs: 50 },
        ),
      async logs(deployment) {
        const page = await api.call('deploymentLogs', {
          params: { id: deployment.id },
          query: { limit: 5000 },
        });
        return page.lines.map((line) => line.text);
      },
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
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
  let root = repositoryRoot;
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
