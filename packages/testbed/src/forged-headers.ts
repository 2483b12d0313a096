/** Every way an identity header can be spelled so that some application reads it as one: what attack tests send. */
import { IDENTITY_HEADERS } from '@berth/wire/vocabulary';

/** Applications that get their headers by CGI, WSGI or Rack see `-` and `_` alike, and none minds the case. */
export const asAnApplicationReads = (name: string): string => name.toLowerCase().replaceAll('_', '-');
const IDENTITY = new Set(IDENTITY_HEADERS.map(asAnApplicationReads));
export const isIdentityHeader = (name: string): boolean => IDENTITY.has(asAnApplicationReads(name));

/** Every mix of `-` and `_` of every identity header, each as written, in lower and in upper case: 108 spellings. */
export const FORGED_HEADERS: readonly string[] = IDENTITY_HEADERS.flatMap(mixes).flatMap((name) => [
  name,
  name.toLowerCase(),
  name.toUpperCase(),
]);

function mixes(name: string): string[] {
  const [first = '', ...rest] = name.split('-');
  return rest.reduce<string[]>((heads, part) => heads.flatMap((head) => [`${head}-${part}`, `${head}_${part}`]), [first]);
}
