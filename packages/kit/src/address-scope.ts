/**
 * Classifies an address by its network. Berth sends requests to addresses that developers choose;
 * these requests must not reach services that only this machine can reach. No other code lists such
 * addresses.
 */
import { BlockList, isIP } from 'node:net';

/**
 * `local`: this machine, its link, or a form that could bypass these lists, such as Teredo.
 * `private`: a private or reserved network. `public`: the public internet.
 */
export type AddressScope = 'local' | 'private' | 'public';

const listOf = (family: 'ipv4' | 'ipv6', networks: readonly string[]): BlockList => {
  const list = new BlockList();
  for (const network of networks) {
    const [address = '', bits] = network.split('/');
    list.addSubnet(address, Number(bits), family);
  }
  return list;
};
const LOCAL_4 = listOf('ipv4', ['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/3']);
/** IANA's special-purpose registry, and carrier-grade NAT. */
const PRIVATE_4 = listOf('ipv4', [
  ...[
    '10.0.0.0/8',
    '100.64.0.0/10',
    '172.16.0.0/12',
    '192.0.0.0/24',
    '192.0.2.0/24',
    '192.88.99.0/24',
    '192.168.0.0/16',
  ],
  ...['198.18.0.0/15', '198.51.100.0/24', '203.0.113.0/24'],
]);
/**
 * Includes the deprecated IPv4-compatible addresses, NAT64 for local use, Teredo, and the discard
 * prefix.
 */
const LOCAL_6 = listOf('ipv6', [
  '::/96',
  '64:ff9b:1::/48',
  '100::/64',
  '2001::/32',
  'fe80::/10',
  'ff00::/8',
]);
/** Only 2000::/3 is public, except the networks in PRIVATE_6. */
const PUBLIC_6 = listOf('ipv6', ['2000::/3']);
const PRIVATE_6 = listOf('ipv6', ['2001::/23', '2001:db8::/32', '3fff::/20']);

function scopeOf4(address: string): AddressScope {
  if (LOCAL_4.check(address, 'ipv4')) return 'local';
  return PRIVATE_4.check(address, 'ipv4') ? 'private' : 'public';
}

/** Returns the groups of an IPv6 address. */
function groupsOf(address: string): number[] {
  // The URL parser writes every spelling as hexadecimal groups.
  const [head = '', tail] = new URL(`http://[${address}]`).hostname.slice(1, -1).split('::');
  const read = (text: string): number[] =>
    text === '' ? [] : text.split(':').map((group) => Number.parseInt(group, 16));
  const [before, after] = [read(head), read(tail ?? '')];
  return [
    ...before,
    ...Array.from({ length: 8 - before.length - after.length }, () => 0),
    ...after,
  ];
}
const dotted = (high = 0, low = 0): string =>
  [high >> 8, high & 255, low >> 8, low & 255].join('.');

/** Returns the IPv4 address in an IPv6 address (mapped, NAT64, 6to4, ISATAP), or null. */
function inside(groups: readonly number[]): { address: string; isMapped: boolean } | null {
  const isZero = (from: number, to: number): boolean =>
    groups.slice(from, to).every((group) => group === 0);
  const last = dotted(groups[6], groups[7]);
  if (isZero(0, 5) && groups[5] === 0xffff) return { address: last, isMapped: true };
  // IPv4-translated (RFC 2765)
  if (isZero(0, 4) && groups[4] === 0xffff && groups[5] === 0)
    return { address: last, isMapped: false };
  if (groups[0] === 0x64 && groups[1] === 0xff9b && isZero(2, 6))
    return { address: last, isMapped: false };
  if (groups[0] === 0x2002) return { address: dotted(groups[1], groups[2]), isMapped: false };
  if (((groups[4] ?? 0) & ~0x200) === 0 && groups[5] === 0x5efe)
    return { address: last, isMapped: false };
  return null;
}

/** Returns the scope of an address. A text that is not an address counts as local. */
export function addressScope(text: string): AddressScope {
  const address = text.replace(/%.*$/, '');
  const family = isIP(address);
  if (family === 0) return 'local';
  if (family === 4) return scopeOf4(address);
  const embedded = inside(groupsOf(address));
  if (embedded !== null) {
    const scope = scopeOf4(embedded.address);
    // The other forms depend on a gateway of the local network, so they never count as public.
    return scope === 'public' && !embedded.isMapped ? 'private' : scope;
  }
  if (LOCAL_6.check(address, 'ipv6')) return 'local';
  return PUBLIC_6.check(address, 'ipv6') && !PRIVATE_6.check(address, 'ipv6')
    ? 'public'
    : 'private';
}
