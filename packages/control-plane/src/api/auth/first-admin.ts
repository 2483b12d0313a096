/** Creates the first account from settings if there is no account. Generates its password if the settings have none. */
import { randomBytes } from 'node:crypto';
import { mkdir, open, rename } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Logger } from '@berth/kit/log';
import type { UserStore } from '../../domain/stores.ts';
import type { Passwords } from './passwords.ts';

export type FirstAdmin = {
  email: string;
  /** null: a generated one is written to `passwordFile`. */
  password: string | null;
  passwordFile: string;
};

/** Does nothing if an account exists: ADMIN_PASSWORD is for the first start only. */
export async function ensureFirstAdmin(
  users: UserStore,
  passwords: Passwords,
  settings: FirstAdmin,
  now: number,
  log: Logger,
): Promise<void> {
  if ((await users.count()) > 0) return;
  const password = settings.password ?? randomBytes(18).toString('base64url');
  // The file comes first: after a crash in between, the next start replaces the file. An account without a known password would stay.
  if (settings.password === null) await writeSecret(settings.passwordFile, `${password}\n`);
  try {
    await users.create({ email: settings.email.toLowerCase(), role: 'admin', password_hash: await passwords.hash(password) }, now);
  } catch (error) {
    // Another control plane on the same database created it first.
    if ((await users.findByEmail(settings.email.toLowerCase())) !== null) return;
    throw error;
  }
  log.info(
    { email: settings.email, ...(settings.password === null ? { file: settings.passwordFile } : {}) },
    settings.password === null ? 'first admin created; its password is in the file' : 'first admin created',
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
