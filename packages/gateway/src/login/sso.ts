/** The session of the auth host, which all others come from. */
import { ASK_MAX_AGE_SECONDS, ASK_VALUE, askCookieName, cookiesNamed, SESSION_COOKIE, setCookie } from '../cookies.ts';
import type { Audience, GatewayDeps, Session } from '../deps.ts';
import { isGood } from '../policy-view.ts';

export type Sso = {
  /** Valid, not revoked, not of a disabled user; null otherwise. */
  read(cookieHeader: string | undefined, audience?: Audience): Session | null;
  /** Every one that the browser sent: whoever signs out leaves none behind. */
  readAll(cookieHeader: string | undefined, audience?: Audience): Session[];
  keep(session: Session): string;
  forget(): string;
  /** Whether a sign-out was the last thing that this browser did here: then the next login asks who signs in. */
  asksAgain(cookieHeader: string | undefined): boolean;
  askAgain(): string;
  askNoMore(): string;
};

export function createSso({ config, sessions, policy, now }: Pick<GatewayDeps, 'config' | 'sessions' | 'policy' | 'now'>): Sso {
  const secure = config.PUBLIC_URL.startsWith('https:');
  const readAll = (cookieHeader: string | undefined, audience: Audience = 'sso'): Session[] =>
    cookiesNamed(cookieHeader, SESSION_COOKIE)
      .map((value) => sessions.open(value, audience))
      .filter((session) => session !== null);
  return {
    readAll,
    read(cookieHeader, audience) {
      const view = policy.view();
      return readAll(cookieHeader, audience).find((session) => isGood(session, view)) ?? null;
    },
    keep: (session) =>
      setCookie(SESSION_COOKIE, sessions.seal(session, 'sso'), { maxAgeSeconds: (session.expires_at - now()) / 1000, secure }),
    asksAgain: (cookieHeader) => cookiesNamed(cookieHeader, askCookieName(secure)).includes(ASK_VALUE),
    askAgain: () => setCookie(askCookieName(secure), ASK_VALUE, { maxAgeSeconds: ASK_MAX_AGE_SECONDS, secure }),
    askNoMore: () => setCookie(askCookieName(secure), '', { maxAgeSeconds: 0, secure }),
    forget: () => setCookie(SESSION_COOKIE, '', { maxAgeSeconds: 0, secure }),
  };
}
