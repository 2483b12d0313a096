/** Converts a provider's claims to an identity: bounded, normalised, and safe for headers. */
import { trimOws } from '@berth/kit/ows';
import type { Identity } from '@berth/wire/gateway';
import type { Claimed } from './provider.ts';

const MAX_EMAIL = 254;
const MAX_NAME = 500;
const MAX_AVATAR = 2000;

/**
 * Returns null if the e-mail address has a list separator, or a character that is not printable
 * ASCII. With other characters, two addresses could look alike or become equal in lower case.
 */
export function identityOf(claimed: Claimed, provider: string): Identity | null {
  const claimedEmail = trimOws(claimed.email ?? '');
  const email = claimedEmail.toLowerCase();
  // Check before the conversion to lower case, which can turn other characters into ASCII.
  if (!/^[!-~]+$/.test(claimedEmail)) return null;
  if (email.length > MAX_EMAIL || !/^[^@\s,;<>"]+@[^@\s,;<>"]+$/.test(email)) return null;
  return { email, name: nameOf(claimed.name), avatar_url: avatarOf(claimed.avatar_url), provider };
}

function nameOf(name: string | null): string | null {
  const plain =
    name
      ?.replace(/\p{Cc}+/gu, ' ')
      // oxlint-disable-next-line berth/no-trim -- a text for people
      .trim()
      .slice(0, MAX_NAME)
      .toWellFormed() ?? '';
  return plain === '' ? null : plain;
}

/** Returns a URL that is safe in an `img` of an application: http or https, no scripts. */
function avatarOf(url: string | null): string | null {
  if (url === null || url.length > MAX_AVATAR || !URL.canParse(url)) return null;
  const { protocol, href } = new URL(url);
  return /^https?:$/.test(protocol) && href.length <= MAX_AVATAR ? href : null;
}
