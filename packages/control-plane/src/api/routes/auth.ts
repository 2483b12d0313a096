/** Signing in with a local account, and who one is. */
import { DomainError } from '../../domain/errors.ts';
import type { Attempts } from '../attempts.ts';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import type { Passwords } from '../passwords.ts';
import { TOKEN_SECONDS, type Tokens } from '../tokens.ts';
import { userView } from '../views.ts';

export function authRoutes(route: Define, deps: ApiDeps & { tokens: Tokens; passwords: Passwords; attempts: Attempts }): void {
  const { stores, tokens, passwords, attempts, now } = deps;

  route('login', async ({ body, request, reply }) => {
    const email = body.email.toLowerCase();
    const wait = attempts.begin(email, request.ip);
    if (wait > 0) {
      void reply.header('retry-after', String(wait));
      throw new DomainError('too_many_attempts', `try again in ${wait} s`);
    }
    const user = await stores.users.findByEmail(email);
    const right = await passwords.verify(body.password, user?.password_hash ?? null);
    // One answer for all three: it must not tell who has an account.
    if (user === null || !right || user.disabled) throw new DomainError('wrong_credentials');
    attempts.forgive(email, request.ip);
    const at = now();
    await stores.users.setLastLogin(user.id, at);
    return {
      token: await tokens.mint(user),
      token_type: 'Bearer' as const,
      expires_in: TOKEN_SECONDS,
      user: userView({ ...user, last_login_at: at }),
    };
  });

  route('me', async ({ user }) => userView(user));
}
