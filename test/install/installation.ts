/**
 * The surroundings of an installation's machines: a network, a certificate authority, a git server,
 * the package.
 */
import { BERTH_VERSION } from '@berth/wire/version';
import {
  chmodSync,
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { findProgram, repositoryRoot, toolsDir } from '@berth/testbed/config';
import { type GitServer, startGitServer } from '@berth/testbed/git-server';
import { type Pebble, startPebble, whyNoPebble } from '@berth/testbed/pebble';
import { run } from '@berth/testbed/process';
import { layBusybox } from '@berth/testbed/root-fs';
import { waitFor } from '@berth/testbed/wait';
import { type Machine, type Network, startMachine, startNetwork, whyNoMachine } from './machine.ts';

export const DOMAIN = 'apps.berth.test';
export const ADMIN = 'ada@berth.test';

/** Returns why no installation can be made here, or undefined. */
export function whyNoInstallation(): string | undefined {
  const traefik = findProgram('traefik') === undefined ? 'no traefik (npm run setup)' : undefined;
  return whyNoMachine() ?? traefik ?? whyNoPebble();
}

export interface Installation {
  readonly network: Network;
  readonly pebble: Pebble;
  readonly git: GitServer;
  /** The package, in a folder outside the machines. */
  readonly deb: string;
  /** A folder outside the machines, with a Node.js in `node` for the package. */
  readonly scratch: string;
  /**
   * A machine with what docs/install.md asks for, and the package in /root. `bare`: without the
   * package and the programs that Debian lacks, as for deploy/install.sh.
   */
  machine(n: number, hostname: string, options?: { bare?: boolean }): Promise<Machine>;
  /** The public side, at the first machine. */
  site(): Site;
  stop(): Promise<void>;
}

export async function startInstallation(): Promise<Installation> {
  const scratch = mkdtempSync(join(tmpdir(), 'berth-installation-'));
  const undo: (() => Promise<unknown>)[] = [
    async () => rmSync(scratch, { recursive: true, force: true }),
  ];
  const stop = async (): Promise<void> => {
    for (const step of undo.splice(0).toReversed()) await step();
  };
  try {
    const network = await startNetwork();
    undo.push(() => network.stop());
    // Every name is the first machine, on which the proxy is.
    const pebble = await startPebble({
      httpPort: 80,
      tlsPort: 443,
      address: network.here,
      resolveTo: network.address(1),
    });
    undo.push(() => pebble.stop());
    writeFileSync(join(scratch, 'root.pem'), await pebble.rootPem());
    const git = await startGitServer({ root: join(scratch, 'git'), address: network.here });
    undo.push(() => git.stop());
    const [deb, base] = await Promise.all([buildPackage(scratch), packBusybox(scratch)]);
    return {
      network,
      pebble,
      git,
      deb,
      scratch,
      stop,
      site: () => new Site(network.address(1), join(scratch, 'root.pem')),
      async machine(n, hostname, { bare = false } = {}) {
        const machine = await startMachine({
          engine: true,
          network: { bridge: network.bridge, address: network.address(n) },
          hostname,
        });
        undo.push(() => machine.stop());
        const put = (from: string, to: string, mode: number): void => {
          mkdirSync(join(machine.root, to, '..'), { recursive: true });
          copyFileSync(from, join(machine.root, to));
          chmodSync(join(machine.root, to), mode);
        };
        if (!bare) {
          put(deb, `/root/${basename(deb)}`, 0o644);
          put(findProgram('traefik') ?? '', '/usr/local/bin/traefik', 0o755);
          put(
            join(toolsDir, 'docker-plugins/docker-buildx'),
            '/usr/local/lib/docker/cli-plugins/docker-buildx',
            0o755,
          );
        }
        put(pebble.caFile, '/etc/pebble-ca.pem', 0o644);
        put(join(scratch, 'root.pem'), `/etc/docker/certs.d/registry.${DOMAIN}/ca.crt`, 0o644);
        put(base, '/root/busybox.tar', 0o644);
        // The machine has no name server. All names of the installation are at the first machine.
        machine.write(
          '/etc/hosts',
          `127.0.0.1 localhost ${hostname}\n${network.address(1)} ${DOMAIN} registry.${DOMAIN}\n`,
        );
        await waitFor(
          'the engine answers',
          async () => (await machine.run(['docker', 'info'], { mayFail: true })).code === 0,
          {
            deadlineMs: 120_000,
          },
        );
        await machine.run([
          'docker',
          'import',
          '--change',
          'CMD ["sh"]',
          '/root/busybox.tar',
          'busybox:stable',
        ]);
        return machine;
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function buildPackage(scratch: string): Promise<string> {
  mkdirSync(join(scratch, 'node/bin'), { recursive: true });
  cpSync(join(toolsDir, 'node/bin/node'), join(scratch, 'node/bin/node'), { dereference: true });
  writeFileSync(join(scratch, 'node/LICENSE'), 'licence of Node, for this test only\n');
  await run(
    [
      process.execPath,
      'scripts/build.ts',
      '--out',
      join(scratch, 'dist/berth'),
      '--node',
      join(scratch, 'node'),
      '--deb',
      'gzip',
    ],
    {
      cwd: repositoryRoot,
      env: { SOURCE_DATE_EPOCH: '1700000000', BERTH_COMMIT: 'c0ffee' },
      deadlineMs: 600_000,
    },
  );
  return join(scratch, `dist/berth_${BERTH_VERSION}_amd64.deb`);
}

async function packBusybox(scratch: string): Promise<string> {
  await layBusybox(join(scratch, 'busybox'));
  const tar = join(scratch, 'busybox.tar');
  await run([
    'tar',
    '--owner=0',
    '--group=0',
    '--numeric-owner',
    '-C',
    join(scratch, 'busybox'),
    '-cf',
    tar,
    '.',
  ]);
  return tar;
}

/**
 * The public side of an installation, as a person reaches it: https with the authority's
 * certificates.
 */
class Site {
  readonly #address: string;
  readonly #roots: string;
  #token = '';
  constructor(address: string, roots: string) {
    this.#address = address;
    this.#roots = roots;
  }

  /** Returns the status and the body; status 0 when there is no answer over a good certificate. */
  async get(
    host: string,
    path = '/',
    options: { method?: string; body?: unknown } = {},
  ): Promise<{ status: number; text: string }> {
    const { method = 'GET', body } = options;
    const sent =
      body === undefined
        ? []
        : ['-H', 'content-type: application/json', '--data', JSON.stringify(body)];
    const who = this.#token === '' ? [] : ['-H', `authorization: Bearer ${this.#token}`];
    const curl = [
      'curl',
      '-s',
      '--max-time',
      '30',
      '--cacert',
      this.#roots,
      '--resolve',
      `${host}:443:${this.#address}`,
    ];
    const argv = [
      ...curl,
      '-X',
      method,
      ...who,
      ...sent,
      '-w',
      '\n%{http_code}',
      `https://${host}${path}`,
    ] as const;
    const { stdout } = await run(['env', ...argv], { mayFail: true, deadlineMs: 60_000 });
    const end = stdout.lastIndexOf('\n');
    return { status: Number(stdout.slice(end + 1)), text: stdout.slice(0, end) };
  }

  async api<T>(path: string, body?: unknown): Promise<T> {
    const answer = await this.get(DOMAIN, path, body === undefined ? {} : { method: 'POST', body });
    if (answer.status < 200 || answer.status > 299)
      throw new Error(`${path} answered ${answer.status}: ${answer.text}`);
    return JSON.parse(answer.text) as T;
  }

  async signIn(password: string): Promise<void> {
    await waitFor(
      'the API answers with a good certificate',
      async () => (await this.get(DOMAIN, '/api/version')).status === 401,
      {
        deadlineMs: 120_000,
        intervalMs: 500,
      },
    );
    this.#token = (
      await this.api<{ token: string }>('/api/auth/login', { email: ADMIN, password })
    ).token;
  }

  /** Deploys and waits until the address answers with `text`. Returns the node that runs it. */
  async deploy(project: string, text: string): Promise<string> {
    const { id } = await this.api<{ id: string }>(`/api/projects/${project}/deployments`, {});
    type Deployment = { status: string; error_message?: string | null; node_id: string | null };
    const done = await waitFor(
      `${project} runs`,
      async () => {
        const found = await this.api<Deployment>(`/api/deployments/${id}`);
        return ['running', 'failed', 'cancelled', 'superseded'].includes(found.status)
          ? found
          : undefined;
      },
      { deadlineMs: 300_000, intervalMs: 1_000 },
    );
    if (done.status !== 'running')
      throw new Error(`${project} is ${done.status}: ${JSON.stringify(done)}`);
    await waitFor(
      `https://${project}.${DOMAIN} says ${text}`,
      async () => (await this.get(`${project}.${DOMAIN}`)).text.includes(text),
      {
        deadlineMs: 120_000,
        intervalMs: 500,
      },
    );
    return done.node_id ?? '';
  }
}

/** Files of an application that answers with `text`. */
export const application = (text: string): Record<string, string> => ({
  Dockerfile:
    'FROM busybox:stable\nCOPY index.html /www/\nCMD ["httpd", "-f", "-p", "8080", "-h", "/www"]\n',
  'index.html': text,
});

/** Does by hand what an operator does for a certificate authority of his own. */
export function trustPebble(machine: Machine): void {
  mkdirSync(join(machine.root, 'etc/berth'), { recursive: true });
  writeFileSync(
    join(machine.root, 'etc/berth/proxy.env'),
    'LEGO_CA_CERTIFICATES=/etc/pebble-ca.pem\n',
  );
}

export const firstPassword = (machine: Machine): string =>
  readFileSync(join(machine.root, 'etc/berth/secrets/control-plane/ADMIN_PASSWORD'), 'utf8').trim();

/** Prints how long a step took, because the documents promise ten minutes. */
export async function timed<T>(what: string, work: () => Promise<T>): Promise<T> {
  const started = performance.now();
  const done = await work();
  console.log(`${what}: ${((performance.now() - started) / 60_000).toFixed(1)} minutes`);
  return done;
}
