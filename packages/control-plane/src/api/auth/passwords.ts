/**
 * Hashes passwords with scrypt. The hash contains the parameters (`scrypt$17$8$1$salt$hash`), so
 * that the cost can be raised later.
 */
import { randomBytes, type ScryptOptions, scrypt, timingSafeEqual } from 'node:crypto';
import { DomainError } from '../../domain/platform/errors.ts';

/** `logN`: N as a power of two. */
export type PasswordCost = { logN: number; r: number; p: number };
/** OWASP's first choice for scrypt: 128 MiB and about 400 ms for each try. */
export const PASSWORD_COST: PasswordCost = { logN: 17, r: 8, p: 1 };

const KEY_BYTES = 32;
/**
 * Maximum number of hashes at a time. Each takes 128 MiB and a thread of the pool that files and
 * DNS share.
 */
const AT_ONCE = 2;
const MAX_QUEUE = 64;

export type Passwords = {
  hash(password: string): Promise<string>;
  /**
   * Verifies a password. A null hash (no such account) takes the same time, so that the duration
   * does not reveal which accounts exist. Throws too_many_requests.
   */
  verify(password: string, hash: string | null): Promise<boolean>;
};

export function createPasswords(cost: PasswordCost): Passwords {
  const gate = createGate();
  const derive = (password: string, salt: Buffer, c: PasswordCost): Promise<Buffer> =>
    gate(() => {
      const N = 2 ** c.logN;
      return scryptAsync(password.normalize('NFKC'), salt, {
        N,
        r: c.r,
        p: c.p,
        maxmem: 256 * N * c.r,
      });
    });
  const nobody = { cost, salt: randomBytes(16), key: randomBytes(KEY_BYTES) };

  return {
    async hash(password) {
      const salt = randomBytes(16);
      const key = await derive(password, salt, cost);
      return [
        'scrypt',
        cost.logN,
        cost.r,
        cost.p,
        salt.toString('base64url'),
        key.toString('base64url'),
      ].join('$');
    },
    async verify(password, hash) {
      const parsedHash = hash === null ? null : parse(hash);
      const { cost: c, salt, key } = parsedHash ?? nobody;
      const same = timingSafeEqual(await derive(password, salt, c), key);
      return same && parsedHash !== null;
    },
  };
}

function parse(hash: string): { cost: PasswordCost; salt: Buffer; key: Buffer } | null {
  const match = /^scrypt\$(\d{1,2})\$(\d{1,2})\$(\d{1,2})\$([\w-]{16,})\$([\w-]{43})$/.exec(hash);
  if (match === null) return null;
  const [, logN, r, p, salt = '', key = ''] = match;
  return {
    cost: { logN: Number(logN), r: Number(r), p: Number(p) },
    salt: Buffer.from(salt, 'base64url'),
    key: Buffer.from(key, 'base64url'),
  };
}

const scryptAsync = (password: string, salt: Buffer, options: ScryptOptions): Promise<Buffer> =>
  new Promise((resolve, reject) =>
    scrypt(password, salt, KEY_BYTES, options, (error, key) =>
      error === null ? resolve(key) : reject(error),
    ),
  );

/** Runs AT_ONCE hashes, queues MAX_QUEUE in order, and refuses the rest. */
function createGate(): <T>(work: () => Promise<T>) => Promise<T> {
  let running = 0;
  const queue: (() => void)[] = [];
  return async (work) => {
    if (running >= AT_ONCE) {
      if (queue.length >= MAX_QUEUE) throw new DomainError('too_many_requests');
      // A finished hash passes its place to the next one in the queue, so `running` does not
      // change.
      await new Promise<void>((resolve) => queue.push(resolve));
    } else running++;
    try {
      return await work();
    } finally {
      const next = queue.shift();
      if (next === undefined) running--;
      else next();
    }
  };
}
