/**
 * Custom domains: normalizes them, checks which domains a project can have, and decides about the
 * quarantine in which a domain stays reserved for its last project. Pure.
 */
import type { FieldProblem } from '../platform/errors.ts';

export type DomainRules = {
  baseDomain: string;
  /** Hosts of Berth's own addresses and of RESERVED_PREFIXES, in lower case. */
  ownHosts: readonly string[];
};

/** Default of DOMAIN_QUARANTINE. */
export const DOMAIN_QUARANTINE_MS = 7 * 86_400_000;

const NAME = /^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+$/;
/**
 * Top-level domains that never lead to a public server (RFC 6761, RFC 9476). The marker of the
 * proxy's configuration uses `invalid`.
 */
const SPECIAL = ['invalid', 'localhost', 'onion', 'alt', 'arpa'];

/**
 * Returns the name in lower case, as punycode and without a trailing dot. Returns a text that is
 * not a host name unchanged, so that its error can name it.
 */
export function normalDomain(given: string): string {
  // The URL parser would decode percent escapes and cut off paths, ports and users.
  // oxlint-disable-next-line no-control-regex
  if (/[\u0000-\u0020%/\\?#@:[\]<>^|\u007f]/.test(given)) return given;
  const ascii = URL.parse(`http://${given}/`)?.hostname ?? '';
  return ascii === '' ? given : ascii.replace(/\.$/, '');
}

/** Normalizes the domains and removes duplicates, keeping their order. */
export const normalDomains = (given: readonly string[]): string[] => [
  ...new Set(given.map(normalDomain)),
];

/** Returns true for the base domain and every host below it. */
export const isUnderBase = (host: string, baseDomain: string): boolean =>
  host === baseDomain || host.endsWith(`.${baseDomain}`);

/** Checks the normalized domains of a project with this domain prefix. */
export function domainProblems(
  domains: readonly string[],
  domainPrefix: string,
  rules: DomainRules,
): FieldProblem[] {
  return domains.flatMap((domain, i) => {
    const problem = problemOf(domain, `${domainPrefix}.${rules.baseDomain}`, rules);
    return problem === null ? [] : [{ field: `domains[${i}]`, ...problem }];
  });
}

const LIST_EACH_HOST = 'list each host, because each one needs its own certificate';

function problemOf(
  domain: string,
  ownHost: string,
  { baseDomain, ownHosts }: DomainRules,
): Omit<FieldProblem, 'field'> | null {
  const quoted = `“${domain.slice(0, 100)}”`;
  if (domain.includes('*'))
    return {
      rule: 'wildcard',
      message: `${quoted} has a wildcard: ${LIST_EACH_HOST}`,
    };
  const last = domain.slice(domain.lastIndexOf('.') + 1);
  if (isV6(domain.replace(/^\[|\]$/g, '')) || /^(\d+|0x[0-9a-f]*)$/.test(last))
    return { rule: 'ip_address', message: `${quoted} is an IP address: a domain is a host name` };
  if (domain.length > 253 || !NAME.test(domain))
    return {
      rule: 'host',
      message:
        `${quoted} is not a host name like www.example.com: labels of up to 63 letters, digits ` +
        'and dashes, with at least one dot and at most ' +
        '253 characters in all, without scheme, port and path',
    };
  const punycode = punycodeProblem(domain);
  if (punycode !== null) return punycode;
  // A platform for development can have its base domain under a special name.
  if (SPECIAL.includes(last) && !baseDomain.endsWith(`.${last}`))
    return { rule: 'reserved', message: `${quoted}: names under “.${last}” are not public` };
  if (domain === ownHost) return null;
  if (ownHosts.includes(domain) || domain === baseDomain)
    return { rule: 'reserved', message: `${quoted} is reserved for the platform` };
  if (isUnderBase(domain, baseDomain))
    return {
      rule: 'base_domain',
      message:
        `${quoted} is under ${baseDomain}: a project has only the host of its domain_prefix ` +
        `there (${ownHost})`,
    };
  return null;
}

/**
 * Returns the problem of a host with an invalid punycode label: no authority certifies such a name,
 * and browsers do not open it.
 */
export const punycodeProblem = (host: string): Omit<FieldProblem, 'field'> | null =>
  /(^|\.)xn--/.test(host) && !isPunycode(host)
    ? {
        rule: 'host',
        message:
          `“${host.slice(0, 100)}” is not a host name: its label that begins with “xn--” is no ` +
          'valid punycode',
      }
    : null;

/**
 * Returns whether all punycode labels are valid. Node.js checks the punycode only in a name with
 * non-ASCII characters, so replace each dot with an ideographic full stop.
 */
const isPunycode = (host: string): boolean =>
  URL.parse(`http://${`${host}.`.replaceAll('.', '\u3002')}/`)?.hostname === `${host}.`;

/** Returns whether the text is an IPv6 address. The URL parser checks it exactly. */
const isV6 = (text: string): boolean =>
  /^[0-9a-f.]*:[0-9a-f:.]*$/i.test(text) && URL.canParse(`http://[${text}]/`);

export type DomainClaim = {
  host: string;
  id: string;
  project_id: string;
  claimed_at: number;
  released_at: number | null;
};

/** Reason why a project must not have a domain. */
export type ClaimRefusal = { rule: 'taken' } | { rule: 'kept'; until: number };

/**
 * Returns why the project must not have a domain; null if it can. `claim`: last claim of the
 * domain.
 */
export function claimRefusal(
  claim: Omit<DomainClaim, 'host'> | undefined,
  projectId: string,
  quarantineMs: number,
  now: number,
): ClaimRefusal | null {
  if (claim === undefined || claim.project_id === projectId) return null;
  if (claim.released_at === null) return { rule: 'taken' };
  const until = claim.released_at + quarantineMs;
  return until > now ? { rule: 'kept', until } : null;
}

/** Returns the message. It names no project, because the caller might not be allowed to see it. */
export const refusalMessage = (host: string, refusal: ClaimRefusal): string =>
  refusal.rule === 'taken'
    ? `another project already has ${host}`
    : `another project had ${host} until recently; it is kept for that project until ` +
      `${new Date(refusal.until).toISOString()}, because ` +
      'browsers of its visitors still hold cookies for it. Choose another one, take it back in ' +
      'the project that had it, or ask an admin, ' +
      'who can free it with `berth domain free` (docs/domains.md)';

/**
 * Returns the custom domain and the domain prefix that an admin can mean by `given`: a host in any
 * spelling, or only a prefix.
 */
export function hostMeant(
  given: string,
  baseDomain: string,
): { domain: string; prefix: string | null } {
  const name = normalDomain(given);
  const label = name.includes('.') ? name.slice(0, -baseDomain.length - 1) : name;
  const domain = name.includes('.') ? name : `${name}.${baseDomain}`;
  return {
    domain,
    prefix: domain === `${label}.${baseDomain}` && !label.includes('.') ? label : null,
  };
}
