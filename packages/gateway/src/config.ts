/** Every setting of the gateway; docs/settings.md is held equal to it. The only reader of the environment. */
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
  type Values,
} from '@berth/kit/config';
import { SESSION_MAX_MS } from '@berth/wire/gateway';

/** Shorter ones could be guessed off line from a single cookie. */
export const LEAST_SECRET = 32;
/** Every earlier secret costs a check for each cookie that is not under the current one. */
const MOST_SECRETS = 8;

/** Scheme, host and port: paths are the gateway's own. */
const origin: Parser<string> = (t) => {
  const url = new URL(httpUrl(t));
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '' || url.username !== '' || url.password !== '')
    throw new Error(`must be scheme, host and perhaps port alone, not "${t}"`);
  return url.origin;
};
/** Addresses, and `@domain` for everybody there. */
const emailsAndDomains: Parser<string[]> = (t) => {
  const wrong = list(t).filter((e) => !/^[^@\s]*@[^@\s]+$/.test(e));
  if (wrong.length > 0) throw new Error(`neither an e-mail address nor @domain: ${wrong.join(', ')}`);
  if (list(t).length === 0) throw new Error('names nobody: leave it out to let in whoever the provider lets in');
  return list(t).map((e) => e.toLowerCase());
};
const fewSecrets: Parser<string[]> = (t) => {
  const found = secrets(t);
  if (found.length > MOST_SECRETS) throw new Error(`holds ${found.length} secrets; more than ${MOST_SECRETS} are not taken`);
  return found;
};
const longSecrets: Parser<string[]> = (t) => {
  const found = fewSecrets(t);
  if (found.some((s) => s.length < LEAST_SECRET))
    throw new Error(`each secret must have ${LEAST_SECRET} characters or more (openssl rand -hex 32)`);
  return found;
};
/** OpenID Connect Discovery 1.0 section 3 wants https; plain http is for a provider on this very machine (tests, the demo). */
const issuer: Parser<string> = (t) => {
  const url = URL.canParse(t) ? new URL(t) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) throw new Error(`must be an https URL, not "${t}"`);
  if (url.search !== '' || url.hash !== '') throw new Error('must be a URL without query and fragment');
  if (url.protocol === 'http:' && !isLoopback(url.hostname))
    throw new Error(`must be https: plain http is taken for loopback only, not for ${url.hostname}`);
  return t;
};
const isLoopback = (hostname: string): boolean => /^(localhost|(.+\.)?localhost|127(\.\d{1,3}){3}|\[::1\])$/.test(hostname);
/** As INTERFACES.md: the value of X-Forwarded-User-Provider, which the contract wants lower case. */
const providerName: Parser<string> = (t) => {
  if (!/^[a-z0-9._-]{1,64}$/.test(t)) throw new Error(`must be 1 to 64 of a-z, 0-9, ".", "_" and "-", not "${t}"`);
  if (t === 'github' || t === 'google') throw new Error(`"${t}" is the name of another provider`);
  return t;
};

const sessionTtl: Parser<number> = (t) => {
  const ms = atLeast(60_000)(t);
  if (ms > SESSION_MAX_MS) throw new Error(`must be at most ${SESSION_MAX_MS / 86_400_000}d, not "${t}"`);
  return ms;
};

export const SETTINGS = {
  LISTEN: { doc: 'Address and port; the reverse proxy asks here', default: '127.0.0.1:4180', parse: listen },
  CONTROL_PLANE_URL: { doc: 'Internal address of the control plane, e.g. http://10.0.0.1:8080', required: true, parse: httpUrl },
  GATEWAY_SECRET: { doc: 'Secret between gateway and control plane; current first, then earlier ones', required: true, parse: fewSecrets },
  BASE_DOMAIN: { doc: 'Projects are published at <domain_prefix>.<BASE_DOMAIN>', required: true, parse: domainName },
  PUBLIC_URL: { doc: 'Public origin of /_oauth/…; its scheme and port hold for projects too', shown: 'https://BASE_DOMAIN', parse: origin },
  TRUSTED_PROXIES: {
    doc: 'Addresses and networks (CIDR) of proxies whose X-Forwarded-For says where a request comes from, comma-separated; also loopback, linklocal, uniquelocal; or none',
    default: 'loopback',
    parse: networks,
  },
  ADMIN_EMAILS: { doc: 'Whom /verify/admin lets in, comma-separated', default: '', parse: emails },
  ALLOWED_EMAILS: {
    doc: 'Who may sign in, and stay signed in: addresses and @domains, comma-separated',
    shown: 'whoever the provider lets in',
    parse: emailsAndDomains,
  },
  SESSION_SECRET: {
    doc: 'What cookies, codes and assertions are signed and sealed with; current first, then earlier ones, each of 32 characters or more',
    required: true,
    parse: longSecrets,
  },
  SESSION_TTL: { doc: 'How long a sign-in holds; 90d at most', default: '7d', parse: sessionTtl },
  OIDC_ISSUER: { doc: 'Issuer of an OpenID provider; https, plain http on loopback only', shown: 'no such provider', parse: issuer },
  OIDC_CLIENT_ID: { doc: 'Client registered there, with the redirect URI PUBLIC_URL/_oauth/callback/OIDC_NAME', parse: text },
  OIDC_CLIENT_SECRET: { doc: 'Its secret', parse: text },
  OIDC_NAME: { doc: 'What the provider is called, in addresses and in X-Forwarded-User-Provider', default: 'oidc', parse: providerName },
  GITHUB_CLIENT_ID: { doc: 'OAuth app at GitHub, with the callback PUBLIC_URL/_oauth/callback/github', shown: 'no GitHub', parse: text },
  GITHUB_CLIENT_SECRET: { doc: 'Its secret', parse: text },
  GITHUB_URL: { doc: 'GitHub, or a GitHub Enterprise server', default: 'https://github.com', parse: httpUrl },
  GITHUB_API_URL: { doc: 'Its API', default: 'https://api.github.com', parse: httpUrl },
  GOOGLE_CLIENT_ID: {
    doc: 'OAuth client at Google, with the redirect URI PUBLIC_URL/_oauth/callback/google',
    shown: 'no Google',
    parse: text,
  },
  GOOGLE_CLIENT_SECRET: { doc: 'Its secret', parse: text },
  GATEWAY_WORKERS: { doc: 'Processes that share the port', default: '1', parse: integer(1, 64) },
  STATE_DIR: {
    doc: 'Where the last policy and untold revocations are kept, so that a restart while the control plane is away keeps everybody signed in',
    default: '/var/lib/berth-gateway',
    parse: absolutePath,
  },
  ...LOG_SETTINGS,
} as const;

type Settings = Values<typeof SETTINGS>;
export type Config = Omit<Settings, 'PUBLIC_URL' | 'LOG_FORMAT'> & { PUBLIC_URL: string; LOG_FORMAT: 'json' | 'pretty' };

/** Throws SettingsError, which names every wrong variable. */
export function readConfig(env: NodeJS.ProcessEnv = process.env): Config {
  const s = readSettings(SETTINGS, env);
  const problems = halves(s);
  if (problems.length > 0) throw new SettingsError(problems);
  return {
    ...s,
    PUBLIC_URL: s.PUBLIC_URL ?? `https://${s.BASE_DOMAIN}`,
    LOG_FORMAT: s.LOG_FORMAT ?? (process.stdout.isTTY ? 'pretty' : 'json'),
  };
}

/** A provider is set whole or not at all. */
function halves(s: Settings): string[] {
  const providers = [
    ['OIDC_ISSUER', 'OIDC_CLIENT_ID', 'OIDC_CLIENT_SECRET'],
    ['GITHUB_CLIENT_ID', 'GITHUB_CLIENT_SECRET'],
    ['GOOGLE_CLIENT_ID', 'GOOGLE_CLIENT_SECRET'],
  ] as const;
  return providers.flatMap((names) => {
    const missing = names.filter((name) => s[name] === undefined);
    if (missing.length === 0 || missing.length === names.length) return [];
    const given = names.filter((name) => s[name] !== undefined).join(', ');
    return missing.map((name) => `${name}: must be set, since ${given} is`);
  });
}
