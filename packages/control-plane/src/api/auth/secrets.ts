/**
 * Generates secrets. The database has their SHA-256: the secrets are long and random, so a slow
 * hash would add nothing.
 */
import { createHash, randomBytes, randomInt } from 'node:crypto';
import { DEVICE_TOKEN_PREFIX, USER_CODE_LENGTH, USER_CODE_LETTERS } from '@berth/wire/gateway';
import { JOIN_TOKEN_PREFIX, NODE_SECRET_PREFIX } from '@berth/wire/node';
import { API_TOKEN_PREFIX } from '@berth/wire/token';
import { type Origin, originOf, originText } from './origins.ts';

export const sha256Of = (secret: string): string =>
  createHash('sha256').update(secret).digest('hex');

const random = (): string => randomBytes(32).toString('base64url');
/** Returns an id that never begins with a dash. */
export const newId = (): string => randomBytes(12).toString('hex');
export const newDeviceCode = random;
export const newDeviceToken = (): string => DEVICE_TOKEN_PREFIX + random();
export const newApiToken = (): string => API_TOKEN_PREFIX + random();

/**
 * The secret contains the id of the node or token: the lookup uses the id, and the comparison takes
 * constant time.
 */
export const newNodeSecret = (nodeId: string): string =>
  `${NODE_SECRET_PREFIX}${nodeId}_${random()}`;
export const newJoinToken = (id: string): string => `${JOIN_TOKEN_PREFIX}${id}_${random()}`;

/**
 * Contains the session id, so that Berth recognizes the reuse of an older token, although it stores
 * only the hash of the current token.
 */
export const newRefreshToken = (sessionId: string, origin: Origin | null): string =>
  `berthref_${sessionId}${origin === null ? '' : `.${originText(origin)}`}_${random()}`;
/** Parses a refresh token. Returns null for any other text. */
export function readRefreshToken(
  refreshToken: string,
): { sessionId: string; origin: Origin | null } | null {
  const [, sessionId, origin] =
    /^berthref_([0-9a-f]{24})(?:\.([ds]\.[\w-]{1,64}))?_[\w-]{43}$/.exec(refreshToken) ?? [];
  return sessionId === undefined
    ? null
    : { sessionId, origin: origin === undefined ? null : originOf(origin) };
}

/** Returns a new code in the form that people read: `BCDF-GHJK`. */
export function newUserCode(): string {
  const letters = Array.from(
    { length: USER_CODE_LENGTH },
    () => USER_CODE_LETTERS[randomInt(USER_CODE_LETTERS.length)] ?? '',
  );
  return formatUserCode(letters.join(''));
}
/**
 * Normalizes a typed code: ignores case, spaces and dashes (RFC 8628 section 6.1). Returns null for
 * text that cannot be a user code.
 */
export function userCodeOf(typed: string): string | null {
  const letters = typed.replace(/[\s\p{Pd}]/gu, '').toUpperCase();
  return USER_CODE.test(letters) ? letters : null;
}
const USER_CODE = new RegExp(`^[${USER_CODE_LETTERS}]{${USER_CODE_LENGTH}}$`);
export const formatUserCode = (letters: string): string =>
  `${letters.slice(0, 4)}-${letters.slice(4)}`;
