/** Addresses of nodes. Pure. */
import { ipv4Inside } from '@berth/kit/mapped-address';

/**
 * Returns the canonical spelling of an address, for comparisons. fd00::1 and FD00:0:0::1 are equal,
 * as are 10.0.0.5 and ::ffff:10.0.0.5. Host names are case-insensitive.
 */
export function canonicalAddress(address: string): string {
  const [plain = '', zone] = address.split('%');
  if (!plain.includes(':') || !URL.canParse(`http://[${plain}]`)) return address.toLowerCase();
  const short = new URL(`http://[${plain}]`).hostname.slice(1, -1);
  const mapped = ipv4Inside(short);
  if (mapped !== null) return mapped;
  return zone === undefined ? short : `${short}%${zone}`;
}
