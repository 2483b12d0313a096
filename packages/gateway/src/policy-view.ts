/** The policy as `/verify` looks things up in it: a map for each question, made once for each policy. */
import { createHash } from 'node:crypto';
import { DELETED_SKEW_MS, type Policy } from '@berth/wire/gateway';
import type { PolicyView, Session } from './deps.ts';

export type Tables = Omit<PolicyView, 'version'>;

/** Not ended before its time: neither revoked, nor its owner disabled or deleted. */
export const isGood = ({ id, identity, begun_at }: Session, view: PolicyView): boolean =>
  !view.isRevoked(id) && !view.isDisabled(identity.email) && !view.isDeleted(identity.email, begun_at);

/** `local`: sessions revoked here that the policy need not hold yet. `allowed`: who may be in at all, also with a session from before. */
export function tablesOf(policy: Policy | null, local: ReadonlyMap<string, number>, allowed: (email: string) => boolean): Tables {
  const byId = new Map(policy?.projects.map((p) => [p.id, p]));
  const byHost = new Map(policy?.projects.flatMap((p) => p.hosts.map((host) => [host.toLowerCase(), p] as const)));
  const disabled = new Set(policy?.disabled_users.map((email) => email.toLowerCase()));
  const deleted = new Map(policy?.deleted_users?.map((user) => [user.email.toLowerCase(), Date.parse(user.deleted_at)]));
  const revoked = new Set(policy?.revoked_sessions.map((s) => s.id));
  const tokens = new Map(policy?.device_tokens.map((t) => [t.hash, t]));
  return {
    known: policy !== null,
    projectById: (id) => byId.get(id),
    projectByHost: (host) => byHost.get(host),
    isDisabled: (email) => disabled.has(email.toLowerCase()) || !allowed(email),
    isRevoked: (id) => revoked.has(id) || local.has(id),
    isDeleted(email, begunAt) {
      const at = deleted.get(email.toLowerCase());
      return at !== undefined && begunAt <= at + DELETED_SKEW_MS;
    },
    deviceToken: (token) => tokens.get(createHash('sha256').update(token).digest('hex')),
  };
}
