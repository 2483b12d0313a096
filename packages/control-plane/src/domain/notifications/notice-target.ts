/** Checks the target of a notification, and masks it for display. Pure. */
import type { NotificationKind } from '@berth/wire/notification';
import { invalid } from '../platform/errors.ts';

const MAX_RECIPIENTS = 20;
const LOCAL_PART = String.raw`[^\s@,;:<>()[\]"\\\p{Cc}]{1,64}`;
const LABEL = '[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?';
const ADDRESS = new RegExp(String.raw`^${LOCAL_PART}@(?:${LABEL}\.)*${LABEL}$`, 'iu');

/** `isLocal`: returns whether the host is an address outside the public internet. */
export type TargetRules = {
  allowedHosts: readonly string[];
  hasSmtp: boolean;
  isLocal(host: string): boolean;
};

export const hostOf = (url: URL): string =>
  url.hostname
    .replace(/^\[|\]$/g, '')
    .replace(/\.$/, '')
    .toLowerCase();
/**
 * Returns whether the list names exactly this host. A wildcard does not count, so that it never
 * allows a private address.
 */
export const isNamed = (host: string, allowedHosts: readonly string[]): boolean =>
  allowedHosts.some((name) => name.toLowerCase().replace(/^\[|\]$/g, '') === host);

export const recipientsOf = (target: string): string[] => [
  ...new Set(
    target
      .split(',')
      .map((address) => address.trim())
      .filter((address) => address !== ''),
  ),
];

/** Returns the target to store, and its masked form (`shown`). Throws validation. */
export function checkTarget(
  kind: NotificationKind,
  target: string,
  rules: TargetRules,
): { target: string; shown: string } {
  return kind === 'email' ? checkRecipients(target, rules) : checkUrl(target, rules);
}

function checkRecipients(
  target: string,
  { hasSmtp }: TargetRules,
): { target: string; shown: string } {
  if (!hasSmtp)
    throw invalid(
      'kind',
      'smtp',
      'this control plane sends no e-mail; an operator must set SMTP_URL and SMTP_FROM',
    );
  const recipients = recipientsOf(target);
  if (recipients.length === 0 || recipients.length > MAX_RECIPIENTS)
    throw invalid(
      'target',
      'recipients',
      `must be 1 to ${MAX_RECIPIENTS} e-mail addresses, comma-separated`,
    );
  const wrong = recipients.findIndex((address) => address.length > 254 || !ADDRESS.test(address));
  if (wrong >= 0)
    throw invalid('target', 'format', `address ${wrong + 1} is not an e-mail address`);
  const masked = recipients.map(
    (address) => `${address.slice(0, 1)}…${address.slice(address.lastIndexOf('@'))}`,
  );
  return { target: recipients.join(', '), shown: masked.join(', ') };
}

function checkUrl(
  target: string,
  { allowedHosts, isLocal }: TargetRules,
): { target: string; shown: string } {
  const url = URL.parse(target);
  if (url === null || (url.protocol !== 'https:' && url.protocol !== 'http:'))
    throw invalid('target', 'format', 'must be an https address');
  const host = hostOf(url);
  const named = isNamed(host, allowedHosts);
  const allow = 'an operator can allow the host in ALLOWED_NOTIFY_HOSTS';
  if (url.protocol !== 'https:' && !named)
    throw invalid('target', 'https', `must be an https address; ${allow}`);
  if (url.username !== '' || url.password !== '')
    throw invalid('target', 'userinfo', 'must have no user and no password');
  if (url.hash !== '') throw invalid('target', 'fragment', 'must have no fragment (#)');
  if (!named && (isPrivateName(host) || isLocal(host)))
    throw invalid(
      'target',
      'private',
      `must not be an address of this machine or of a private network; ${allow}`,
    );
  const rest = `${url.pathname}${url.search}`;
  return { target: url.href, shown: `${url.origin}/…${rest.length > 20 ? rest.slice(-4) : ''}` };
}

const isPrivateName = (host: string): boolean =>
  host === 'localhost' || host.endsWith('.localhost');
