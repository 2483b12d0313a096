/** Reads device tokens in Authorization headers (RFC 6750). */
import { trimOws } from '@berth/kit/ows';
import { DEVICE_TOKEN_PREFIX } from '@berth/wire/gateway';

/**
 * Returns the device token of a Bearer header (section 2.1; RFC 9110 section 11.1: the scheme is
 * case-insensitive). Returns null for every other header: it belongs to the application.
 */
export function deviceTokenIn(authorization: string | undefined): string | null {
  const token = trimOws(/^bearer[ \t]+(.*)$/i.exec(authorization ?? '')?.[1] ?? '');
  return token.startsWith(DEVICE_TOKEN_PREFIX) ? token : null;
}

/** Longer than every device token; longer tokens are refused without hashing them. */
export const MAX_TOKEN = 200;
