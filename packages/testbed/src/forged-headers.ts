/**
 * Every spelling of an identity header that some application reads as that header. Attack tests
 * send these.
 */
import { IDENTITY_HEADERS } from '@berth/wire/vocabulary';

/**
 * Token characters of RFC 9110 (section 5.6.2) that are neither letters nor digits. Some servers
 * fold them into `_`.
 */
const SEPARATORS = "-_.!#$%&'*+^`|~".split('');
/**
 * The characters that common servers fold: CGI, WSGI and Rack fold `-`, and PHP folds `.` as well.
 */
const COMMON_SEPARATORS = ['-', '_', '.'];

/** Returns the name as an application with the widest folding reads it. Case never matters. */
export const asAnApplicationReads = (name: string): string =>
  name.toLowerCase().replaceAll(/[^a-z0-9]/g, '-');
const IDENTITY = new Set(IDENTITY_HEADERS.map(asAnApplicationReads));
export const isIdentityHeader = (name: string): boolean => IDENTITY.has(asAnApplicationReads(name));

/**
 * Every mix of `-`, `_` and `.` in every identity header: as written, in lower case and in upper
 * case.
 */
export const COMMONLY_FORGED_HEADERS: readonly string[] = IDENTITY_HEADERS.flatMap((name) =>
  mixes(name, COMMON_SEPARATORS),
).flatMap((name) => [name, name.toLowerCase(), name.toUpperCase()]);

/**
 * The spellings above, and every other separator: at all places, and at one place beside dashes.
 */
export const FORGED_HEADERS: readonly string[] = [
  ...COMMONLY_FORGED_HEADERS,
  ...SEPARATORS.filter((separator) => !COMMON_SEPARATORS.includes(separator)).flatMap((separator) =>
    IDENTITY_HEADERS.flatMap((name) => [
      name.replaceAll('-', separator),
      name.replace('-', separator),
    ]),
  ),
];

function mixes(name: string, separators: readonly string[]): string[] {
  const [first = '', ...rest] = name.split('-');
  return rest.reduce<string[]>(
    (heads, part) =>
      heads.flatMap((head) => separators.map((separator) => head + separator + part)),
    [first],
  );
}
