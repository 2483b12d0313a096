/**
 * Checks repository addresses: https, http, ssh or `user@host:path`. Rejects addresses that could
 * make git run a program (`ext::`, a leading dash), read local files (`file:`), or show a secret to
 * everybody who sees the project.
 */
import type { FieldProblem } from '../platform/errors.ts';

export type GitUrlRules = {
  /** Host names, or `*.name` for all hosts below it. Empty: any host. */
  allowedHosts: readonly string[];
};

type Verdict = { rule: string; message: string };
type Address = { user: string; host: string; path: string };

const SCHEMES = ['https', 'http', 'ssh'];
const HOST = /^[a-z0-9]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9_-]*[a-z0-9])?)*\.?$/i;
const IPV6 = /^\[[0-9a-f:.]+\]$/i;
const USER = /^[A-Za-z0-9_][A-Za-z0-9._~+-]*$/;
/**
 * Prefixes of access tokens of well-known forges. An access token in place of the user name is
 * still a secret.
 */
const TOKEN = /^(gh[a-z]_|github_pat_|glpat-|gldt-|ATBB|ATCTT|x-token-auth$|oauth2$)/;
const BLANK_OR_CONTROL = /[\s\p{Cc}]/u;

/** Returns the problem of the address, or null. */
export function gitUrlProblem(
  url: string,
  rules: GitUrlRules,
  field = 'git_url',
): FieldProblem | null {
  const verdict = judge(url, rules);
  return verdict === null ? null : { field, ...verdict };
}

function judge(url: string, rules: GitUrlRules): Verdict | null {
  if (url.startsWith('-'))
    return { rule: 'no_leading_dash', message: 'must not begin with a dash' };
  if (BLANK_OR_CONTROL.test(url))
    return {
      rule: 'no_whitespace',
      message: 'must not contain spaces, line breaks or control characters',
    };
  if (url.includes('\\')) return { rule: 'no_backslash', message: 'must not contain a backslash' };
  if (/^[a-z0-9+.-]*::/i.test(url))
    return {
      rule: 'scheme',
      message: 'remote helpers (“ext::…”) are not allowed; use https, http, ssh or user@host:path',
    };
  const parsed = url.includes('://') ? parseUrl(url) : parseScp(url);
  return 'rule' in parsed ? parsed : judgeAddress(parsed, rules);
}

function judgeAddress({ user, host, path }: Address, rules: GitUrlRules): Verdict | null {
  if (user !== '' && !USER.test(user))
    return { rule: 'user', message: `“${user}” is not a valid user name in an address` };
  if (TOKEN.test(user))
    return {
      rule: 'no_password',
      message: 'must not contain an access token; everybody who sees the project would see it',
    };
  if (host.length > 253 || !(HOST.test(host) || IPV6.test(host)))
    return { rule: 'host', message: `“${host}” is not a host name` };
  if (path.replaceAll('/', '') === '')
    return { rule: 'path', message: 'must name a repository after the host' };
  if (!isAllowed(host, rules.allowedHosts))
    return {
      rule: 'host_allowed',
      message: `the host must be one of ${rules.allowedHosts.join(', ')}`,
    };
  return null;
}

function parseUrl(url: string): Address | Verdict {
  const scheme = url.slice(0, url.indexOf('://')).toLowerCase();
  if (!SCHEMES.includes(scheme))
    return {
      rule: 'scheme',
      message: `must be an https, http or ssh address, or user@host:path, not “${scheme}:”`,
    };
  if (!URL.canParse(url)) return { rule: 'url', message: 'is not a valid address' };
  const { username, password, hostname, pathname, hash } = new URL(url);
  if (url.includes('?'))
    return {
      rule: 'no_query',
      message: 'must not contain a “?…” part; everybody who sees the project would see it',
    };
  // `https://user:@host` has an empty password. The colon alone is enough to reject it.
  const authority = url.slice(url.indexOf('://') + 3).split('/', 1)[0] ?? '';
  const userinfo = authority.includes('@') ? authority.slice(0, authority.lastIndexOf('@')) : '';
  if (password !== '' || userinfo.includes(':'))
    return {
      rule: 'no_password',
      message: 'must not contain a password; everybody who sees the project would see it',
    };
  if (hash !== '')
    return {
      rule: 'no_fragment',
      message: 'must not contain a “#…” part; name the branch in `branch`',
    };
  return { user: username, host: hostname, path: pathname };
}

/**
 * Parses `user@host:path`, the short form of ssh. Requires a user, because an address without one
 * could be a local path.
 */
function parseScp(url: string): Address | Verdict {
  const match = /^([^@/:]*)@(\[[^\]]*\]|[^:/@]*):(.*)$/.exec(url);
  if (match === null) {
    if (/^[^/@:]+:[^/]*@/.test(url))
      return {
        rule: 'no_password',
        message: 'must not contain a password; everybody who sees the project would see it',
      };
    if (/^[a-z][a-z0-9+.-]*:/i.test(url))
      return {
        rule: 'scheme',
        message: 'must be an https, http or ssh address, or user@host:path',
      };
    return {
      rule: 'url',
      message:
        'must be an https, http or ssh address, or user@host:path; paths on this machine are ' +
        'not allowed',
    };
  }
  const [, user = '', host = '', path = ''] = match;
  if (user === '') return { rule: 'user', message: 'must name a user before the @' };
  if (path.startsWith('-'))
    return { rule: 'no_leading_dash', message: 'the path must not begin with a dash' };
  return { user, host, path };
}

function isAllowed(host: string, allowed: readonly string[]): boolean {
  if (allowed.length === 0) return true;
  const name = host.toLowerCase().replace(/\.$/, '');
  return allowed.some((a) =>
    a.startsWith('*.') ? name.endsWith(a.slice(1).toLowerCase()) : name === a.toLowerCase(),
  );
}
