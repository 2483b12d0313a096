/** Entity tags (RFC 9110 sections 8.8.3 and 13.1.2). */
import { hash } from 'node:crypto';
import { trimOws } from '@berth/kit/ows';

export const etagOf = (bytes: string): string => `"${hash('sha256', bytes, 'base64url').slice(0, 27)}"`;

/** If-None-Match compares weakly: `W/"x"` is `"x"`. `*` matches whatever there is. */
export function matchesEtag(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false;
  return ifNoneMatch
    .split(',')
    .map((tag) => trimOws(tag).replace(/^W\//, ''))
    .some((tag) => tag === '*' || tag === etag);
}
