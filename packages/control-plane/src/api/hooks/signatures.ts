/**
 * Checks the sender of a delivery by the header of the hook's forge (docs/push-to-deploy.md
 * "Signatures"). Hashes the body as it arrives. If headers of one family are present, only this
 * family is checked.
 */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { type Forge, STANDARD_SECRET_PREFIX } from '@berth/wire/hook';

/**
 * Maximum difference between the time of a delivery and this machine's clock (Standard Webhooks).
 */
const TOLERANCE_S = 5 * 60;

export type SignatureCheck = {
  update(chunk: Buffer): void;
  /**
   * Returns why the delivery is refused; null if it is valid. Call it once, after the whole body.
   */
  problem(): string | null;
};

/**
 * Headers that can authenticate a delivery. A request without any of them is refused before its
 * body is read.
 */
const PROOFS = [
  'x-hub-signature-256',
  'x-hub-signature',
  'x-gitlab-token',
  'webhook-signature',
  'x-gitea-signature',
  'x-forgejo-signature',
  'authorization',
] as const;
export const hasProof = (headers: IncomingHttpHeaders): boolean =>
  PROOFS.some((name) => headers[name] !== undefined);

type Given = { secret: string; headers: IncomingHttpHeaders; now: number };

export function checkSignature(forge: Forge, given: Given): SignatureCheck {
  const { secret, headers } = given;
  switch (forge) {
    case 'github':
      return signed(secret, headers, 'x-hub-signature-256', 'sha256=');
    case 'bitbucket':
      return signed(secret, headers, 'x-hub-signature', 'sha256=');
    case 'gitea':
      return signed(secret, headers, 'x-gitea-signature', '');
    case 'forgejo':
      return signed(
        secret,
        headers,
        headers['x-forgejo-signature'] === undefined ? 'x-gitea-signature' : 'x-forgejo-signature',
        '',
      );
    case 'gitlab':
      return secret.startsWith(STANDARD_SECRET_PREFIX)
        ? standard(given)
        : shown(secret, headers, 'x-gitlab-token', '');
    case 'generic':
      return headers.authorization === undefined
        ? signed(secret, headers, 'x-hub-signature-256', 'sha256=')
        : shown(secret, headers, 'authorization', 'Bearer ');
  }
}

/** Checks a header that contains the secret itself. */
function shown(
  secret: string,
  headers: IncomingHttpHeaders,
  name: string,
  prefix: string,
): SignatureCheck {
  const text = textOf(headers, name);
  return {
    update: () => undefined,
    problem() {
      if (text === null) return `the header ${name} is missing`;
      // Schemes are case-insensitive (RFC 9110 section 11.1).
      const isRight =
        text.slice(0, prefix.length).toLowerCase() === prefix.toLowerCase() &&
        isEqual(text.slice(prefix.length), secret);
      return isRight ? null : `the header ${name} has a wrong secret`;
    },
  };
}

/** Checks a header that contains the HMAC of the body in hexadecimal. */
function signed(
  secret: string,
  headers: IncomingHttpHeaders,
  name: string,
  prefix: string,
): SignatureCheck {
  const text = textOf(headers, name);
  const hmac = createHmac('sha256', secret);
  return {
    update: (chunk) => void hmac.update(chunk),
    problem() {
      if (text === null) return `the header ${name} is missing`;
      return isEqual(text.toLowerCase(), prefix + hmac.digest('hex'))
        ? null
        : `the signature in ${name} is wrong`;
    },
  };
}

/**
 * Checks Standard Webhooks: `webhook-signature` contains the HMAC of id, time and body, possibly
 * several times with different keys.
 */
function standard({ secret, headers, now }: Given): SignatureCheck {
  const [id, time, signatures] = ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map(
    (name) => textOf(headers, name),
  );
  const hmac = createHmac(
    'sha256',
    Buffer.from(secret.slice(STANDARD_SECRET_PREFIX.length), 'base64'),
  );
  hmac.update(`${id}.${time}.`);
  return {
    update: (chunk) => void hmac.update(chunk),
    problem() {
      if (!id || !time || !signatures)
        return (
          'a header is missing: ' +
          'webhook-id, webhook-timestamp and webhook-signature are required'
        );
      const wanted = hmac.digest('base64');
      const isRight =
        signatures
          .split(' ')
          .filter((s) => s.startsWith('v1,') && isEqual(s.slice('v1,'.length), wanted)).length > 0;
      if (!isRight) return 'the signature in webhook-signature is wrong';
      const seconds = /^\d{1,12}$/.test(time) ? Number(time) : Number.NaN;
      const age = Math.round(now / 1000 - seconds);
      if (Math.abs(age) <= TOLERANCE_S) return null;
      return Number.isNaN(age)
        ? 'webhook-timestamp is not a number'
        : `the time in webhook-timestamp differs from the clock of Berth by ${Math.abs(age)} s`;
    },
  };
}

/** Returns whether a secret has the form of Standard Webhooks. */
export function isStandardSecret(secret: string): boolean {
  const text = secret.slice(STANDARD_SECRET_PREFIX.length);
  const key = Buffer.from(text, 'base64');
  return (
    key.length >= 24 &&
    key.length <= 64 &&
    key.toString('base64').replace(/=+$/, '') === text.replace(/=+$/, '')
  );
}

function textOf(headers: IncomingHttpHeaders, name: string): string | null {
  const value = headers[name];
  return typeof value === 'string' ? value : null;
}

/** Compares hashes, so that the duration reveals neither the content nor the length. */
function isEqual(a: string, b: string): boolean {
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(a), digest(b));
}
