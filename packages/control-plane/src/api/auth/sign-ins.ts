/**
 * Sign-ins at the API. Each begins a session and returns a JWT for 1 hour and a refresh token for
 * the next JWT.
 */
import type { LoginAnswer } from '@berth/wire/access';
import { DomainError } from '../../domain/platform/errors.ts';
import type { UserRecord } from '../../domain/platform/records.ts';
import { type Origin, isOriginValid, type OriginStores } from './origins.ts';
import { sha256Of, newId, newRefreshToken, readRefreshToken } from './secrets.ts';
import { TOKEN_SECONDS, type Tokens } from './tokens.ts';
import { userView } from '../views.ts';
import type { ApiSessionStore } from '../../domain/identity/identity-stores.ts';
import type { UserStore } from '../../domain/identity/user-store.ts';

/** Idle timeout: a session ends when it is not refreshed for 30 days. */
const IDLE_MS = 30 * 86_400_000;
/** Absolute timeout, however often the session is refreshed. */
const ABSOLUTE_MS = 90 * 86_400_000;

export type SignIns = {
  /**
   * Begins a session. `origin` null: the user signed in with the password. `seconds`: lifetime of
   * the token; default TOKEN_SECONDS. Throws wrong_credentials or unauthenticated if the account
   * has changed since `user` was read.
   */
  begin(
    user: UserRecord,
    address: string,
    origin: Origin | null,
    seconds?: number,
  ): Promise<LoginAnswer>;
  /**
   * `answer`: null for an invalid token. `reusedBy`: e-mail address of the owner if the token was
   * used before; its session has then ended.
   */
  refresh(refreshToken: string): Promise<{ answer: LoginAnswer | null; reusedBy: string | null }>;
};

export type Deps = OriginStores & {
  apiSessions: Pick<ApiSessionStore, 'create' | 'find' | 'rotate'>;
  users: Pick<UserStore, 'setLastLogin'>;
  tokens: Pick<Tokens, 'mint'>;
  onSessionEnded: () => void;
  now: () => number;
};

export function createSignIns(deps: Deps): SignIns {
  const { apiSessions, users, tokens, onSessionEnded, now } = deps;

  type Session = { id: string; origin: Origin | null };
  const answer = async (
    user: UserRecord,
    session: Session,
    refresh_token: string,
    seconds = TOKEN_SECONDS,
  ): Promise<LoginAnswer> => ({
    token: await tokens.mint(user, session.id, session.origin, seconds),
    token_type: 'Bearer',
    expires_in: seconds,
    refresh_token,
    user: userView(user),
  });

  return {
    async begin(user, address, origin, seconds) {
      const at = now();
      const id = newId();
      const refreshToken = newRefreshToken(id, origin);
      const session = {
        id,
        user_id: user.id,
        refresh_hash: sha256Of(refreshToken),
        address,
        expires_at: at + IDLE_MS,
      };
      const begun = await apiSessions.create(
        session,
        at,
        origin === null ? user.password_hash : undefined,
      );
      if (!begun && origin === null) throw new DomainError('wrong_credentials');
      if (!begun)
        throw new DomainError(
          'unauthenticated',
          'the account was deleted or disabled during this sign-in',
        );
      await users.setLastLogin(user.id, at);
      return answer({ ...user, last_login_at: at }, { id, origin }, refreshToken, seconds);
    },

    async refresh(refreshToken) {
      const read = readRefreshToken(refreshToken);
      const sessionAndUser = read === null ? null : await apiSessions.find(read.sessionId, now());
      if (
        read === null ||
        sessionAndUser === null ||
        sessionAndUser.user.disabled ||
        !(await isOriginValid(deps, read.origin, now()))
      )
        return { answer: null, reusedBy: null };
      const { sessionId: id, origin } = read;
      const next = newRefreshToken(id, origin);
      const expiresAt = Math.min(now() + IDLE_MS, sessionAndUser.session.created_at + ABSOLUTE_MS);
      const outcome = await apiSessions.rotate(
        id,
        { old: sha256Of(refreshToken), next: sha256Of(next) },
        expiresAt,
        now(),
      );
      if (outcome === 'rotated')
        return { answer: await answer(sessionAndUser.user, { id, origin }, next), reusedBy: null };
      onSessionEnded();
      return { answer: null, reusedBy: outcome === 'reused' ? sessionAndUser.user.email : null };
    },
  };
}
