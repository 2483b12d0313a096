/**
 * The hook that writes the audit log before the answer is sent. On routes with which a person
 * changes something, it records every request; on read-only routes, it records refusals. Handlers
 * add details in `request.audited`.
 */
import type { AuditOutcome, AuditVia } from '@berth/wire/audit';
import type { Route } from '@berth/wire/route';
import { ROUTES, type RouteName } from '@berth/wire/routes';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { AuditRecord } from '../domain/identity/identity-records.ts';
import type { AuditStore } from '../domain/identity/identity-stores.ts';

/** Details that only a handler knows. They override the details of the hook. */
export type Audited = {
  user?: string | null;
  via?: AuditVia;
  action?: string;
  target?: string | null;
  address?: string;
  outcome?: AuditOutcome;
  code?: string | null;
  detail?: string;
};

/** Maximum length of `detail`, which can contain a command. */
export const MAX_DETAIL = 2_000;

/** Statuses that mean a refused person. An invalid field or an unknown id is not a refusal. */
const REFUSALS = [401, 403, 429];

/**
 * `always`: write an entry for every outcome; `refused`: only for a refused request; `never`: no
 * person is involved.
 */
type When = 'always' | 'refused' | 'never';

/** Exceptions from the rule in `whenAudited`. */
const EXCEPTIONS: Partial<Record<RouteName, When>> = {
  login: 'always',
  exchange: 'always',
  // Every client refreshes once an hour, so record only refusals, such as a token used twice.
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

function outcomeOf(status: number): AuditOutcome {
  if (status < 400) return 'done';
  return status < 500 ? 'refused' : 'failed';
}

export function auditRecord(
  name: RouteName,
  request: FastifyRequest,
  reply: FastifyReply,
  now: number,
): AuditRecord | null {
  const status = reply.statusCode;
  const { caller } = request;
  const audited = request.audited ?? {};
  const outcome = audited.outcome ?? outcomeOf(status);
  const when = whenAudited(name);
  if (when === 'never' || (when === 'refused' && !REFUSALS.includes(status))) return null;
  // A refused caller without an identity is only in the request log, so that strangers cannot fill
  // the audit log. A failed sign-in names an account, so it is recorded.
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
    detail: audited.detail?.slice(0, MAX_DETAIL) ?? null,
  };
}

/**
 * Creates the audit hook. If writing the log fails, the request still succeeds, and the missing
 * entry is logged as an error.
 */
export function createAudit(store: AuditStore, now: () => number) {
  return async (name: RouteName, request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const record = auditRecord(name, request, reply, now());
    if (record === null) return;
    try {
      await store.append(record);
    } catch (error) {
      request.log.error({ err: error, audit: record }, 'could not write to the audit log');
    }
  };
}
export type Audit = ReturnType<typeof createAudit>;
