/**
 * Parses the address of the container engine: DOCKER_HOST in the format of the docker command.
 * Pure.
 */
import { join } from 'node:path';

export type EngineAddress =
  | { kind: 'unix'; path: string }
  | { kind: 'tcp'; host: string; port: number; tls: TlsFiles | null }
  | { kind: 'ssh'; argv: readonly string[] };
/**
 * The files of DOCKER_CERT_PATH. Without a certificate file, the agent sends no client certificate.
 */
export type TlsFiles = { ca: string; cert: string; key: string };

export const DEFAULT_HOST = 'unix:///var/run/docker.sock';
const PLAIN_PORT = 2375;
const TLS_PORT = 2376;

/**
 * Returns the engine's address. `env`: DOCKER_TLS_VERIFY and DOCKER_CERT_PATH. `configDir`:
 * certificate folder if DOCKER_CERT_PATH is not set. Throws an Error for an address that the docker
 * command would refuse.
 */
export function engineAddress(
  dockerHost: string | undefined,
  env: NodeJS.ProcessEnv,
  configDir: string,
): EngineAddress {
  const host = dockerHost ?? DEFAULT_HOST;
  const [, scheme = 'tcp', rest = host] = /^([a-z]+):\/\/(.*)$/s.exec(host) ?? [];
  if (scheme === 'unix') return { kind: 'unix', path: rest };
  if (scheme === 'tcp' || scheme === 'http' || scheme === 'https')
    return tcpAddress(host, rest, tlsFiles(env, configDir));
  if (scheme === 'ssh') return { kind: 'ssh', argv: sshArgv(new URL(host)) };
  throw new Error(`DOCKER_HOST is ${host}; it must begin with unix://, tcp:// or ssh://`);
}

function tlsFiles(env: NodeJS.ProcessEnv, configDir: string): TlsFiles | null {
  if ((env['DOCKER_TLS_VERIFY'] ?? '') === '') return null;
  const folder = env['DOCKER_CERT_PATH'] || configDir;
  const file = (name: string): string => join(folder, name);
  return { ca: file('ca.pem'), cert: file('cert.pem'), key: file('key.pem') };
}

function tcpAddress(host: string, rest: string, tls: TlsFiles | null): EngineAddress {
  const url = URL.parse(`http://${rest}`);
  if (url === null) throw new Error(`DOCKER_HOST is ${host}; it names no host`);
  return {
    kind: 'tcp',
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: portOf(rest) ?? (tls === null ? PLAIN_PORT : TLS_PORT),
    tls,
  };
}
/** `URL` drops port 80, the default of http, so read the port from the text. */
const portOf = (rest: string): number | null => {
  const digits = /:(\d+)(?:\/|$)/.exec(rest.replace(/^\[.*?\]/, ''))?.[1];
  return digits === undefined ? null : Number(digits);
};

/** Returns the command that the docker CLI runs for an address `ssh://user@host:port/socket`. */
function sshArgv({ username, hostname, port, pathname }: URL): string[] {
  const socket = /^\/?$/.test(pathname) ? [] : ['--host', `unix://${pathname}`];
  return [
    ...['ssh', '-o', 'ConnectTimeout=30', '-T'],
    ...(username === '' ? [] : ['-l', decodeURIComponent(username)]),
    ...(port === '' ? [] : ['-p', port]),
    ...['--', hostname.replace(/^\[|\]$/g, ''), 'docker', ...socket, 'system', 'dial-stdio'],
  ];
}
