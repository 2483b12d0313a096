/**
 * The audit log's one hook. It hangs on every route that changes something for somebody (and on those that only an admin may
 * read, for refusals), and writes what came of it before the answer goes out. Handlers add what only they know to `request.audited`.
 */
import type { AuditOutcome, AuditVia } from '@berth/wire/audit';
import type { Route } from '@berth/wire/route';
import { ROUTES, type RouteName } from '@berth/wire/routes';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { AuditRecord } from '../domain/identity-records.ts';
import type { AuditStore } from '../domain/identity-stores.ts';

/** What a handler knows better than the hook. */
export type Audited = {
  user?: string | null;
  via?: AuditVia;
  action?: string;
  target?: string | null;
  address?: string;
  outcome?: AuditOutcome;
  code?: string | null;
};

/** What says no to a person; a wrong field or an unknown id says nothing about rights. */
const REFUSALS = [401, 403, 429];

/** `always`: whatever came of it; `refused`: only if it was not done; `never`: not a person's doing. */
type When = 'always' | 'refused' | 'never';

/** Where the rule below would say something else. */
const EXCEPTIONS: Partial<Record<RouteName, When>> = {
  login: 'always',
  exchange: 'always',
  // Once an hour for everybody who is there; a used token that comes again is worth a line.
  refresh: 'refused',
  decideDeviceCode: 'always',
  revokeDeviceTokenOf: 'always',
  loginSeen: 'always',
};

export function whenAudited(name: RouteName): When {
  const row: Route = ROUTES[name];
  if (EXCEPTIONS[name] !== undefined) return EXCEPTIONS[name];
  if (row.who === 'public' || row.who === 'agent' || row.who === 'gateway') return 'never';
  return row.method === 'GET' ? 'refused' : 'always';
}

export function auditRecord(name: RouteName, request: FastifyRequest, reply: FastifyReply, now: number): AuditRecord | null {
  const status = reply.statusCode;
  const { caller } = request;
  const audited = request.audited ?? {};
  const outcome = audited.outcome ?? (status < 400 ? 'done' : status < 500 ? 'refused' : 'failed');
  const when = whenAudited(name);
  if (when === 'never' || (when === 'refused' && !REFUSALS.includes(status))) return null;
  // A stranger at a door that is shut: for the request log, where it crowds nothing out. (A wrong sign-in names an account.)
  if (caller === null && audited.user === undefined && status < 500) return null;
  const user = audited.user ?? caller?.email ?? null;
  const params = request.params as { id?: string };
  return {
    at: now,
    email: user?.toLowerCase().slice(0, 254) ?? null,
    via: audited.via ?? caller?.credential.kind ?? 'none',
    action: audited.action ?? name,
    target: (audited.target ?? params.id ?? null)?.slice(0, 254) ?? null,
    address: (audited.address ?? request.ip).slice(0, 100),
    outcome,
    status,
    code: (audited.code ?? request.problemCode)?.slice(0, 200) ?? null,
    request_id: request.id,
  };
}

/** What was done stays done when its line cannot be written: the log of the process says so. */
export function createAudit(store: AuditStore, now: () => number) {
  return async (name: RouteName, request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const record = auditRecord(name, request, reply, now());
    if (record === null) return;
    try {
      await store.append(record);
    } catch (error) {
      request.log.error({ err: error, audit: record }, 'a line of the audit log could not be written');
    }
  };
}
export type Audit = ReturnType<typeof createAudit>;
