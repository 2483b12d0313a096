/** The first account, made from settings when there is none; with a password of our own making where none was given. */
import { randomBytes } from 'node:crypto';
import { mkdir, open, rename } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Logger } from '@berth/kit/log';
import type { UserStore } from '../../domain/stores.ts';
import type { Passwords } from './passwords.ts';

export type FirstAdmin = {
  email: string;
  /** null: one is made and written to `passwordFile`. */
  password: string | null;
  passwordFile: string;
};

/** Where there are accounts already, nothing happens: ADMIN_PASSWORD is for the first start alone. */
export async function ensureFirstAdmin(
  users: UserStore,
  passwords: Passwords,
  settings: FirstAdmin,
  now: number,
  log: Logger,
): Promise<void> {
  if ((await users.count()) > 0) return;
  const password = settings.password ?? randomBytes(18).toString('base64url');
  // The file before the account: a crash in between leaves a file that the next start replaces, not an account nobody can enter.
  if (settings.password === null) await writeSecret(settings.passwordFile, `${password}\n`);
  try {
    await users.create({ email: settings.email.toLowerCase(), role: 'admin', password_hash: await passwords.hash(password) }, now);
  } catch (error) {
    // Another control plane on the same database was first.
    if ((await users.findByEmail(settings.email.toLowerCase())) !== null) return;
    throw error;
  }
  log.info(
    { email: settings.email, ...(settings.password === null ? { file: settings.passwordFile } : {}) },
    settings.password === null ? 'first admin made; its password is in the file' : 'first admin made',
  );
}

async function writeSecret(path: string, text: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  const temporary = `${path}.${randomBytes(4).toString('hex')}`;
  const file = await open(temporary, 'wx', 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(temporary, path);
}
