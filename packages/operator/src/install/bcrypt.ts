/**
 * Hashes passwords for the registry, which accepts only bcrypt. Every Debian has Perl, and Perl's
 * `crypt` is the one of the C library.
 */
import { randomBytes } from 'node:crypto';
import { execOk } from '@berth/kit/exec';
import { PROGRAM_ENV } from '../lib/machine.ts';

const ALPHABET = './ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';

export async function bcryptHash(password: string): Promise<string> {
  // A salt has 128 bits: 21 characters of 6 bits, and 2 bits of the last character.
  const salt = [...randomBytes(21)].map((byte) => ALPHABET[byte % 64]).join('');
  return crypt(password, `$2y$10$${salt}u`);
}

export const isBcryptOf = async (password: string, hash: string): Promise<boolean> =>
  /^\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}$/.test(hash) && (await crypt(password, hash)) === hash;

/** Passes both values through standard input, because other users can read arguments. */
async function crypt(password: string, setting: string): Promise<string> {
  const program =
    'chomp(my $setting = <STDIN>); local $/; my $password = <STDIN>; print crypt($password, ' +
    '$setting) // "";';
  const { stdout } = await execOk(['perl', '-e', program], {
    env: PROGRAM_ENV,
    stdin: `${setting}\n${password}`,
    timeoutMs: 30_000,
  });
  const hash = stdout.trim();
  if (!hash.startsWith(setting.slice(0, 29)))
    throw new Error('the C library of this machine makes no bcrypt hashes');
  return hash;
}
