/** The audit log: actor, action, target, address, time and outcome. It contains no secrets. */
import { type Static, Type } from 'typebox';
import { literals, orNull, Time } from './vocabulary.ts';

/**
 * done: the action succeeded; refused: a rule forbade it (4xx); failed: it was allowed but an error
 * occurred (5xx).
 */
export const AUDIT_OUTCOMES = ['done', 'refused', 'failed'] as const;
export type AuditOutcome = (typeof AUDIT_OUTCOMES)[number];

/**
 * How the actor authenticated. `gateway`: the gateway authenticated the actor. `none`: the action
 * is a sign-in. `host`: a command on the control plane's machine; `address` is then the account and
 * the machine.
 */
export const AUDIT_VIAS = ['session', 'api_token', 'gateway', 'agent', 'host', 'none'] as const;
export type AuditVia = (typeof AUDIT_VIAS)[number];

export const AuditEntry = Type.Object({
  id: Type.String(),
  at: Time,
  /** E-mail address of the actor; null if the request named no user. */
  user: orNull(Type.String()),
  via: literals(AUDIT_VIAS),
  /** Name of a route (`createProject`), or `signIn` or `signOut` at the gateway. */
  action: Type.String(),
  /** Id or e-mail address of the changed resource. */
  target: orNull(Type.String()),
  address: Type.String(),
  outcome: literals(AUDIT_OUTCOMES),
  /** HTTP status of the answer. */
  status: Type.Integer(),
  /** Error code of the answer, or the reason that the gateway reported. */
  code: orNull(Type.String()),
  request_id: Type.String(),
  detail: orNull(
    Type.String({ description: 'of exec sessions and tunnels: where, what, and how they ended' }),
  ),
});
export type AuditEntry = Static<typeof AuditEntry>;
