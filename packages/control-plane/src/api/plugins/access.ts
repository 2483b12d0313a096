/** Who may call what: one hook, by the `who` of the route's row, before anything of the body is read. */
import { ROUTES } from '@berth/wire/routes';
import type { Role } from '@berth/wire/vocabulary';
import type { FastifyRequest } from 'fastify';
import { atLeast } from '../../domain/access.ts';
import { DomainError } from '../../domain/errors.ts';
import type { Presence } from '../../domain/presence.ts';
import type { Callers } from '../callers.ts';
import type { Server } from '../define.ts';

export function installAccess(server: Server, callers: Callers, presence: Presence): void {
  server.decorateRequest('caller', null);
  server.decorateRequest('audited', null);
  server.decorateRequest('problemCode', null);
  server.addHook('onRequest', (request, _reply, done) => {
    const name = request.routeOptions.config.routeName;
    // Unknown paths and the reference page: nothing there is anybody's.
    const who = name === undefined ? 'public' : ROUTES[name].who;
    if (who === 'public') return done();
    if (who === 'agent') callers.agent(request.headers['x-agent-secret']);
    else if (who === 'gateway') callers.gateway(request.headers['x-gateway-secret']);
    else return person(request, who);
    done();
  });

  async function person(request: FastifyRequest, who: Role): Promise<void> {
    const user = await callers.user(request.headers.authorization);
    presence.seen();
    request.caller = user;
    if (!atLeast(user.role, who)) throw new DomainError('forbidden', `this needs the role ${who}; yours is ${user.role}`);
  }
}
