import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { defined } from '@berth/kit/defined';
import { writeFileWhole } from '@berth/kit/write-file';
import { makeCertificate } from './certificate.ts';
import { findTraefik, repositoryRoot } from './config.ts';
import { copyFiles, type FileProviderEnv } from './file-provider.ts';
import { freePorts } from './ports.ts';
import { startProcess, untilReady } from './process.ts';
import { waitFor } from './wait.ts';

const TWO_GATEWAYS = join(repositoryRoot, 'deploy', 'traefik', 'two-gateways.yml');

export interface Traefik {
  /** `http://127.0.0.1:port` of entry point `web`. */
  readonly web: string;
  /** `https://127.0.0.1:port` of entry point `websecure` (self-signed certificate). */
  readonly websecure: string;
  readonly webPort: number;
  readonly websecurePort: number;
  /** `http://127.0.0.1:port` of its API (`/api/http/routers`, `/ping`). */
  readonly api: string;
  readonly pid: number;
  /** Returns the routers that it serves now; a name includes the provider (`x@http`). */
  routers(): Promise<{ name: string; rule: string; status: string }[]>;
  /**
   * Sends requests for logins to these gateways only (0, 1), as docs/upgrade.md says. Returns when
   * Traefik does so.
   */
  useGateways(which: readonly (0 | 1)[]): Promise<void>;
  /** Returns the last part of its log. */
  tail(): string;
  /**
   * By default at once: in order, it waits for the configuration that it has requested, up to 20 s.
   */
  stop(graceMs?: number): Promise<void>;
}

export interface TraefikOptions {
  /** Folder for its configuration, certificate and logs. */
  readonly dir: string;
  /** Address of the control plane's configuration, `http://…/api/traefik/config`. */
  readonly configUrl: string;
  /**
   * true: requests for configuration are held until it changes; false: polls every 5 s, as the
   * contract allows.
   */
  readonly held: boolean;
  /** Path of the program. Default: findTraefik(). */
  readonly bin?: string;
  /** Folder of the caller's file-provider YAML, which Traefik watches. */
  readonly fileProviderDir?: string;
  /** Serves deploy/traefik/dynamic, with these variables in Traefik's environment. */
  readonly deploy?: FileProviderEnv;
  /** Adds deploy/traefik/two-gateways.yml, and its entry point at this port of loopback. */
  readonly gateways?: { readonly port: number; readonly urls: readonly [string, string] };
  readonly accessLog?: boolean;
  /**
   * `aliasHeadersStrategy` of both entry points. Default: `delete`, as in deploy/traefik. `unset`:
   * a Traefik that Berth did not set up.
   */
  readonly aliasHeaders?: 'delete' | 'unset';
  /** Fixed ports (default: free ones). */
  readonly ports?: { readonly web: number; readonly websecure: number; readonly api: number };
}

/**
 * Starts the real Traefik on loopback. @throws when it is not installed or does not answer within
 * 10 s
 */
export async function startTraefik(options: TraefikOptions): Promise<Traefik> {
  const bin = options.bin ?? findTraefik();
  if (bin === undefined)
    throw new Error('Traefik not found: set TRAEFIK_BIN or put `traefik` on PATH');
  const { dir } = options;
  await mkdir(join(dir, 'files'), { recursive: true });
  const { web, websecure, api } = options.ports ?? (await threePorts());
  const certificate = await makeCertificate(dir, 'berth.localhost', NAMES);
  // JSON is valid YAML. The certificate is dynamic configuration and comes by the file provider.
  // Traefik has only one file provider, so the certificate goes into the caller's folder when there
  // is one.
  const files = options.fileProviderDir ?? join(dir, 'files');
  if (options.deploy !== undefined) await copyFiles(files);
  const { gateways } = options;
  if (gateways !== undefined) await copyFile(TWO_GATEWAYS, join(files, 'two-gateways.yml'));
  await writeFile(
    join(files, 'berth-testbed-certificate.yml'),
    JSON.stringify({ tls: { stores: { default: { defaultCertificate: certificate } } } }),
  );
  const configFile = join(dir, 'traefik.yml');
  await writeFile(
    configFile,
    JSON.stringify(staticConfig(options, { web, websecure, api, files }), null, 2),
  );
  const traefik = await startProcess([bin, `--configFile=${configFile}`], {
    name: 'traefik',
    logFile: join(dir, 'traefik.log'),
    env: {
      ...options.deploy,
      ...defined({
        GATEWAY_1: options.gateways?.urls[0],
        GATEWAY_2: options.gateways?.urls[1],
      }),
    },
  });
  const apiUrl = `http://127.0.0.1:${api}`;
  const get = (path: string) => fetch(`${apiUrl}${path}`, { signal: AbortSignal.timeout(5_000) });
  await untilReady(traefik, async () => (await get('/ping')).ok, 10_000);
  return {
    web: `http://127.0.0.1:${web}`,
    websecure: `https://127.0.0.1:${websecure}`,
    webPort: web,
    websecurePort: websecure,
    api: apiUrl,
    pid: traefik.pid,
    routers: async () =>
      (await (await get('/api/http/routers?per_page=10000')).json()) as {
        name: string;
        rule: string;
        status: string;
      }[],
    async useGateways(which) {
      const lines = (await readFile(TWO_GATEWAYS, 'utf8')).split('\n');
      const kept = lines.filter(
        (line) =>
          !/GATEWAY_\d" /.test(line) || which.some((i) => line.includes(`GATEWAY_${i + 1}`)),
      );
      // Traefik reads a file as soon as it changes: a file that is half written has no router, and
      // visitors get 404.
      await writeFileWhole(join(files, 'two-gateways.yml'), kept.join('\n'));
      const wanted = which.map((i) => gateways?.urls[i]);
      await waitFor('Traefik uses these gateways', async () => {
        type Service = { loadBalancer?: { servers?: { url: string }[] } };
        const { loadBalancer } = (await (
          await get('/api/http/services/berth-gateways@file')
        ).json()) as Service;
        return loadBalancer?.servers?.map(({ url }) => url).join(' ') === wanted.join(' ');
      });
      // Requests that Traefik had routed before it read the file are still on their way.
      const others = (gateways?.urls ?? []).filter((url) => !wanted.includes(url));
      await Promise.all(
        others.map((url) => waitFor(`${url} is idle`, () => isQuiet(url), { deadlineMs: 60_000 })),
      );
    },
    tail: traefik.tail,
    stop: (graceMs = 0) => traefik.stop(graceMs),
  };
}

function staticConfig(
  options: TraefikOptions,
  at: { web: number; websecure: number; api: number; files: string },
): object {
  const endpoint = new URL(options.configUrl);
  if (options.held) endpoint.searchParams.set('wait', '20');
  const http = options.held
    ? { endpoint: endpoint.href, pollInterval: '100ms', pollTimeout: '40s' }
    : { endpoint: endpoint.href, pollInterval: '5s' };
  // As in deploy/traefik/traefik.yml.
  const unchanged = defined({
    sanitizePath: false,
    encodeQuerySemicolons: true,
    aliasHeadersStrategy: options.aliasHeaders === 'unset' ? undefined : 'delete',
  });
  return {
    serversTransport: { forwardingTimeouts: { idleConnTimeout: '50ms' } },
    global: { checkNewVersion: false, sendAnonymousUsage: false },
    entryPoints: {
      web: {
        address: `127.0.0.1:${at.web}`,
        http: unchanged,
      },
      websecure: {
        address: `127.0.0.1:${at.websecure}`,
        http: { tls: {}, ...unchanged },
      },
      traefik: { address: `127.0.0.1:${at.api}` },
      ...defined({
        gateways:
          options.gateways === undefined
            ? undefined
            : {
                address: `127.0.0.1:${options.gateways.port}`,
                forwardedHeaders: { trustedIPs: ['127.0.0.1/32'] },
              },
      }),
    },
    api: { insecure: true, dashboard: false },
    ping: {},
    metrics: { prometheus: { entryPoint: 'traefik', addServicesLabels: true } },
    providers: {
      // The default of 2 s would be the slowest part of a route switch.
      providersThrottleDuration: '50ms',
      http,
      file: { directory: at.files, watch: true },
    },
    log: { level: 'INFO' },
    ...defined({
      accessLog:
        options.accessLog === true
          ? { filePath: join(options.dir, 'access.log'), format: 'json' }
          : undefined,
    }),
  };
}

/** Whether a gateway decides nothing for half a second. */
async function isQuiet(gateway: string): Promise<boolean> {
  const decided = async (): Promise<string> => {
    const text = await (
      await fetch(`${gateway}/metrics`, { signal: AbortSignal.timeout(5_000) })
    ).text();
    return text
      .split('\n')
      .filter((line) => line.startsWith('berth_verify_total'))
      .join();
  };
  const before = await decided();
  await pause(500);
  return before === (await decided());
}

/** Names of the certificate: `berth.localhost` and its subdomains. */
const NAMES = ['DNS:berth.localhost', 'DNS:*.berth.localhost', 'DNS:localhost', 'IP:127.0.0.1'];

async function threePorts(): Promise<{ web: number; websecure: number; api: number }> {
  const [web, websecure, api] = (await freePorts(3)) as [number, number, number];
  return { web, websecure, api };
}
