// The only reader of process.env in this package. Everything else gets what it needs handed in.
import { existsSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The repository's root, found from this file's own place. */
export const repositoryRoot = join(dirname(fileURLToPath(import.meta.url)), '..', '..', '..');

/** Where set-up puts what it fetched (ignored by git). */
export const toolsDir = join(repositoryRoot, '.tools');

export type Environment = Readonly<Record<string, string>>;

/** Places Debian keeps system programs in; a non-login shell may not have them on PATH. */
const systemFolders = ['/usr/local/sbin', '/usr/sbin', '/sbin', '/usr/local/bin', '/usr/bin', '/bin'];

/** PATH with set-up's Node first and the system folders last. */
export function searchPath(): string[] {
  const own = [join(toolsDir, 'node', 'bin'), toolsDir];
  const given = (process.env['PATH'] ?? '').split(delimiter).filter((folder) => folder !== '');
  return [...new Set([...own, ...given, ...systemFolders])];
}

/** Absolute path of a program, or undefined when it is on none of searchPath()'s folders. */
export function findProgram(name: string): string | undefined {
  return searchPath()
    .map((folder) => join(folder, name))
    .find((path) => existsSync(path));
}

/**
 * The environment for a child: ours, with searchPath() as PATH, plus `extra`.
 * Docker's own variables are taken out: a child gets an engine only where a caller names one.
 */
export function childEnvironment(extra: Environment = {}): Record<string, string> {
  const environment: Record<string, string> = {};
  for (const [name, value] of Object.entries(process.env)) {
    if (value === undefined || name.startsWith('DOCKER_') || name.startsWith('BUILDX_')) continue;
    // A test that runs inside a git hook must not work on the hook's repository.
    if (name.startsWith('GIT_') && !name.startsWith('GIT_SSL')) continue;
    environment[name] = value;
  }
  return { ...environment, PATH: searchPath().join(delimiter), ...extra };
}

/** Address of the engine the user has: DOCKER_HOST, or the default socket. */
export function userDockerHost(): string {
  return process.env['DOCKER_HOST'] || 'unix:///var/run/docker.sock';
}

/** Whether BERTH_ENGINE=private asks for an engine of our own even where one answers. */
export function privateEngineWanted(): boolean {
  return process.env['BERTH_ENGINE'] === 'private';
}

/** Traefik's program by TRAEFIK_BIN, `.tools/traefik` or PATH; undefined when there is none. */
export function findTraefik(): string | undefined {
  const named = process.env['TRAEFIK_BIN'];
  if (named !== undefined && named !== '') return existsSync(named) ? named : undefined;
  return findProgram('traefik');
}

/** File of certificate authorities this machine was told to trust beside its own; undefined when not set. */
export function extraCertificates(): string | undefined {
  const file = process.env['NODE_EXTRA_CA_CERTS'] || process.env['SSL_CERT_FILE'];
  return file !== undefined && existsSync(file) ? file : undefined;
}
