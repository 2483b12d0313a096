/**
 * Tokens for reach checks. With a token, the control plane can send one GET request to one path of
 * a project without a login, within 10 s. The control plane signs the token with GATEWAY_SECRET,
 * and the gateway checks it (`Authorization: Berth-Reach <token>`). The project never sees the
 * token.
 */
import { createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto';

const SCHEME = 'Berth-Reach';
const LIFETIME_MS = 10_000;
/** Allowed delay of the gateway's clock behind the control plane's clock. */
const SKEW_MS = 30_000;

export type ReachClaim = {
  project_id: string;
  /** Path and query, as requested. */
  path: string;
};

/** Returns the value of the `Authorization` header. */
export function signReach(secret: string, claim: ReachClaim, now: number): string {
  const id = randomBytes(18).toString('base64url');
  const expiresAt = now + LIFETIME_MS;
  return `${SCHEME} ${id}.${expiresAt}.${macOf(secret, claim, id, expiresAt)}`;
}

/**
 * Returns null if the header has no reach token; `valid` is null for an invalid token. The caller
 * must check whether the token was already used.
 */
export function readReach(
  secrets: readonly string[],
  authorization: string | undefined,
  claim: ReachClaim,
  now: number,
): { valid: { id: string; expires_at: number } | null } | null {
  if (authorization?.startsWith(`${SCHEME} `) !== true) return null;
  const [, id = '', digits = '', mac = ''] =
    /^Berth-Reach ([\w-]{24})\.(\d{1,16})\.([\w-]{43})$/.exec(authorization) ?? [];
  const expiresAt = Number(digits);
  const good =
    id !== '' &&
    expiresAt > now &&
    expiresAt <= now + LIFETIME_MS + SKEW_MS &&
    secrets.some((secret) => sameText(mac, macOf(secret, claim, id, expiresAt)));
  return { valid: good ? { id, expires_at: expiresAt } : null };
}

/** A path and an id cannot contain a line feed, so different claims give different bytes. */
function macOf(
  secret: string,
  { project_id, path }: ReachClaim,
  id: string,
  expiresAt: number,
): string {
  const key = Buffer.from(hkdfSync('sha256', secret, Buffer.alloc(0), 'berth reach v1', 32));
  return createHmac('sha256', key)
    .update(`${project_id}\n${path}\n${id}\n${expiresAt}`)
    .digest('base64url');
}

function sameText(a: string, b: string): boolean {
  const [one, two] = [Buffer.from(a), Buffer.from(b)];
  return one.length === two.length && timingSafeEqual(one, two);
}
