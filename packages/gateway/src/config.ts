/**
 * All settings of the gateway. docs/settings.md is generated from this table. Only this file reads
 * the environment.
 */
import {
  absolutePath,
  atLeast,
  domainName,
  emails,
  httpUrl,
  integer,
  LOG_SETTINGS,
  list,
  listen,
  networks,
  type Parser,
  readSettings,
  SettingsError,
  secrets,
  text,
  TRACE_SETTINGS,
  type Values,
} from '@berth/kit/config';
import type { Logger } from '@berth/kit/log';
import { createReloading, type Reloading } from '@berth/kit/reload';
import { SESSION_MAX_MS } from '@berth/wire/gateway';

/** Minimum length: an attacker could guess a shorter secret offline from a single cookie. */
export const MIN_SECRET_LENGTH = 32;
/**
 * Maximum number of secrets. A cookie that the current secret did not seal is checked with each
 * older secret.
 */
const MAX_SECRETS = 8;

/** Accepts an address with only scheme, host and port, because the gateway defines the paths. */
const origin: Parser<string> = (t) => {
  const url = new URL(httpUrl(t));
  if (
    url.pathname !== '/' ||
    url.search !== '' ||
    url.hash !== '' ||
    url.username !== '' ||
    url.password !== ''
  )
    throw new Error(`must be only a scheme, a host and optionally a port, not "${t}"`);
  return url.origin;
};
/** Accepts e-mail addresses, and `@domain` for all addresses of a domain. */
const emailsAndDomains: Parser<string[]> = (t) => {
  const wrong = list(t).filter((e) => !/^[^@\s]*@[^@\s]+$/.test(e));
  if (wrong.length > 0)
    throw new Error(`neither an e-mail address nor @domain: ${wrong.join(', ')}`);
  if (list(t).length === 0)
    throw new Error(
      'must not be an empty list; unset it to allow everybody whom the provider lets in',
    );
  return list(t).map((e) => e.toLowerCase());
};
const fewSecrets: Parser<string[]> = (t) => {
  const secretList = secrets(t);
  if (secretList.length > MAX_SECRETS)
    throw new Error(`has ${secretList.length} secrets; the maximum is ${MAX_SECRETS}`);
  return secretList;
};
const longSecrets: Parser<string[]> = (t) => {
  const secretList = fewSecrets(t);
  if (secretList.some((s) => s.length < MIN_SECRET_LENGTH))
    throw new Error(
      `each secret must have ${MIN_SECRET_LENGTH} characters or more (openssl rand -hex 32)`,
    );
  return secretList;
};
/**
 * OpenID Connect Discovery 1.0 section 3 requires https. Plain http is allowed for a provider on
 * this machine (tests, the demo).
 */
const issuer: Parser<string> = (t) => {
  const url = URL.canParse(t) ? new URL(t) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol))
    throw new Error(`must be an https URL, not "${t}"`);
  if (url.search !== '' || url.hash !== '')
    throw new Error('must be a URL without query and fragment');
  if (url.protocol === 'http:' && !isLoopback(url.hostname))
    throw new Error(
      `must be https: plain http is allowed only for loopback addresses, not for ${url.hostname}`,
    );
  return t;
};
const isLoopback = (hostname: string): boolean =>
  /^(localhost|(.+\.)?localhost|127(\.\d{1,3}){3}|\[::1\])$/.test(hostname);
/**
 * The name is also the value of X-Forwarded-User-Provider, which the contract requires in lower
 * case.
 */
const providerName: Parser<string> = (t) => {
  if (!/^[a-z0-9._-]{1,64}$/.test(t))
    throw new Error(`must be 1 to 64 characters from a-z, 0-9, ".", "_" and "-", not "${t}"`);
  if (t === 'github' || t === 'google') throw new Error(`"${t}" is the name of another provider`);
  return t;
};

const sessionTtl: Parser<number> = (t) => {
  const ms = atLeast(60_000)(t);
  if (ms > SESSION_MAX_MS)
    throw new Error(`must be at most ${SESSION_MAX_MS / 86_400_000}d, not "${t}"`);
  return ms;
};

export const SETTINGS = {
  LISTEN: {
    doc: 'Address and port that the reverse proxy connects to',
    default: '127.0.0.1:4180',
    parse: listen,
  },
  CONTROL_PLANE_URL: {
    doc: 'Internal URL of the control plane, e.g. http://10.0.0.1:8080',
    required: true,
    parse: httpUrl,
  },
  GATEWAY_SECRET: {
    doc:
      'Secrets shared with the control plane; the current one first, then earlier ones, ' +
      'comma-separated',
    required: true,
    parse: fewSecrets,
  },
  BASE_DOMAIN: {
    doc: 'Projects are published at <domain_prefix>.<BASE_DOMAIN>',
    required: true,
    parse: domainName,
  },
  PUBLIC_URL: {
    doc:
      'Public origin of the gateway’s own pages (/_oauth/…); its scheme and port also apply to ' +
      'projects',
    shown: 'https://BASE_DOMAIN',
    parse: origin,
  },
  TRUSTED_PROXIES: {
    doc:
      'Addresses and networks (CIDR) of proxies whose X-Forwarded-For is trusted, ' +
      'comma-separated. The names loopback, linklocal and uniquelocal are allowed; `none` ' +
      'trusts no proxy',
    default: 'loopback',
    parse: networks,
  },
  MAX_CONNECTIONS: {
    doc:
      'Open connections of each worker at most, and never more than the limit of open files ' +
      'allows; one client gets a quarter (docs/operating.md "Open connections")',
    default: '10000',
    parse: integer(100, 1_000_000),
  },
  ADMIN_EMAILS: {
    doc: 'E-mail addresses that /verify/admin allows, comma-separated',
    default: '',
    parse: emails,
  },
  ALLOWED_EMAILS: {
    doc: 'E-mail addresses and @domains that may sign in and stay signed in, comma-separated',
    shown: 'everybody whom the provider lets in',
    parse: emailsAndDomains,
  },
  SESSION_SECRET: {
    doc:
      'Secrets that sign and seal cookies, codes and assertions; the current one first, then ' +
      'earlier ones, each of 32 characters or more',
    required: true,
    parse: longSecrets,
  },
  SESSION_TTL: { doc: 'Lifetime of a sign-in; 90d at most', default: '7d', parse: sessionTtl },
  OIDC_ISSUER: {
    doc: 'Issuer URL of an OpenID provider; https, or plain http on loopback',
    shown: 'none: no OpenID provider',
    parse: issuer,
  },
  OIDC_CLIENT_ID: {
    doc:
      'Client id at the OpenID provider, with the redirect URI ' +
      'PUBLIC_URL/_oauth/callback/OIDC_NAME',
    parse: text,
  },
  OIDC_CLIENT_SECRET: { doc: 'Client secret at the OpenID provider', parse: text },
  OIDC_NAME: {
    doc: 'Name of the OpenID provider in URLs and in X-Forwarded-User-Provider',
    default: 'oidc',
    parse: providerName,
  },
  GITHUB_CLIENT_ID: {
    doc: 'Client id of an OAuth app at GitHub, with the callback PUBLIC_URL/_oauth/callback/github',
    shown: 'none: no sign-in with GitHub',
    parse: text,
  },
  GITHUB_CLIENT_SECRET: { doc: 'Client secret of the OAuth app at GitHub', parse: text },
  GITHUB_URL: {
    doc: 'URL of GitHub or of a GitHub Enterprise server',
    default: 'https://github.com',
    parse: httpUrl,
  },
  GITHUB_API_URL: {
    doc: 'URL of the GitHub API',
    default: 'https://api.github.com',
    parse: httpUrl,
  },
  GOOGLE_CLIENT_ID: {
    doc: 'Client id at Google, with the redirect URI PUBLIC_URL/_oauth/callback/google',
    shown: 'none: no sign-in with Google',
    parse: text,
  },
  GOOGLE_CLIENT_SECRET: { doc: 'Client secret at Google', parse: text },
  GATEWAY_WORKERS: {
    doc: 'Number of processes that share the port',
    default: '1',
    parse: integer(1, 64),
  },
  STATE_DIR: {
    doc:
      'Folder for the last policy and unsent revocations; with it, people stay signed in if the ' +
      'gateway restarts while the control plane is down',
    default: '/var/lib/berth-gateway',
    parse: absolutePath,
  },
  ...LOG_SETTINGS,
  ...TRACE_SETTINGS,
} as const;

type Settings = Values<typeof SETTINGS>;
export type Config = Omit<Settings, 'PUBLIC_URL' | 'LOG_FORMAT'> & {
  PUBLIC_URL: string;
  LOG_FORMAT: 'json' | 'pretty';
};

/**
 * Creates the handler that reads the files of settings again on SIGHUP. Call it before
 * `readConfig`.
 */
export const reloading = (
  logger: () => Logger,
  env: NodeJS.ProcessEnv = process.env,
): Reloading<typeof SETTINGS> => createReloading(SETTINGS, env, logger);

/** Reads all settings. Throws SettingsError, which names every wrong variable. */
export function readConfig(env: NodeJS.ProcessEnv = process.env): Config {
  const s = readSettings(SETTINGS, env);
  const problems = incompleteProviders(s);
  if (problems.length > 0) throw new SettingsError(problems);
  return {
    ...s,
    PUBLIC_URL: s.PUBLIC_URL ?? `https://${s.BASE_DOMAIN}`,
    LOG_FORMAT: s.LOG_FORMAT ?? (process.stdout.isTTY ? 'pretty' : 'json'),
  };
}

/**
 * Returns the descriptor of the listening socket that systemd passes
 * (deploy/systemd/berth-gateway.socket), or undefined without one. `pid`: the process that systemd
 * started, which is the primary process when there are several workers. Source: sd_listen_fds(3).
 */
export function inheritedSocket(
  pid: number,
  env: NodeJS.ProcessEnv = process.env,
): number | undefined {
  const FIRST = 3;
  return env.LISTEN_PID === String(pid) && Number(env.LISTEN_FDS) >= 1 ? FIRST : undefined;
}

/** Returns the missing settings of providers that are only partly configured. */
function incompleteProviders(s: Settings): string[] {
  const providers = [
    ['OIDC_ISSUER', 'OIDC_CLIENT_ID', 'OIDC_CLIENT_SECRET'],
    ['GITHUB_CLIENT_ID', 'GITHUB_CLIENT_SECRET'],
    ['GOOGLE_CLIENT_ID', 'GOOGLE_CLIENT_SECRET'],
  ] as const;
  return providers.flatMap((names) => {
    const missing = names.filter((name) => s[name] === undefined);
    if (missing.length === 0 || missing.length === names.length) return [];
    const presentNames = names.filter((name) => s[name] !== undefined).join(', ');
    return missing.map((name) => `${name}: must be set, because ${presentNames} is set`);
  });
}
