/**
 * Lets one request of the control plane pass the login of one project: a GET of one path, once, within ten seconds. The control
 * plane signs it with GATEWAY_SECRET, and the gateway takes it (`Authorization: Berth-Reach <token>`). The project never sees it.
 */
import { createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto';

const SCHEME = 'Berth-Reach';
const LIFETIME_MS = 10_000;
/** The gateway's clock may be behind the control plane's by this. */
const SKEW_MS = 30_000;

export type ReachClaim = { project_id: string /** Path and query, as requested. */; path: string };

/** The value of the `Authorization` header. */
export function signReach(secret: string, claim: ReachClaim, now: number): string {
  const id = randomBytes(18).toString('base64url');
  const expiresAt = now + LIFETIME_MS;
  return `${SCHEME} ${id}.${expiresAt}.${macOf(secret, claim, id, expiresAt)}`;
}

/** Null: no token of this kind. `valid` null: one that opens nothing. Whether it was used before is for the caller to ask. */
export function readReach(
  secrets: readonly string[],
  authorization: string | undefined,
  claim: ReachClaim,
  now: number,
): { valid: { id: string; expires_at: number } | null } | null {
  if (authorization?.startsWith(`${SCHEME} `) !== true) return null;
  const [, id = '', digits = '', mac = ''] = /^Berth-Reach ([\w-]{24})\.(\d{1,16})\.([\w-]{43})$/.exec(authorization) ?? [];
  const expiresAt = Number(digits);
  const good =
    id !== '' &&
    expiresAt > now &&
    expiresAt <= now + LIFETIME_MS + SKEW_MS &&
    secrets.some((secret) => sameText(mac, macOf(secret, claim, id, expiresAt)));
  return { valid: good ? { id, expires_at: expiresAt } : null };
}

/** A path and an id hold no line feed, so no two claims give the same bytes. */
function macOf(secret: string, { project_id, path }: ReachClaim, id: string, expiresAt: number): string {
  const key = Buffer.from(hkdfSync('sha256', secret, Buffer.alloc(0), 'berth reach v1', 32));
  return createHmac('sha256', key).update(`${project_id}\n${path}\n${id}\n${expiresAt}`).digest('base64url');
}

function sameText(a: string, b: string): boolean {
  const [one, two] = [Buffer.from(a), Buffer.from(b)];
  return one.length === two.length && timingSafeEqual(one, two);
}
