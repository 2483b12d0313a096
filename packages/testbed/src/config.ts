// The only reader of process.env in this package. Other modules get values as arguments.
import { existsSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Root folder of the repository, relative to this file. */
export const repositoryRoot = join(dirname(fileURLToPath(import.meta.url)), '..', '..', '..');

/** Folder of the programs that set-up fetched (ignored by git). */
export const toolsDir = join(repositoryRoot, '.tools');

/**
 * Returns the folder whose bin/berth starts our programs: the bundle that the tests made
 * (scripts/lib/test-programs.ts), or the sources.
 */
export const programsRoot = (): string => process.env['BERTH_TEST_PROGRAMS'] ?? repositoryRoot;

export type Environment = Readonly<Record<string, string>>;

/** Folders in which Debian keeps system programs; the PATH of a non-login shell can lack them. */
const systemFolders = [
  '/usr/local/sbin',
  '/usr/sbin',
  '/sbin',
  '/usr/local/bin',
  '/usr/bin',
  '/bin',
];

/** Returns PATH with set-up's Node first and the system folders last. */
export function searchPath(): string[] {
  const fetchedFolders = [join(toolsDir, 'node', 'bin'), toolsDir];
  const ownFolders = (process.env['PATH'] ?? '').split(delimiter).filter((folder) => folder !== '');
  return [...new Set([...fetchedFolders, ...ownFolders, ...systemFolders])];
}

/** Returns the absolute path of a program, or undefined when no folder of searchPath() has it. */
export function findProgram(name: string): string | undefined {
  return searchPath()
    .map((folder) => join(folder, name))
    .find((path) => existsSync(path));
}

/**
 * Returns the environment for a child: our own, with searchPath() as PATH, plus `extra`.
 * Docker's variables are left out: a child gets an engine only where a caller names one.
 */
export function childEnvironment(extra: Environment = {}): Record<string, string> {
  const environment: Record<string, string> = {};
  for (const [name, value] of Object.entries(process.env)) {
    if (value === undefined || name.startsWith('DOCKER_') || name.startsWith('BUILDX_')) continue;
    // A test that runs inside a git hook must not change the hook's repository.
    if (name.startsWith('GIT_') && !name.startsWith('GIT_SSL')) continue;
    environment[name] = value;
  }
  return { ...environment, PATH: searchPath().join(delimiter), ...extra };
}

/** Returns the address of the user's engine: DOCKER_HOST, or the default socket. */
export function userDockerHost(): string {
  return process.env['DOCKER_HOST'] || 'unix:///var/run/docker.sock';
}

/** Whether BERTH_ENGINE=private asks for a private engine although another one answers. */
export function privateEngineWanted(): boolean {
  return process.env['BERTH_ENGINE'] === 'private';
}

/**
 * Returns the path of Traefik: TRAEFIK_BIN, `.tools/traefik` or PATH; undefined when there is none.
 */
export function findTraefik(): string | undefined {
  const named = process.env['TRAEFIK_BIN'];
  if (named !== undefined && named !== '') return existsSync(named) ? named : undefined;
  return findProgram('traefik');
}

/**
 * Returns the folder of an engine that knows devices (scripts/lib/device-engine.mjs); undefined when
 * there is none.
 */
export function deviceEngine(): string | undefined {
  const folder = join(toolsDir, 'device-engine');
  return ['dockerd', 'runc'].every((program) => existsSync(join(folder, program)))
    ? folder
    : undefined;
}

/**
 * Returns the path of Chromium; undefined when there is none. The shell without a window needs a
 * quarter less CPU time for the same tests (docs/testbed.md).
 */
export function findChromium(): string | undefined {
  return findProgram('chromium-headless-shell') ?? findProgram('chromium');
}

/** Returns the path of Gitea: GITEA_BIN, `.tools/gitea` or PATH; undefined when there is none. */
export function findGitea(): string | undefined {
  const named = process.env['GITEA_BIN'];
  if (named !== undefined && named !== '') return existsSync(named) ? named : undefined;
  return findProgram('gitea');
}

/**
 * Returns the file of additional certificate authorities that this machine trusts; undefined when
 * not set.
 */
export function extraCertificates(): string | undefined {
  const file = process.env['NODE_EXTRA_CA_CERTS'] || process.env['SSL_CERT_FILE'];
  return file !== undefined && existsSync(file) ? file : undefined;
}
