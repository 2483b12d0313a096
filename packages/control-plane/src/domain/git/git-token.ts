/** Rules for the host of a git token. Pure. */
import { invalid } from '../platform/errors.ts';

type Remote = {
  scheme: 'https' | 'http' | 'ssh';
  hostname: string;
  /** `hostname`, or `hostname:port` of an https address. */
  host: string;
};

const SCHEMES: Readonly<Record<string, Remote['scheme']>> = { 'https:': 'https', 'http:': 'http' };

/** Parses an address that git-url.ts has accepted. */
export function remoteOf(gitUrl: string): Remote {
  if (!gitUrl.includes('://')) {
    const [, hostname = ''] = /^[^@/:]*@(\[[^\]]*\]|[^:/@]*):/.exec(gitUrl) ?? [];
    const name = plain(hostname);
    return { scheme: 'ssh', hostname: name, host: name };
  }
  const { protocol, hostname, port } = new URL(gitUrl);
  const name = plain(hostname);
  const scheme = SCHEMES[protocol] ?? 'ssh';
  return {
    scheme,
    hostname: name,
    host: scheme === 'https' && port !== '' ? `${name}:${port}` : name,
  };
}
const plain = (host: string): string => host.toLowerCase().replace(/\.$/, '');

/**
 * Returns the host that gets the token. Throws validation for an http address, which would send the
 * token in clear text.
 */
export function tokenHost(gitUrl: string): string {
  const { scheme, host } = remoteOf(gitUrl);
  if (scheme === 'http') throw invalid('token', 'https', HTTP);
  return host;
}
const HTTP =
  'the git_url of the project is an http address, which would send the token in clear text; ' +
  'use https';

/**
 * Decides whether the token of `host` is kept after a change of git_url. Ignores the port of an ssh
 * address, because ssh does not use the token.
 */
export function afterMove(host: string, gitUrl: string): 'keep' | 'delete' {
  const remote = remoteOf(gitUrl);
  const same =
    remote.scheme === 'https'
      ? remote.host === host
      : remote.hostname === host.replace(/:\d+$/, '');
  if (!same) return 'delete';
  if (remote.scheme === 'http')
    throw invalid(
      'git_url',
      'https',
      'the project has a git token, which an http address would send in clear text; delete the ' +
        'token first',
    );
  return 'keep';
}

/** Returns whether a fetch from this address can use the token of `host`. */
export const mayUse = (host: string, gitUrl: string): boolean => {
  const remote = remoteOf(gitUrl);
  return remote.scheme === 'https' && remote.host === host;
};

/**
 * Returns the user name, or a default for a token without one. Forges accept any name, except
 * Bitbucket.
 */
export const usernameOf = (username: string | null, host: string): string =>
  username ?? (host === 'bitbucket.org' ? 'x-token-auth' : 'x-access-token');

/** Checks the address of a forge's API. The token must not cross the network in clear text. */
export function checkApiUrl(apiUrl: string): void {
  const url = URL.canParse(apiUrl) ? new URL(apiUrl) : null;
  const problem = (rule: string, message: string): Error => invalid('api_url', rule, message);
  if (url === null || !/^https?:$/.test(url.protocol))
    throw problem('url', 'must be an https address');
  if (url.protocol === 'http:' && !/^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(url.hostname))
    throw problem('https', 'must be an https address; http would send the token in clear text');
  if (url.username !== '' || url.password !== '')
    throw problem('no_password', 'must not contain a user name or a password');
  if (url.search !== '' || url.hash !== '') throw problem('plain', 'must not contain “?” or “#”');
}
