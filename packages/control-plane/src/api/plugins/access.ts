/** Who may call what: one hook, by the `who` of the route's row, before anything of the body is read. */
import { ROUTES } from '@berth/wire/routes';
import { atLeast } from '../../domain/access.ts';
import { DomainError } from '../../domain/errors.ts';
import type { Callers } from '../callers.ts';
import type { Server } from '../define.ts';

export function installAccess(server: Server, callers: Callers): void {
  server.decorateRequest('caller', null);
  server.addHook('onRequest', async (request) => {
    const name = request.routeOptions.config.routeName;
    // Unknown paths and the reference page: nothing there is anybody's.
    if (name === undefined) return;
    const { who } = ROUTES[name];
    if (who === 'public') return;
    if (who === 'agent') return callers.agent(request.headers['x-agent-secret']);
    const user = await callers.user(request.headers.authorization);
    if (!atLeast(user.role, who)) throw new DomainError('forbidden', `this needs the role ${who}; yours is ${user.role}`);
    request.caller = user;
  });
}
