/** The single sign-on session at the auth host, from which all other sessions are made. */
import {
  ASK_MAX_AGE_SECONDS,
  ASK_VALUE,
  askCookieName,
  cookiesNamed,
  SESSION_COOKIE,
  setCookie,
} from '../cookies.ts';
import type { Audience, GatewayDeps, Session } from '../deps.ts';
import { isActive } from '../policy-view.ts';

export type Sso = {
  /** Returns the first valid session that was not ended early, or null. */
  read(cookieHeader: string | undefined, audience?: Audience): Session | null;
  /**
   * Returns every validly signed session that the browser sent, so that a sign-out ends all of
   * them.
   */
  readAll(cookieHeader: string | undefined, audience?: Audience): Session[];
  /** Returns the Set-Cookie header that stores the session. */
  setSession(session: Session): string;
  /** Returns the Set-Cookie header that removes the session. */
  clearSession(): string;
  /** True after a sign-out in this browser: the next login lets the person choose an account. */
  requiresAccountChoice(cookieHeader: string | undefined): boolean;
  requireAccountChoice(): string;
  clearAccountChoice(): string;
};

export function createSso({
  config,
  sessions,
  policy,
  now,
}: Pick<GatewayDeps, 'config' | 'sessions' | 'policy' | 'now'>): Sso {
  const secure = config.PUBLIC_URL.startsWith('https:');
  const readAll = (cookieHeader: string | undefined, audience: Audience = 'sso'): Session[] =>
    cookiesNamed(cookieHeader, SESSION_COOKIE)
      .map((value) => sessions.open(value, audience))
      .filter((session) => session !== null);
  return {
    readAll,
    read(cookieHeader, audience) {
      const view = policy.view();
      return readAll(cookieHeader, audience).find((session) => isActive(session, view)) ?? null;
    },
    setSession: (session) =>
      setCookie(SESSION_COOKIE, sessions.seal(session, 'sso'), {
        maxAgeSeconds: (session.expires_at - now()) / 1000,
        secure,
      }),
    requiresAccountChoice: (cookieHeader) =>
      cookiesNamed(cookieHeader, askCookieName(secure)).includes(ASK_VALUE),
    requireAccountChoice: () =>
      setCookie(askCookieName(secure), ASK_VALUE, { maxAgeSeconds: ASK_MAX_AGE_SECONDS, secure }),
    clearAccountChoice: () => setCookie(askCookieName(secure), '', { maxAgeSeconds: 0, secure }),
    clearSession: () => setCookie(SESSION_COOKIE, '', { maxAgeSeconds: 0, secure }),
  };
}
