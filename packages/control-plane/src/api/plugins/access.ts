/**
 * Authenticates and authorizes every request by the `who` of its row, before the body is read.
 * rights.ts checks the rights on projects.
 */
import type { Route } from '@berth/wire/route';
import { ROUTES } from '@berth/wire/routes';
import type { Role } from '@berth/wire/vocabulary';
import type { FastifyRequest } from 'fastify';
import { atLeast } from '../../domain/identity/access.ts';
import { DomainError } from '../../domain/platform/errors.ts';
import type { Presence } from '../../domain/identity/presence.ts';
import type { Agents, Purpose } from '../agents.ts';
import type { Callers } from '../auth/callers.ts';
import type { SessionCookies } from '../auth/session-cookie.ts';
import type { SecretUse } from '../auth/secret-use.ts';
import type { Server } from '../define.ts';
import { refuseOutsideProjects } from '../rights.ts';

type Seen = {
  presence: Presence;
  cookies: Pick<SessionCookies, 'callerOf'>;
  secretUse: Pick<SecretUse, 'gatewaySent'>;
  /**
   * Records an address that sent a valid secret of an agent or a gateway (kit/connections.ts). Not
   * used for people: a known address has no limit of its own.
   */
  vouch: (address: string) => void;
};

const PURPOSES: Partial<Record<string, Purpose>> = {
  agentRegister: 'register',
  agentBeat: 'beat',
};

export function installAccess(
  server: Server,
  callers: Callers,
  agents: Agents,
  { presence, cookies, secretUse, vouch }: Seen,
): void {
  const vouchFor = ({ raw }: FastifyRequest): void => vouch(raw.socket.remoteAddress ?? '');
  server.decorateRequest('caller', null);
  server.decorateRequest('agent', null);
  server.decorateRequest('gatewaySecret', null);
  server.decorateRequest('audited', null);
  server.decorateRequest('problemCode', null);
  server.addHook('onRequest', (request, _reply, done) => {
    const name = request.routeOptions.config.routeName;
    // Unknown paths and the pages at /docs need no credentials.
    const who = name === undefined ? 'public' : ROUTES[name].who;
    if (who === 'public') return done();
    if (who === 'agent') {
      const asked = agents.identify(request, PURPOSES[name ?? ''] ?? 'other');
      if (asked !== undefined) return asked.then(() => vouchFor(request));
      // Without AGENT_SECRET every agent is accepted, so the request proves nothing about its
      // address.
      if (request.agent?.kind !== 'open') vouchFor(request);
    } else if (who === 'gateway') {
      request.gatewaySecret = callers.gateway(request.headers['x-gateway-secret']);
      vouchFor(request);
      secretUse.gatewaySent(request.gatewaySecret, request.ip);
    } else return person(request, name === undefined ? null : ROUTES[name], who);
    done();
  });

  async function person(request: FastifyRequest, row: Route | null, who: Role): Promise<void> {
    const user = await cookies.callerOf(request, callers);
    presence.seen();
    request.caller = user;
    if (!atLeast(user.role, who))
      throw new DomainError(
        'forbidden',
        `this request requires the role ${who} or a higher one; your role is ${user.role}`,
      );
    if (row !== null) refuseOutsideProjects(row, user);
  }
}
