/**
 * GET / of the auth host: the page after a sign-out without a redirect target, and for visitors of
 * the plain address.
 */
import type { FastifyInstance } from 'fastify';
import { assertPolicyLoaded, type Context } from './login/context.ts';
import { sendPage } from './login/reply.ts';
import { homePage } from './pages/home.ts';

export function homeRoutes(server: FastifyInstance, context: Context): void {
  server.get('/', (request, reply) => {
    assertPolicyLoaded(context, '/');
    const session = context.sso.read(request.headers.cookie);
    return sendPage(reply, 200, homePage(session?.identity ?? null));
  });
}
