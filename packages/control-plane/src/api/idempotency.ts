/**
 * The Idempotency-Key header of requests that create a resource. For 24 hours the same key with the
 * same body returns the stored answer. A key belongs to one user and one path. Errors are not
 * stored.
 *
 * Stored answers can contain secrets (a token is shown once), so each one is encrypted with
 * AES-256-GCM. The encryption key is derived from JWT_SECRET and the Idempotency-Key, of which the
 * database has only a digest. So the database alone is not enough to decrypt an answer. The hash of
 * a body uses such a key too, because a body can contain a secret that is short enough to guess.
 */
import { createHash, createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { deflate, inflate } from 'node:zlib';
import { defined } from '@berth/kit/defined';
import { fingerprintOf } from '@berth/kit/fingerprint';
import type { Live } from '@berth/kit/live';
import { seal, type SealFormat, unsealWithAny } from '@berth/kit/seal';
import type { FastifyRequest } from 'fastify';
import { DomainError, invalid } from '../domain/platform/errors.ts';
import type { IdempotencyAnswerStore } from '../domain/identity/identity-stores.ts';
import { newId } from './auth/secrets.ts';

const HEADER = 'Idempotency-Key';
const LIFETIME_MS = 24 * 3_600_000;
/**
 * A request renews its claim while it runs. After DEAD_MS without a renewal, its control plane
 * counts as dead.
 */
const RENEW_MS = 500;
const DEAD_MS = 3_000;
/** Expiry of a claim, for control planes of the previous version, which do not check renewals. */
const CLAIM_MS = 60_000;
/** How long a duplicate waits for the first request. */
const WAIT_MS = 15_000;
const POLL_MS = { first: 20, longest: 250 };

export const keyOf = (request: FastifyRequest): string | null => {
  const header = request.headers['idempotency-key'];
  if (header === undefined) return null;
  const key = String(header);
  if (!/^[\x20-\x7e]{1,200}$/.test(key))
    throw invalid(HEADER, 'printable', 'must be 1 to 200 printable ASCII characters');
  return key;
};

const digest = (...parts: readonly string[]): string =>
  createHash('sha256').update(JSON.stringify(parts)).digest('base64url');

/**
 * Returns the key of a deployment, which the transaction that creates the deployment also stores.
 * If the control plane dies before it stores the answer, a repeated request creates no second
 * deployment. `earlier`: the format before schema 0010. `meaning`: the requested values, with
 * defaults filled in.
 */
export const deploymentKey = (
  { user, key, path }: { user: string; key: string; path: string },
  meaning: readonly unknown[],
): { key: string; earlier: string; bodyHash: string } => ({
  key: `user:${digest(user, path, key)}`,
  earlier: key,
  bodyHash: createHash('sha256').update(JSON.stringify(meaning)).digest('hex'),
});

/** The stored answer: body, headers of the body, and the target for the audit log. */
export type CreatedAnswer = {
  text: string;
  headers: Record<string, string>;
  target: string | null;
};
/** Calls `run` for the first request with a key and returns the stored answer to later ones. */
export type RunOnce = (
  request: { user: string; key: string; method: string; path: string; body: unknown },
  run: () => Promise<CreatedAnswer>,
) => Promise<CreatedAnswer & { replayed: boolean }>;

export function createRunOnce(deps: {
  idempotencyAnswers: IdempotencyAnswerStore;
  /** JWT_SECRET. */
  secrets: Live<readonly string[]>;
  now: () => number;
}): RunOnce {
  const { idempotencyAnswers, now } = deps;
  return async ({ user, key, method, path, body }, run) => {
    const request = digest(method, path, key);
    const secrets = deps.secrets();
    const answerSeal = createSeal(secrets, user, request, key);
    const claim = { user_id: user, request, claim: newId() };
    const hash = bodyHash(secrets, request, key, canonical(body));
    const until = performance.now() + WAIT_MS;
    // Time in ms without a renewal: the sum of the pauses, because the clocks of two control planes
    // can differ. It excludes time in which this process was stalled: then a claim of this process
    // was not renewed either.
    let watched: { renewed: string | null; ms: number } = { renewed: null, ms: 0 };
    for (let pause = POLL_MS.first; ; pause = Math.min(pause * 2, POLL_MS.longest)) {
      const outcome = await idempotencyAnswers.begin(
        {
          ...claim,
          body_hash: hash.own,
          isSameBody: hash.matches,
          claimed_until: now() + CLAIM_MS,
          expires_at: now() + LIFETIME_MS,
          ...defined({ abandoned: watched.ms > DEAD_MS ? watched.renewed : undefined }),
        },
        now(),
      );
      if (outcome.kind === 'other_body') throw new DomainError('idempotency_mismatch');
      if (outcome.kind === 'stored')
        return { ...(await answerSeal.open(outcome.answer)), replayed: true };
      if (outcome.kind === 'claimed') break;
      if (performance.now() > until)
        throw new DomainError(
          'busy',
          'the first request with this Idempotency-Key is still in progress; try again later',
        );
      if (outcome.renewed !== watched.renewed) watched = { renewed: outcome.renewed, ms: 0 };
      await sleep(pause);
      watched.ms += pause;
    }
    // Ignore failed renewals: after DEAD_MS, a repeated request takes over the claim, as if this
    // control plane were dead.
    const renewing = setInterval(
      () => void idempotencyAnswers.renew(claim, now() + CLAIM_MS).catch(() => {}),
      RENEW_MS,
    );
    let answer: CreatedAnswer;
    try {
      answer = await run();
    } catch (error) {
      await idempotencyAnswers.giveUp(claim);
      throw error;
    } finally {
      clearInterval(renewing);
    }
    await idempotencyAnswers.keep(claim, await answerSeal.close(answer));
    return { ...answer, replayed: false };
  };
}

/**
 * Serializes a body. Equivalent bodies give equal texts: the order of fields does not matter, and
 * `null` equals an absent field.
 */
function canonical(body: unknown): string {
  const sorted = (_: string, value: unknown): unknown =>
    typeof value === 'object' && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : value;
  const fields = typeof body === 'object' && body !== null ? body : {};
  return JSON.stringify(
    Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null)),
    sorted,
  );
}

const KEYED = /^k1\.([0-9a-f]{12})\.([\w-]{43})$/;

/**
 * Returns the HMAC-SHA-256 of the body, with the fingerprint of the JWT_SECRET that made its key.
 */
function bodyHash(secrets: readonly string[], request: string, key: string, body: string) {
  const macs = new Map(
    secrets.map((secret) => {
      const hmacKey = Buffer.from(
        hkdfSync('sha256', `${secret}\0${key}`, request, 'berth kept body', 32),
      );
      return [
        fingerprintOf('JWT_SECRET', secret),
        createHmac('sha256', hmacKey).update(body).digest('base64url'),
      ];
    }),
  );
  const [[fingerprint, mac] = ['', '']] = macs;
  return {
    own: `k1.${fingerprint}.${mac}`,
    matches(stored: string): boolean {
      const [, by, given] = KEYED.exec(stored) ?? [];
      // The previous version stored a plain digest; such rows expire after 24 h.
      if (by === undefined || given === undefined) return stored === digest(body);
      const expected = macs.get(by);
      // The JWT_SECRET is no longer set, so the bodies cannot be compared. The answer cannot be
      // read either; `open` reports this.
      return expected === undefined || timingSafeEqual(Buffer.from(expected), Buffer.from(given));
    },
  };
}

function createSeal(secrets: readonly string[], user: string, request: string, key: string) {
  const keyBy = (secret: string): Buffer =>
    Buffer.from(hkdfSync('sha256', `${secret}\0${key}`, request, 'berth kept answer', 32));
  const format: SealFormat = { tag: 'first', about: Buffer.from(`${user} ${request}`) };
  return {
    async close(answer: CreatedAnswer): Promise<Buffer> {
      const text = await promisify<string, Buffer>(deflate)(JSON.stringify(answer));
      return seal(keyBy(secrets[0] ?? ''), text, format);
    },
    async open(sealed: Buffer): Promise<CreatedAnswer> {
      const text = unsealWithAny(secrets.map(keyBy), sealed, format);
      if (text !== null)
        return JSON.parse(
          (await promisify<Buffer, Buffer>(inflate)(text)).toString(),
        ) as CreatedAnswer;
      throw new DomainError(
        'wrong_state',
        'the resource exists, but the stored answer was encrypted with a JWT_SECRET that is no ' +
          'longer set; find the resource in its list',
      );
    },
  };
}
