/** An identity of ours from what a provider says: bounded, in one spelling, fit to stand in a header. */
import type { Identity } from '@berth/wire/gateway';
import type { Claimed } from './provider.ts';

const LONGEST_EMAIL = 254;
const LONGEST_NAME = 500;
const LONGEST_AVATAR = 2000;

/**
 * Printable ASCII without what separates lists: beyond it two addresses can look like one, or become one when their case is changed.
 * null where there is no such address.
 */
export function identityOf(claimed: Claimed, provider: string): Identity | null {
  const email = claimed.email?.trim().toLowerCase() ?? '';
  if (claimed.email === null || !/^[!-~]+$/.test(claimed.email.trim())) return null;
  if (email.length > LONGEST_EMAIL || !/^[^@\s,;<>"]+@[^@\s,;<>"]+$/.test(email)) return null;
  return { email, name: nameOf(claimed.name), avatar_url: avatarOf(claimed.avatar_url), provider };
}

function nameOf(name: string | null): string | null {
  const plain =
    name
      ?.replace(/\p{Cc}+/gu, ' ')
      .trim()
      .slice(0, LONGEST_NAME)
      .toWellFormed() ?? '';
  return plain === '' ? null : plain;
}

/** What an application may put into an `img` without thinking: an address on the web, nothing that runs. */
function avatarOf(url: string | null): string | null {
  if (url === null || url.length > LONGEST_AVATAR || !URL.canParse(url)) return null;
  const { protocol, href } = new URL(url);
  return /^https?:$/.test(protocol) && href.length <= LONGEST_AVATAR ? href : null;
}
