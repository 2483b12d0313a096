/**
 * What opened a session of the API where its owner can revoke it: a device token, or a session at the gateway. The session of the API
 * ends with it. The origin stands in the session's tokens, where the signature or the hash of the whole token protects it.
 */
import type { Stores } from '../../domain/stores.ts';

export type Origin = { kind: 'device_token' | 'gateway_session'; id: string };

const LETTERS = { d: 'device_token', s: 'gateway_session' } as const;

/** `d.<id>` or `s.<id>`. */
export const originText = ({ kind, id }: Origin): string => `${kind === 'device_token' ? 'd' : 's'}.${id}`;

/** null: the text names no origin. */
export function originOf(text: string): Origin | null {
  const [, letter, id] = /^([ds])\.([\w-]{1,64})$/.exec(text) ?? [];
  return letter === undefined || id === undefined ? null : { kind: LETTERS[letter as keyof typeof LETTERS], id };
}

/** Whether the origin was neither revoked nor, as a device token, has expired. Sessions by password have no origin and stand. */
export async function stands(
  stores: Pick<Stores, 'deviceTokens' | 'revokedSessions'>,
  origin: Origin | null,
  now: number,
): Promise<boolean> {
  if (origin === null) return true;
  return origin.kind === 'device_token' ? stores.deviceTokens.stands(origin.id, now) : !(await stores.revokedSessions.has(origin.id));
}
