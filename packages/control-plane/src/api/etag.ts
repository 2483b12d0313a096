/** Entity tags (RFC 9110 sections 8.8.3 and 13.1.2). */
import { hash } from 'node:crypto';
import { trimOws } from '@berth/kit/ows';
import { DomainError } from '../domain/platform/errors.ts';

export const etagOf = (bytes: string): string =>
  `"${hash('sha256', bytes, 'base64url').slice(0, 27)}"`;

/**
 * Refuses a change that is based on an old state. `etag`: tag of the current record. If-Match
 * compares strongly (RFC 9110 section 13.1.1), so a weak tag never matches. Call it inside the
 * transaction that changes the record. Throws changed_meanwhile.
 */
export function checkIfMatch(ifMatch: string | undefined, etag: string): void {
  if (ifMatch === undefined || trimOws(ifMatch) === '*') return;
  const strong = [...ifMatch.matchAll(/(W\/)?("[^"]*")/g)]
    .filter(([, weak]) => weak === undefined)
    .map(([, , tag]) => tag);
  if (!strong.includes(etag))
    throw new DomainError(
      'changed_meanwhile',
      'the resource changed after you read it, or If-Match is not its ETag; read it again',
    );
}

/**
 * Returns whether If-None-Match contains the tag. It compares weakly: `W/"x"` equals `"x"`. `*`
 * matches every tag.
 */
export function matchesEtag(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false;
  return ifNoneMatch
    .split(',')
    .map((tag) => trimOws(tag).replace(/^W\//, ''))
    .some((tag) => tag === '*' || tag === etag);
}
