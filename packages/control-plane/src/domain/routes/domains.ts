/**
 * Custom domains: their normal form, which ones a project can have, and for how long a domain is
 * kept for its last project. Pure.
 */
import type { FieldProblem } from '../platform/errors.ts';

export type DomainRules = {
  baseDomain: string;
  /** Hosts of Berth's own addresses and those of RESERVED_PREFIXES, in lower case. */
  ownHosts: readonly string[];
};

/** Default of DOMAIN_QUARANTINE. */
export const DOMAIN_QUARANTINE_MS = 7 * 86_400_000;

const NAME = /^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+$/;
/**
 * RFC 6761 and RFC 9476: these never lead to a public server. The marker of the proxy's
 * configuration uses `invalid`.
 */
const SPECIAL = ['invalid', 'localhost', 'onion', 'alt', 'arpa'];

/**
 * Returns the name in lower case, as punycode and without a dot at its end. A text that is no host
 * name stays as it is, so that its error can name it.
 */
export function normalDomain(given: string): string {
  // The URL parser decodes percent escapes and cuts paths, ports and users off.
  // oxlint-disable-next-line no-control-regex
  if (/[\u0000-\u0020%/\\?#@:[\]<>^|\u007f]/.test(given)) return given;
  const ascii = URL.parse(`http://${given}/`)?.hostname ?? '';
  return ascii === '' ? given : ascii.replace(/\.$/, '');
}

/** Without repetitions, in the given order. */
export const normalDomains = (given: readonly string[]): string[] => [
  ...new Set(given.map(normalDomain)),
];

/** True for the base domain and every host below it. */
export const isUnderBase = (host: string, baseDomain: string): boolean =>
  host === baseDomain || host.endsWith(`.${baseDomain}`);

/** Checks normalised domains of a project with this domain prefix. */
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
  // A platform for development has its base domain there.
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

/** No authority certifies a name with a wrong label, and browsers do not open it. */
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
 * Node.js takes a name in ASCII as it is, and checks its punycode only beside other characters,
 * here the ideographic full stop.
 */
const isPunycode = (host: string): boolean =>
  URL.parse(`http://${`${host}.`.replaceAll('.', '\u3002')}/`)?.hostname === `${host}.`;

/** The URL parser checks it exactly. */
const isV6 = (text: string): boolean =>
  /^[0-9a-f.]*:[0-9a-f:.]*$/i.test(text) && URL.canParse(`http://[${text}]/`);

export type DomainClaim = {
  host: string;
  id: string;
  project_id: string;
  claimed_at: number;
  released_at: number | null;
};

/** Why a project must not have a domain. */
export type ClaimRefusal = { rule: 'taken' } | { rule: 'kept'; until: number };

/** `claim`: the last one of the domain. Null: the project can have it. */
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

/** The message names no project: the caller might not be allowed to see it. */
export const refusalMessage = (host: string, refusal: ClaimRefusal): string =>
  refusal.rule === 'taken'
    ? `another project already has ${host}`
    : `another project had ${host} until recently; it is kept for that project until ` +
      `${new Date(refusal.until).toISOString()}, because ` +
      'browsers of its visitors still hold cookies for it. Choose another one, take it back in ' +
      'the project that had it, or ask an admin, ' +
      'who can free it with `berth domain free` (docs/domains.md)';

/**
 * The custom domain and the domain prefix that an admin can mean by `given`: a host in any
 * spelling, or a prefix alone.
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
