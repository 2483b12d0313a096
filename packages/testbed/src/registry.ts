import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defined } from '@berth/kit/defined';
import { findProgram } from './config.ts';
import { lockFolder } from './lock.ts';
import { freePort, isFree } from './ports.ts';
import { run, startProcess, untilReady } from './process.ts';

export interface Registry {
  /** `host:port`, as in front of an image's name and in REGISTRY_ADDR. */
  readonly address: string;
  readonly url: string;
  readonly user: string | undefined;
  readonly password: string | undefined;
  readonly pid: number;
  /** Its configuration file. */
  readonly config: string;
  /** Folder of the images. */
  readonly data: string;
  /**
   * Command that restarts it, which rereads the configuration; undefined without the option
   * `restarts`.
   */
  readonly restart: readonly string[] | undefined;
  /** Returns the names of its repositories. */
  catalog(): Promise<string[]>;
  /** Returns the tags of a repository; [] when it does not exist. */
  tags(repository: string): Promise<string[]>;
  stop(): Promise<void>;
}

export interface RegistryOptions {
  /**
   * Folder for images, configuration and log, kept between runs. A second run at the same time gets
   * a temporary one.
   */
  readonly dir: string;
  /** Address to listen on: an engine's `gatewayIp` (default 127.0.0.1). */
  readonly address?: string;
  /**
   * Default: the previous run's port when it is free, because docker then knows what it pushed;
   * otherwise a free one.
   */
  readonly port?: number;
  /** Name for basic auth, which is required when `password` is set too. */
  readonly user?: string;
  readonly password?: string;
  /** A command can restart it, as `systemctl restart` does. */
  readonly restarts?: true;
  /** Default: it allows deletions. */
  readonly deletes?: boolean;
}

export function registryProgram(): string | undefined {
  return findProgram('docker-registry') ?? findProgram('registry');
}

/**
 * Starts the CNCF distribution registry. @throws when it is not installed or does not answer within
 * 10 s
 */
export async function startRegistry(options: RegistryOptions): Promise<Registry> {
  const program = registryProgram();
  if (program === undefined)
    throw new Error('docker-registry is not installed (npm run setup installs it)');
  const { user, password } = options;
  const listen = options.address ?? '127.0.0.1';
  const home = await takeHome(options.dir);
  try {
    return await serve(
      program,
      home,
      listen,
      options,
      user === undefined || password === undefined ? undefined : { user, password },
    );
  } catch (error) {
    await home.leave();
    throw error;
  }
}

interface Home {
  readonly dir: string;
  leave(): Promise<void>;
}

/** Takes the folder, or a temporary one while another process has it. */
async function takeHome(wanted: string): Promise<Home> {
  await mkdir(wanted, { recursive: true });
  const lock = await lockFolder(wanted);
  if (lock !== undefined) return { dir: wanted, leave: lock.release };
  const dir = await mkdtemp(join(tmpdir(), 'berth-registry-'));
  return { dir, leave: () => rm(dir, { recursive: true, force: true }) };
}

async function serve(
  program: string,
  home: Home,
  listen: string,
  options: RegistryOptions,
  credentials: { user: string; password: string } | undefined,
): Promise<Registry> {
  const { dir } = home;
  await mkdir(join(dir, 'data'), { recursive: true });
  const port = options.port ?? (await lastPort(dir, listen)) ?? (await freePort(listen));
  const address = `${listen}:${port}`;
  const config = {
    version: '0.1',
    log: { level: 'warn', accesslog: { disabled: true } },
    storage: {
      filesystem: { rootdirectory: join(dir, 'data') },
      delete: { enabled: options.deletes ?? true },
    },
    http: { addr: address },
    ...defined({
      auth:
        credentials === undefined
          ? undefined
          : {
              htpasswd: { realm: 'berth-testbed', path: await writeHtpasswd(dir, credentials) },
            },
    }),
  };
  // JSON is YAML.
  const configFile = join(dir, 'config.yml');
  await writeFile(configFile, JSON.stringify(config, null, 2));

  const command: [string, ...string[]] =
    options.restarts === true
      ? [
          process.execPath,
          fileURLToPath(new URL('./registry-supervisor.ts', import.meta.url)),
          program,
          configFile,
        ]
      : [program, 'serve', configFile];
  const registry = await startProcess(command, {
    name: 'registry',
    logFile: join(dir, 'registry.log'),
    withoutEnv: 'REGISTRY_', // the registry reads every REGISTRY_… variable as a setting
  });
  const url = `http://${address}`;
  const headers: Record<string, string> =
    credentials === undefined
      ? {}
      : {
          authorization:
            'Basic ' +
            Buffer.from(`${credentials.user}:${credentials.password}`).toString('base64'),
        };
  const get = (path: string) =>
    fetch(`${url}${path}`, { headers, signal: AbortSignal.timeout(5_000) });
  await untilReady(registry, async () => (await get('/v2/')).ok, 10_000);
  await writeFile(join(dir, 'port'), String(port));

  return {
    address,
    url,
    pid: registry.pid,
    config: configFile,
    data: join(dir, 'data'),
    restart: options.restarts === true ? ['kill', '-HUP', String(registry.pid)] : undefined,
    user: credentials?.user,
    password: credentials?.password,
    async catalog() {
      const { repositories } = (await (await get('/v2/_catalog?n=1000')).json()) as {
        repositories: string[];
      };
      return repositories;
    },
    async tags(repository) {
      const answer = await get(`/v2/${repository}/tags/list`);
      if (answer.status === 404) return [];
      return ((await answer.json()) as { tags: string[] | null }).tags ?? [];
    },
    async stop() {
      await registry.stop();
      await home.leave();
    },
  };
}

/** Returns the previous run's port when it is free now. */
async function lastPort(dir: string, listen: string): Promise<number | undefined> {
  const text = await readFile(join(dir, 'port'), 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '';
    throw error;
  });
  const port = Number(text);
  return port > 0 && (await isFree(port, listen)) ? port : undefined;
}

/** Writes a file with one line `user:bcrypt hash`. The registry accepts no other kind of hash. */
async function writeHtpasswd(
  dir: string,
  credentials: { user: string; password: string },
): Promise<string> {
  const file = join(dir, 'htpasswd');
  const line = await run(['htpasswd', '-B', '-i', '-n', credentials.user], {
    input: credentials.password,
  });
  await writeFile(file, `${line.stdout.trim()}\n`, { mode: 0o600 });
  return file;
}
