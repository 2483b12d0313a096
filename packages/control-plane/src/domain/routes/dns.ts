/** Judges whether the DNS records of a custom domain lead to this platform. Pure. */
import type { DnsState } from '@berth/wire/domain';

/** Answer of the name servers for one host name. */
export type Resolved =
  /** `addresses` is empty if the name does not exist or has no address. */
  { kind: 'answer'; addresses: string[]; cname: string | null } | { kind: 'failed'; why: string };

export type DnsVerdict = {
  state: DnsState;
  addresses: string[];
  cname: string | null;
  expected: string[];
  problem: string | null;
};
/** Checks the DNS records of domains. Never throws, and ends within a bounded time. */
export type CheckDns = (
  domains: readonly string[],
) => Promise<Map<string, DnsVerdict & { checked_at: number }>>;

/** Addresses of this platform (`resolved`), and the setting that they come from (`from`). */
export type Expected = { from: 'PUBLIC_IPS' | 'BASE_DOMAIN'; resolved: Resolved };

const SHOWN = 8;
const listOf = (addresses: readonly string[]): string =>
  addresses.length <= SHOWN
    ? addresses.join(', ')
    : `${addresses.slice(0, SHOWN).join(', ')} and ${addresses.length - SHOWN} more`;

/** Returns the canonical spelling of an address. An IPv6 address has several spellings. */
export const normalAddress = (address: string): string =>
  address.includes(':') && URL.canParse(`http://[${address}]`)
    ? new URL(`http://[${address}]`).hostname.slice(1, -1)
    : address;

export function judgeDns(domain: string, seen: Resolved, { from, resolved }: Expected): DnsVerdict {
  const expected =
    resolved.kind === 'answer' ? resolved.addresses.map(normalAddress).toSorted() : [];
  const addresses = {
    addresses: seen.kind === 'answer' ? seen.addresses.map(normalAddress).toSorted() : [],
    expected,
  };
  const verdict = (state: DnsState, problem: string | null): DnsVerdict => ({
    state,
    cname: seen.kind === 'answer' ? seen.cname : null,
    ...addresses,
    problem,
  });
  if (seen.kind === 'failed')
    return verdict(
      'unknown',
      `the name servers do not answer for ${domain} (${seen.why}): check its zone, or try ` +
        'again in a minute',
    );
  const records = expected.length === 0 ? 'the address of this platform' : listOf(expected);
  if (addresses.addresses.length === 0)
    return verdict(
      'missing',
      `${domain} has no address: at its DNS provider, create records (A, AAAA) with ` +
        `${records}, or a CNAME to a name that leads there`,
    );
  if (expected.length === 0)
    return verdict(
      'unknown',
      resolved.kind === 'failed'
        ? 'Berth does not know its own address: BASE_DOMAIN cannot be resolved ' +
            `(${resolved.why}); set PUBLIC_IPS`
        : 'Berth does not know its own address: BASE_DOMAIN has none; set PUBLIC_IPS',
    );
  const others = addresses.addresses.filter((address) => !expected.includes(address));
  if (others.length === 0) return verdict('ok', null);
  const here = `${records} (${from === 'PUBLIC_IPS' ? from : 'the addresses of BASE_DOMAIN'})`;
  if (others.length < addresses.addresses.length)
    return verdict(
      'partly',
      `${domain} also leads to ${listOf(others)}: some visitors do not arrive here; remove ` +
        'these records, or add them to PUBLIC_IPS if they are yours',
    );
  return verdict(
    'elsewhere',
    `${domain} leads to ${listOf(others)}, not to ${here}: change its records, or set ` +
      'PUBLIC_IPS if visitors arrive here in another way',
  );
}
