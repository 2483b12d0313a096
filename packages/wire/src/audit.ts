/** Who did what, from where, when, and what came of it. Nothing in it is a secret. */
import { type Static, Type } from 'typebox';
import { literals, orNull, Time } from './vocabulary.ts';

/** done: it was; refused: a rule said no (4xx); failed: it was allowed and went wrong (5xx). */
export const AUDIT_OUTCOMES = ['done', 'refused', 'failed'] as const;
export type AuditOutcome = (typeof AUDIT_OUTCOMES)[number];

/** How the actor was known: a session of the API, a personal API token, the gateway's word, an agent's secret, or not yet (a sign-in). */
export const AUDIT_VIAS = ['session', 'api_token', 'gateway', 'agent', 'none'] as const;
export type AuditVia = (typeof AUDIT_VIAS)[number];

export const AuditEntry = Type.Object({
  id: Type.String(),
  at: Time,
  /** E-mail; null where nobody said who they are. */
  user: orNull(Type.String()),
  via: literals(AUDIT_VIAS),
  /** A route's name (`createProject`), or `signIn` and `signOut` of the gateway. */
  action: Type.String(),
  /** What it was done to: an id, or an e-mail address. */
  target: orNull(Type.String()),
  address: Type.String(),
  outcome: literals(AUDIT_OUTCOMES),
  /** HTTP status of the answer. */
  status: Type.Integer(),
  /** The error's code, or the gateway's reason. */
  code: orNull(Type.String()),
  request_id: Type.String(),
});
export type AuditEntry = Static<typeof AuditEntry>;
