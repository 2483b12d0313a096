/** The person's tokens for each address: files of mode 0600 in $XDG_STATE_HOME/berth/tokens. */
import { readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { LoginAnswer } from '@berth/wire/access';
import type { CliConfig } from '../config.ts';
import { CliError, EXIT } from '../problem.ts';
import { isMissing, readJson, writePrivate } from './files.ts';
import { withLock } from './lock.ts';

export type Tokens = {
  url: string;
  email: string;
  /** Token for `Authorization: Bearer`, valid until `expires_at` (ms since 1970). */
  token: string;
  expires_at: number;
  /** Each refresh token can be used only once. */
  refresh_token: string;
  /**
   * Device token from the device flow; opens a new session if the refresh token is lost. Null after
   * a sign-in with a password.
   */
  device_token: string | null;
};

export type TokenStore = {
  read(): Tokens | null;
  write(tokens: Tokens): void;
  remove(): void;
  /**
   * Runs `work` under a lock, so that only one process at a time changes the tokens of the address.
   */
  locked<T>(work: () => Promise<T>): Promise<T>;
};

const folderOf = (config: CliConfig): string =>
  join(config.XDG_STATE_HOME ?? join(config.home, '.local', 'state'), 'berth', 'tokens');

export function tokenStore(config: CliConfig, url: string): TokenStore {
  const name = encodeURIComponent(new URL(url).origin);
  const path = join(folderOf(config), `${name}.json`);
  return {
    read() {
      assertPrivate(path);
      const stored = readJson(path) as Tokens | undefined;
      // The file names its address, so that a renamed file sends no token to another server.
      return stored === undefined || new URL(stored.url).origin !== new URL(url).origin
        ? null
        : stored;
    },
    write: (tokens) => writePrivate(path, `${JSON.stringify(tokens)}\n`),
    remove: () => rmSync(path, { force: true }),
    locked: (work) => withLock(join(folderOf(config), `${name}.lock`), work),
  };
}

export const hasTokens = (config: CliConfig): boolean => {
  try {
    return readdirSync(folderOf(config)).some((name) => name.endsWith('.json'));
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
};

/**
 * Throws if other users can read the token file, because somebody copied it or changed its mode.
 */
function assertPrivate(path: string): void {
  try {
    const { mode } = statSync(path);
    if ((mode & 0o077) === 0) return;
  } catch (error) {
    if (isMissing(error)) return;
    throw error;
  }
  throw new CliError(
    EXIT.signIn,
    'token_file_readable',
    `other users can read the token file ${path}`,
    {
      next: `chmod 600 ${path}, then berth logout and berth login`,
    },
  );
}

export const tokensOf = (
  url: string,
  answer: LoginAnswer,
  now: number,
  deviceToken: string | null,
): Tokens => ({
  url,
  email: answer.user.email,
  token: answer.token,
  expires_at: now + answer.expires_in * 1000,
  refresh_token: answer.refresh_token,
  device_token: deviceToken,
});
