/** Addresses of nodes. Pure. */

/**
 * Returns the one spelling by which addresses are compared. An address has several: fd00::1 and
 * FD00:0:0::1, 10.0.0.5 and ::ffff:10.0.0.5. Names of machines have no case.
 */
export function canonicalAddress(address: string): string {
  const [plain = '', zone] = address.split('%');
  if (!plain.includes(':') || !URL.canParse(`http://[${plain}]`)) return address.toLowerCase();
  const short = new URL(`http://[${plain}]`).hostname.slice(1, -1);
  const mapped = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(short);
  if (mapped === null) return zone === undefined ? short : `${short}%${zone}`;
  const [high, low] = [mapped[1], mapped[2]].map((group = '') => Number.parseInt(group, 16));
  return [high, low].flatMap((group = 0) => [group >> 8, group & 0xff]).join('.');
}
