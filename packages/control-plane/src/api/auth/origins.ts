/**
 * The origin of an API session is the device token or the gateway session that opened it. If its
 * owner revokes the origin, the API session ends too. The session's tokens contain the origin. The
 * signature or the hash of the whole token protects it.
 */
import type {
  DeviceTokenStore,
  RevokedSessionStore,
} from '../../domain/identity/identity-stores.ts';

export type Origin = { kind: 'device_token' | 'gateway_session'; id: string };

const LETTERS = { d: 'device_token', s: 'gateway_session' } as const;

/** Returns `d.<id>` for a device token and `s.<id>` for a gateway session. */
export const originText = ({ kind, id }: Origin): string =>
  `${kind === 'device_token' ? 'd' : 's'}.${id}`;

/** Parses an origin. Returns null for any other text. */
export function originOf(text: string): Origin | null {
  const [, letter, id] = /^([ds])\.([\w-]{1,64})$/.exec(text) ?? [];
  return letter === undefined || id === undefined
    ? null
    : { kind: LETTERS[letter as keyof typeof LETTERS], id };
}

export type OriginStores = {
  deviceTokens: Pick<DeviceTokenStore, 'isValid'>;
  revokedSessions: Pick<RevokedSessionStore, 'has'>;
};

/**
 * Returns whether the origin is neither revoked nor expired. A session by password has no origin,
 * so nobody can revoke it.
 */
export async function isOriginValid(
  { deviceTokens, revokedSessions }: OriginStores,
  origin: Origin | null,
  now: number,
): Promise<boolean> {
  if (origin === null) return true;
  return origin.kind === 'device_token'
    ? deviceTokens.isValid(origin.id, now)
    : !(await revokedSessions.has(origin.id));
}
