/** A sign-in at the API, however it came about: its session, a JWT for an hour, and a refresh token for the next one. */
import type { LoginAnswer } from '@berth/wire/access';
import type { UserRecord } from '../../domain/records.ts';
import type { Stores } from '../../domain/stores.ts';
import { hashOf, newId, newRefreshToken, sessionOf } from './secrets.ts';
import { TOKEN_SECONDS, type Tokens } from './tokens.ts';
import { userView } from '../views.ts';

/** A session that is not refreshed for so long has ended. */
const IDLE_MS = 30 * 86_400_000;
/** However often it is refreshed, somebody signs in anew after this. */
const WHOLE_MS = 90 * 86_400_000;

export type SignIns = {
  begin(user: UserRecord, address: string): Promise<LoginAnswer>;
  /** `answer` is null when it is not good; `reusedBy`: it was once, and the session of this account has ended with it. */
  refresh(refreshToken: string): Promise<{ answer: LoginAnswer | null; reusedBy: string | null }>;
};

export function createSignIns(deps: { stores: Stores; tokens: Tokens; ended: () => void; now: () => number }): SignIns {
  const { stores, tokens, ended, now } = deps;

  const answer = async (user: UserRecord, sessionId: string, refresh_token: string): Promise<LoginAnswer> => ({
    token: await tokens.mint(user, sessionId),
    token_type: 'Bearer',
    expires_in: TOKEN_SECONDS,
    refresh_token,
    user: userView(user),
  });

  return {
    async begin(user, address) {
      const at = now();
      const id = newId();
      const refreshToken = newRefreshToken(id);
      await stores.apiSessions.create({ id, user_id: user.id, refresh_hash: hashOf(refreshToken), address, expires_at: at + IDLE_MS }, at);
      await stores.users.setLastLogin(user.id, at);
      return answer({ ...user, last_login_at: at }, id, refreshToken);
    },

    async refresh(refreshToken) {
      const id = sessionOf(refreshToken);
      const found = id === null ? null : await stores.apiSessions.find(id, now());
      if (id === null || found === null || found.user.disabled) return { answer: null, reusedBy: null };
      const next = newRefreshToken(id);
      const expiresAt = Math.min(now() + IDLE_MS, found.session.created_at + WHOLE_MS);
      const outcome = await stores.apiSessions.rotate(id, { old: hashOf(refreshToken), next: hashOf(next) }, expiresAt, now());
      if (outcome === 'rotated') return { answer: await answer(found.user, id, next), reusedBy: null };
      ended();
      return { answer: null, reusedBy: outcome === 'reused' ? found.user.email : null };
    },
  };
}
