/**
 * Creates the first account from settings if there is no account. Generates its password if the
 * settings have none.
 */
import { randomBytes } from 'node:crypto';
import { defined } from '@berth/kit/defined';
import { SettingsError } from '@berth/kit/config';
import type { Logger } from '@berth/kit/log';
import { writeFileWhole } from '@berth/kit/write-file';
import { PASSWORD_LENGTH } from '@berth/wire/user';
import type { UserStore } from '../../domain/identity/user-store.ts';
import type { Passwords } from './passwords.ts';

export type FirstAdmin = {
  email: string;
  /** Null: a generated password is written to `passwordFile`. */
  password: string | null;
  passwordFile: string;
};

/**
 * Creates the first admin. Does nothing if an account exists, because ADMIN_PASSWORD is for the
 * first start only. Throws SettingsError.
 */
export async function ensureFirstAdmin(
  users: UserStore,
  passwords: Passwords,
  settings: FirstAdmin,
  now: number,
  log: Logger,
): Promise<void> {
  if ((await users.count()) > 0) return;
  // Refuse a password that is too long for the sign-in. A short password is the operator's choice:
  // no published rule of this setting forbids it.
  if ((settings.password?.length ?? 0) > PASSWORD_LENGTH.max)
    throw new SettingsError([
      `ADMIN_PASSWORD: must have at most ${PASSWORD_LENGTH.max} characters`,
    ]);
  const password = settings.password ?? randomBytes(18).toString('base64url');
  // Write the file first: after a crash in between, the next start replaces the file. If the
  // account came first, a crash could leave an account whose password nobody knows.
  if (settings.password === null)
    await writeFileWhole(settings.passwordFile, `${password}\n`, { folderMode: 0o755 });
  try {
    await users.create(
      {
        email: settings.email.toLowerCase(),
        role: 'admin',
        password_hash: await passwords.hash(password),
      },
      now,
    );
  } catch (error) {
    // Ignore the error if another control plane on the same database created the account first.
    if ((await users.findByEmail(settings.email.toLowerCase())) !== null) return;
    throw error;
  }
  log.info(
    {
      email: settings.email,
      ...defined({ file: settings.password === null ? settings.passwordFile : undefined }),
    },
    settings.password === null
      ? 'first admin created; its password is in the file'
      : 'first admin created',
  );
  if (password.length < PASSWORD_LENGTH.min)
    log.warn(
      { email: settings.email },
      'ADMIN_PASSWORD is shorter than a password that an account can be given later; change it',
    );
}
