/** GET / of the auth host: where a sign-out without a target ends, and what somebody finds who types the bare address. */
import type { FastifyInstance } from 'fastify';
import { assertPolicyKnown, type Context } from './login/context.ts';
import { sendPage } from './login/reply.ts';
import { homePage } from './pages/home.ts';

export function homeRoutes(server: FastifyInstance, context: Context): void {
  server.get('/', (request, reply) => {
    assertPolicyKnown(context, '/');
    const session = context.sso.read(request.headers.cookie);
    return sendPage(reply, 200, homePage(session?.identity ?? null));
  });
}
