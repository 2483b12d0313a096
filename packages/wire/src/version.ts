/**
 * Version information, for bug reports and for programs that check the features of a control plane.
 */
import { Type } from 'typebox';
import { orNull } from './vocabulary.ts';

/** Version of Berth; equal to package.json. */
export const BERTH_VERSION = '0.2.0';
/**
 * Oldest agent version that is tested with this control plane. Contract-only agents send no
 * version.
 */
export const OLDEST_AGENT = '0.1.0';
/** First release of each major version of Node.js that has the security fixes of October 2026. */
const SAFE_NODE: Readonly<Record<number, string>> = { 24: '24.22.1', 26: '26.12.1' };

/**
 * Returns a warning if this version of Node.js lacks security fixes, for /readyz and the operator;
 * null otherwise.
 */
export function nodeWarning(version: string): string | null {
  const [major = 0, minor = 0, patch = 0] = version
    .split('.')
    .map((part) => Number.parseInt(part, 10));
  const least = SAFE_NODE[major];
  if (least === undefined) return null;
  const [, leastMinor = 0, leastPatch = 0] = least.split('.').map(Number);
  if (minor > leastMinor || (minor === leastMinor && patch >= leastPatch)) return null;
  return `Node.js ${version} lacks security fixes: run Berth with ${least} or newer`;
}

/** Returns whether `version` is older than `than`. Ignores a suffix such as `-rc.1`. */
export function isOlderVersion(version: string, than: string): boolean {
  const numbers = (text: string): number[] =>
    (/\d+(\.\d+)*/.exec(text)?.[0] ?? '').split('.').map(Number);
  const [left, right] = [numbers(version), numbers(than)];
  for (const [i, least] of right.entries())
    if ((left[i] ?? 0) !== least) return (left[i] ?? 0) < least;
  return false;
}

export const Version = Type.Object({
  version: Type.String({ description: 'version of Berth' }),
  commit: orNull(Type.String({ description: 'commit of this build; null if unknown' })),
  node: Type.String({ description: 'version of Node.js' }),
  schema: Type.String({ description: 'newest migration that the database has' }),
  oldest_agent: Type.String({
    description: 'oldest agent version that works with this control plane',
  }),
});
