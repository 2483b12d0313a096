/**
 * The Idempotency-Key header on every request that creates something: the same key with the same body gives the stored answer
 * again for 24 hours. A key belongs to one user and one path. Errors are not stored.
 *
 * Stored answers may hold secrets (a token is shown once), so each is sealed with AES-256-GCM by a key derived from the
 * Idempotency-Key, of which the database holds a digest alone, and from JWT_SECRET: the database alone opens none.
 */
import { createCipheriv, createDecipheriv, createHash, hkdfSync, randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { deflate, inflate } from 'node:zlib';
import type { FastifyRequest } from 'fastify';
import { DomainError, invalid } from '../domain/errors.ts';
import type { KeptAnswerStore } from '../domain/identity-stores.ts';
import { newId } from './auth/secrets.ts';

const HEADER = 'Idempotency-Key';
const LIFETIME_MS = 24 * 3_600_000;
/** A request renews its claim while it runs. Without a renewal for DEAD_MS its control plane counts as dead. */
const RENEW_MS = 500;
const DEAD_MS = 3_000;
/** The end that the claim names: for control planes of the previous version, which do not watch renewals. */
const CLAIM_MS = 60_000;
/** How long a duplicate waits for the first request, and between two looks. */
const WAIT_MS = 15_000;
const LOOK_MS = { first: 20, longest: 250 };

export const keyOf = (request: FastifyRequest): string | null => {
  const header = request.headers['idempotency-key'];
  if (header === undefined) return null;
  const key = String(header);
  if (!/^[\x20-\x7e]{1,200}$/.test(key)) throw invalid(HEADER, 'printable', 'must be 1 to 200 printable ASCII characters');
  return key;
};

const digest = (...parts: readonly string[]): string => createHash('sha256').update(JSON.stringify(parts)).digest('base64url');

/**
 * The key of a deployment, which is written in the transaction that creates it: a control plane that dies between that and the
 * stored answer makes no second one. `earlier`: as versions before 0010 wrote it. `meaning`: what is asked for, with what was left
 * out filled in.
 */
export const deploymentKey = (
  { user, key, path }: { user: string; key: string; path: string },
  meaning: readonly unknown[],
): { key: string; earlier: string; bodyHash: string } => ({
  key: `user:${digest(user, path, key)}`,
  earlier: key,
  bodyHash: createHash('sha256').update(JSON.stringify(meaning)).digest('hex'),
});

/** What is sent again: the body as it was, and the headers that say something about it. */
export type CreatedAnswer = { text: string; headers: Record<string, string>; target: string | null };
export type Once = (
  asked: { user: string; key: string; method: string; path: string; body: unknown },
  run: () => Promise<CreatedAnswer>,
) => Promise<CreatedAnswer & { replayed: boolean }>;

export function createOnce(deps: { keptAnswers: KeptAnswerStore; secrets: readonly string[]; now: () => number }): Once {
  const { keptAnswers, secrets, now } = deps;
  return async ({ user, key, method, path, body }, run) => {
    const request = digest(method, path, key);
    const seal = createSeal(secrets, user, request, key);
    const claim = { user_id: user, request, claim: newId() };
    const body_hash = digest(canonical(body));
    const until = performance.now() + WAIT_MS;
    // Counted by the pauses: the clocks of two control planes may differ, and a stalled process does not renew its own claims either.
    let watched = { renewed: '', ms: 0 };
    for (let pause = LOOK_MS.first; ; pause = Math.min(pause * 2, LOOK_MS.longest)) {
      const found = await keptAnswers.begin(
        {
          ...claim,
          body_hash,
          claimed_until: now() + CLAIM_MS,
          expires_at: now() + LIFETIME_MS,
          ...(watched.ms > DEAD_MS ? { dead: watched.renewed } : {}),
        },
        now(),
      );
      if (found.kind === 'other body') throw new DomainError('idempotency_mismatch');
      if (found.kind === 'kept') return { ...(await seal.open(found.answer)), replayed: true };
      if (found.kind === 'mine') break;
      if (performance.now() > until) throw new DomainError('busy', 'the first request with this Idempotency-Key is still in progress');
      if (found.renewed !== watched.renewed) watched = { renewed: found.renewed, ms: 0 };
      await sleep(pause);
      watched.ms += pause;
    }
    // A renewal that fails leaves the claim to others, as if this control plane were dead.
    const renewing = setInterval(() => void keptAnswers.renew(claim, now() + CLAIM_MS).catch(() => {}), RENEW_MS);
    let answer: CreatedAnswer;
    try {
      answer = await run();
    } catch (error) {
      await keptAnswers.giveUp(claim);
      throw error;
    } finally {
      clearInterval(renewing);
    }
    await keptAnswers.keep(claim, await seal.close(answer));
    return { ...answer, replayed: false };
  };
}

/** Equal for bodies of one meaning: the order of fields and a `null` in place of a field that is left out change nothing. */
function canonical(body: unknown): string {
  const sorted = (_: string, value: unknown): unknown =>
    typeof value === 'object' && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : value;
  const given = typeof body === 'object' && body !== null ? body : {};
  return JSON.stringify(Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null)), sorted);
}

const [NONCE, TAG] = [12, 16];

function createSeal(secrets: readonly string[], user: string, request: string, key: string) {
  const keyBy = (secret: string): Buffer => Buffer.from(hkdfSync('sha256', `${secret}\0${key}`, request, 'berth kept answer', 32));
  const about = Buffer.from(`${user} ${request}`);
  return {
    async close(answer: CreatedAnswer): Promise<Buffer> {
      const nonce = randomBytes(NONCE);
      const cipher = createCipheriv('aes-256-gcm', keyBy(secrets[0] ?? ''), nonce).setAAD(about);
      const text = cipher.update(await promisify<string, Buffer>(deflate)(JSON.stringify(answer)));
      cipher.final();
      return Buffer.concat([nonce, cipher.getAuthTag(), text]);
    },
    async open(sealed: Buffer): Promise<CreatedAnswer> {
      for (const secret of secrets) {
        const decipher = createDecipheriv('aes-256-gcm', keyBy(secret), sealed.subarray(0, NONCE), { authTagLength: TAG })
          .setAAD(about)
          .setAuthTag(sealed.subarray(NONCE, NONCE + TAG));
        const text = decipher.update(sealed.subarray(NONCE + TAG));
        try {
          decipher.final();
        } catch {
          // Sealed under another secret: an earlier one, or one that is gone.
          continue;
        }
        return JSON.parse((await promisify<Buffer, Buffer>(inflate)(text)).toString()) as CreatedAnswer;
      }
      throw new DomainError('wrong_state', 'the answer to this Idempotency-Key was sealed under a JWT_SECRET that is gone; it was created');
    },
  };
}
