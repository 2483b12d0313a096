/** Entity tags (RFC 9110 sections 8.8.3 and 13.1.2). */
import { hash } from 'node:crypto';
import { trimOws } from '@berth/kit/ows';
import { DomainError } from '../domain/errors.ts';

export const etagOf = (bytes: string): string => `"${hash('sha256', bytes, 'base64url').slice(0, 27)}"`;

/**
 * Refuses a change made on the ground of another state: `etag` is that of the record as it stands. If-Match compares strongly
 * (RFC 9110 section 13.1.1), so a weak tag never matches. Call it where nobody can change the record meanwhile. Throws changed_meanwhile.
 */
export function checkIfMatch(ifMatch: string | undefined, etag: string): void {
  if (ifMatch === undefined || trimOws(ifMatch) === '*') return;
  const strong = [...ifMatch.matchAll(/(W\/)?("[^"]*")/g)].filter(([, weak]) => weak === undefined).map(([, , tag]) => tag);
  if (!strong.includes(etag))
    throw new DomainError('changed_meanwhile', 'the resource changed after you read it, or If-Match is not its ETag');
}

/** If-None-Match compares weakly: `W/"x"` is `"x"`. `*` matches whatever there is. */
export function matchesEtag(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false;
  return ifNoneMatch
    .split(',')
    .map((tag) => trimOws(tag).replace(/^W\//, ''))
    .some((tag) => tag === '*' || tag === etag);
}
