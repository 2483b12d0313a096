/**
 * The part of this machine that checks can read. Each call has a deadline, so that a hung share or
 * disk does not block the doctor.
 */
import { spawn } from 'node:child_process';
import { resolveNs, lookup as lookupHost, Resolver } from 'node:dns/promises';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { defined } from '@berth/kit/defined';
import { exec, type ExecResult } from '@berth/kit/exec';
import { PROGRAM_ENV } from '../lib/machine.ts';
import { environment } from './config.ts';
import { type Folder, FOLDER_SCRIPT } from './folder-script.ts';

export type Answer = { status: number; date: string | null; text: string };
export type SeenCertificate = { subject: string; names: readonly string[]; validTo: number };
export type Ran = Pick<ExecResult, 'code' | 'stdout' | 'stderr' | 'ended'>;
export type RunOptions = {
  timeoutMs: number;
  cwd?: string;
  env?: Record<string, string>;
  stdin?: string;
  secrets?: readonly string[];
};
export type FileFacts = { mode: number; uid: number; gid: number };

export type System = {
  env: Readonly<Record<string, string | undefined>>;
  now(): number;
  isRoot: boolean;
  /** Version of the Node.js that runs this process. */
  nodeVersion: string;
  /** Returns undefined if the file does not exist. Throws other errors. */
  read(path: string): Promise<string | undefined>;
  /** Returns the names in a folder, or an empty list if the folder does not exist. */
  list(path: string): Promise<string[]>;
  stat(path: string): Promise<FileFacts | undefined>;
  /** Inspects a folder in a child process. Returns `hangs` if there is no answer in time. */
  folder(path: string, timeoutMs: number): Promise<Folder | 'hangs'>;
  /** Returns null if the program is not installed. */
  run(argv: readonly string[], options: RunOptions): Promise<Ran | null>;
  /** Sends a GET request without following redirects. Throws if there is no answer in time. */
  get(
    url: string,
    options: { timeoutMs: number; headers?: Record<string, string> },
  ): Promise<Answer>;
  /**
   * Returns the addresses that programs on this machine get, including /etc/hosts. Throws if the
   * name has no address.
   */
  lookup(name: string): Promise<string[]>;
  /** Returns the addresses from the domain's name servers. Throws if they cannot be asked. */
  worldLookup(name: string, domain: string): Promise<string[]>;
  addresses(): string[];
  /**
   * Creates a folder with this file (mode 0600), passes the folder to `use`, and then removes it.
   */
  withFile<T>(name: string, text: string, use: (folder: string) => Promise<T>): Promise<T>;
  /** Returns the TLS certificate of a server. Throws if the server does not answer with TLS. */
  certificate(host: string, port: number, name: string): Promise<SeenCertificate>;
};

const TLS_MS = 5_000;
const DNS_MS = 4_000;

/**
 * Variables passed to the docker command: it needs a home and the variables that name the engine.
 */
const PASSED = ['HOME', 'DOCKER_HOST', 'DOCKER_CONFIG', 'XDG_RUNTIME_DIR'] as const;

export function thisMachine(): System {
  const env = environment();
  const passed = Object.fromEntries(
    PASSED.flatMap((name) => (env[name] === undefined ? [] : [[name, env[name]]])),
  );
  return {
    env,
    now: Date.now,
    isRoot: process.getuid?.() === 0,
    nodeVersion: process.versions.node,
    read: (path) => readFile(path, 'utf8').catch(undefinedIfMissing),
    list: (path) => readdir(path).catch((error: unknown) => undefinedIfMissing(error) ?? []),
    stat: (path) =>
      stat(path).then(
        ({ mode, uid, gid }) => ({ mode: mode & 0o7777, uid, gid }),
        undefinedIfMissing,
      ),
    folder: lookAt,
    async run(argv, { timeoutMs, cwd, env: more = {}, stdin, secrets = [] }) {
      try {
        return await exec(argv, {
          env: { ...PROGRAM_ENV, ...pathOf(env), ...passed, ...more },
          timeoutMs,
          killAfterMs: 500,
          redact: secrets,
          ...defined({ cwd, stdin }),
        });
      } catch (error) {
        if (
          error instanceof Error &&
          (error.cause as NodeJS.ErrnoException | undefined)?.code === 'ENOENT'
        )
          return null;
        throw error;
      }
    },
    async get(url, { timeoutMs, headers = {} }) {
      const answer = await fetch(url, {
        headers,
        redirect: 'manual',
        signal: AbortSignal.timeout(timeoutMs),
      });
      return {
        status: answer.status,
        date: answer.headers.get('date'),
        text: (await answer.text()).slice(0, 1_000_000),
      };
    },
    lookup: async (name) => (await lookupHost(name, { all: true })).map(({ address }) => address),
    worldLookup: askNameServers,
    addresses: () =>
      Object.values(networkInterfaces())
        .flat()
        .flatMap((one) => (one === undefined ? [] : [one.address])),
    async withFile(name, text, use) {
      const folder = await mkdtemp(join(tmpdir(), 'berth-doctor-'));
      try {
        await writeFile(join(folder, name), text, { mode: 0o600 });
        return await use(folder);
      } finally {
        await rm(folder, { recursive: true, force: true });
      }
    },
    certificate: readCertificate,
  };
}

/** Puts the caller's PATH first, because a checkout has its tools there. */
const pathOf = (env: System['env']): Record<string, string> =>
  env['PATH'] === undefined ? {} : { PATH: `${env['PATH']}:${PROGRAM_ENV.PATH}` };

function undefinedIfMissing(error: unknown): undefined {
  if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return undefined;
  throw error;
}

/**
 * Inspects a folder in a child process. The child ignores SIGKILL while it waits for a hung share,
 * so after the deadline the doctor leaves it running.
 */
function lookAt(path: string, timeoutMs: number): Promise<Folder | 'hangs'> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ['-e', FOLDER_SCRIPT, path], {
      stdio: ['ignore', 'pipe', 'ignore'],
      env: {},
      detached: true,
    });
    let text = '';
    const timer = setTimeout(() => {
      child.kill('SIGKILL');
      child.stdout.destroy();
      child.unref();
      resolve('hangs');
    }, timeoutMs);
    child.stdout.setEncoding('utf8').on('data', (part: string) => (text += part));
    child.on('error', reject);
    child.on('close', () => {
      clearTimeout(timer);
      try {
        resolve(JSON.parse(text) as Folder);
      } catch {
        reject(new Error(`${path} could not be read: the child process gave no answer`));
      }
    });
  });
}

async function askNameServers(name: string, domain: string): Promise<string[]> {
  const resolver = new Resolver({ timeout: DNS_MS / 2, tries: 1 });
  const timer = setTimeout(() => resolver.cancel(), DNS_MS);
  try {
    resolver.setServers(await nameServers(domain));
    const [four, six] = await Promise.allSettled([
      resolver.resolve4(name),
      resolver.resolve6(name),
    ]);
    const addresses = [four, six].flatMap((one) => (one.status === 'fulfilled' ? one.value : []));
    if (addresses.length === 0 && four.status === 'rejected' && !isEmptyAnswer(four.reason))
      throw four.reason;
    return addresses;
  } finally {
    clearTimeout(timer);
  }
}

const isEmptyAnswer = (error: unknown): boolean =>
  ['ENOTFOUND', 'ENODATA'].includes((error as NodeJS.ErrnoException).code ?? '');

/** Returns the name servers of the zone. The zone can start at a parent of the domain. */
async function nameServers(domain: string): Promise<string[]> {
  for (let zone = domain; zone.includes('.'); zone = zone.slice(zone.indexOf('.') + 1)) {
    const names = await resolveNs(zone).catch((error: unknown) => {
      if (isEmptyAnswer(error)) return [];
      throw error;
    });
    const hosts = await Promise.all(
      names.slice(0, 3).map((one) => lookupHost(one).catch(() => null)),
    );
    const servers = hosts.flatMap((one) =>
      one === null ? [] : [one.family === 6 ? `[${one.address}]` : one.address],
    );
    if (servers.length > 0) return servers;
  }
  throw new Error(`no name server of ${domain} was found`);
}

function readCertificate(host: string, port: number, name: string): Promise<SeenCertificate> {
  return new Promise((resolve, reject) => {
    // Accept an invalid certificate too, because this check inspects the certificate itself.
    const socket = connect({ host, port, servername: name, rejectUnauthorized: false });
    socket.setTimeout(TLS_MS, () =>
      socket.destroy(new Error(`no answer within ${TLS_MS / 1000} s`)),
    );
    socket.once('error', reject);
    socket.once('secureConnect', () => {
      const { subject, subjectaltname = '', valid_to } = socket.getPeerCertificate();
      socket.destroy();
      const names = subjectaltname
        .split(', ')
        .flatMap((one) => (one.startsWith('DNS:') ? [one.slice(4)] : []));
      resolve({ subject: String(subject?.CN ?? ''), names, validTo: Date.parse(valid_to) });
    });
  });
}
