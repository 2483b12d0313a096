/**
 * Pebble, the ACME certificate authority for tests, and its DNS server, which answers every name
 * with one address. Debian's package `pebble` holds both programs; set-up unpacks them into .tools.
 * Pebble forgets everything when it stops, its root included.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { isIP } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { defined } from '@berth/kit/defined';
import { makeCertificate } from './certificate.ts';
import { findProgram } from './config.ts';
import { freePort } from './ports.ts';
import { type RunningProcess, startProcess, untilReady } from './process.ts';

export interface Pebble {
  /** `https://…/dir`, the ACME_CA_SERVER of a client. */
  readonly directoryUrl: string;
  /**
   * Certificate of Pebble's own https address, which an ACME client must trust
   * (LEGO_CA_CERTIFICATES). Not the root of projects.
   */
  readonly caFile: string;
  /** Its key, for a proxy in front of Pebble. */
  readonly keyFile: string;
  /** Address of its DNS server, for DNS_SERVERS. */
  readonly dnsAddress: string;
  /** Changes the address of a name, for the authority and for everybody who asks its DNS server. */
  pointTo(host: string, address: string): Promise<void>;
  /** Returns the root of the certificates that it issues. */
  rootPem(): Promise<string>;
  /** Returns the last part of its log. */
  tail(): string;
  stop(): Promise<void>;
}

export interface PebbleOptions {
  /** Port to which it sends HTTP-01 challenges: the proxy's entry point `web`. */
  readonly httpPort: number;
  /** Port to which it sends TLS-ALPN-01 challenges: the proxy's entry point `websecure`. */
  readonly tlsPort: number;
  /** Address to listen on (default 127.0.0.1). */
  readonly address?: string;
  /** Address of every name, to which it sends challenges (default 127.0.0.1). */
  readonly resolveTo?: string;
  /** Lifetime of a certificate in seconds (default 5 years). */
  readonly validitySeconds?: number;
  /** Domains that it refuses, with their subdomains. */
  readonly refuses?: readonly string[];
}

const MOST_STARTS = 5;

/** Returns why this machine has no Pebble; undefined when it has one. */
export function whyNoPebble(): string | undefined {
  const missing = ['pebble', 'pebble-challtestsrv', 'openssl'].filter(
    (name) => findProgram(name) === undefined,
  );
  return missing.length === 0
    ? undefined
    : `no ${missing.join(', no ')} (npm run setup fetches Debian's package pebble)`;
}

/** @throws when Pebble is missing or does not answer within 30 s */
export async function startPebble(options: PebbleOptions): Promise<Pebble> {
  const reason = whyNoPebble();
  if (reason !== undefined) throw new Error(reason);
  const dir = await mkdtemp(join(tmpdir(), 'berth-pebble-'));
  try {
    const address = options.address ?? '127.0.0.1';
    const names = [
      'DNS:localhost',
      'IP:127.0.0.1',
      `${isIP(address) === 0 ? 'DNS' : 'IP'}:${address}`,
    ];
    const { certFile, keyFile } = await makeCertificate(dir, 'localhost', [...new Set(names)]);
    for (let starts = 1; ; starts++) {
      try {
        return await start({ ...options, address, dir, certFile, keyFile });
      } catch (error) {
        // Another program took a port between the choice and the start.
        if (starts === MOST_STARTS || !String(error).includes('address already in use'))
          throw error;
      }
    }
  } catch (error) {
    await rm(dir, { recursive: true, force: true });
    throw error;
  }
}

type Prepared = PebbleOptions & {
  readonly address: string;
  readonly dir: string;
  readonly certFile: string;
  readonly keyFile: string;
};

async function start({ dir, address, certFile, keyFile, ...options }: Prepared): Promise<Pebble> {
  const running: RunningProcess[] = [];
  const stopAll = async (): Promise<void> =>
    void (await Promise.all(running.map((one) => one.stop())));
  try {
    const dnsAt = `127.0.0.1:${await freePort()}`;
    const dnsControl = `127.0.0.1:${await freePort()}`;
    const off = ['-http01', '', '-https01', '', '-tlsalpn01', ''];
    const to = ['-defaultIPv4', options.resolveTo ?? '127.0.0.1', '-defaultIPv6', ''];
    const dns = await startProcess(
      [program('pebble-challtestsrv'), ...to, '-dns01', dnsAt, '-management', dnsControl, ...off],
      {
        name: 'pebble-challtestsrv',
        logFile: join(dir, 'dns.log'),
      },
    );
    running.push(dns);
    const tell = (path: string, body: object): Promise<Response> =>
      fetch(`http://${dnsControl}${path}`, {
        method: 'POST',
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(2_000),
      });
    await untilReady(
      dns,
      async () => (await tell('/clear-a', { host: 'berth.invalid' })).ok,
      30_000,
    );

    const [port, managementPort] = [await freePort(address), await freePort(address)];
    const config = {
      pebble: {
        listenAddress: `${address}:${port}`,
        managementListenAddress: `${address}:${managementPort}`,
        certificate: certFile,
        privateKey: keyFile,
        httpPort: options.httpPort,
        tlsPort: options.tlsPort,
        ocspResponderURL: '',
        externalAccountBindingRequired: false,
        domainBlocklist: options.refuses ?? [],
        ...defined({ certificateValidityPeriod: options.validitySeconds }),
      },
    };
    const configFile = join(dir, 'pebble.json');
    await writeFile(configFile, JSON.stringify(config, null, 2));
    const pebble = await startProcess(
      [program('pebble'), '-config', configFile, '-dnsserver', dnsAt],
      {
        name: 'pebble',
        logFile: join(dir, 'pebble.log'),
        // Without these, it waits up to 15 s before each challenge, rejects 5 % of the nonces, and
        // skips half of the repeated challenges.
        env: { PEBBLE_VA_NOSLEEP: '1', PEBBLE_WFE_NONCEREJECT: '0', PEBBLE_AUTHZREUSE: '0' },
      },
    );
    running.push(pebble);
    const get = (path: string) => ask(address, managementPort, path);
    await untilReady(pebble, async () => (await get('/roots/0')).includes('CERTIFICATE'), 30_000);
    return {
      directoryUrl: `https://${address}:${port}/dir`,
      caFile: certFile,
      keyFile,
      dnsAddress: dnsAt,
      async pointTo(host, to) {
        for (const [path, body] of [
          ['/clear-a', { host }],
          ['/add-a', { host, addresses: [to] }],
        ] as const)
          if (!(await tell(path, body)).ok)
            throw new Error(`the DNS server of Pebble refused ${path} ${host}`);
      },
      rootPem: () => get('/roots/0'),
      tail: pebble.tail,
      async stop() {
        await stopAll();
        await rm(dir, { recursive: true, force: true });
      },
    };
  } catch (error) {
    await stopAll();
    throw error;
  }
}

function program(name: string): string {
  const path = findProgram(name);
  if (path === undefined) throw new Error(`${name} is not installed`);
  return path;
}

/** Asks Pebble's management address. It is on this machine, and what it says is for tests only. */
function ask(host: string, port: number, path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const asking = request(
      { host, port, path, rejectUnauthorized: false, agent: false, timeout: 5_000 },
      (response) => {
        let body = '';
        response.setEncoding('utf8').on('data', (chunk: string) => (body += chunk));
        response.on('end', () => resolve(body)).on('error', reject);
      },
    );
    asking.on('timeout', () => asking.destroy(new Error('Pebble does not answer')));
    asking.on('error', reject).end();
  });
}
