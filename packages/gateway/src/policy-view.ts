/** Lookup tables for `/verify`, built once for each policy. */
import { createHash } from 'node:crypto';
import { DELETED_SKEW_MS, type Policy } from '@berth/wire/gateway';
import type { PolicyView, Session } from './deps.ts';

export type Tables = Omit<PolicyView, 'version'>;

/**
 * True if the session was not ended early: it is not revoked, and its owner is neither disabled nor
 * deleted.
 */
export const isActive = ({ id, identity, begun_at }: Session, view: PolicyView): boolean =>
  !view.isRevoked(id) &&
  !view.isDisabled(identity.email) &&
  !view.isDeleted(identity.email, begun_at);

/**
 * `local` has sessions that were revoked at this gateway and that the policy might not list yet.
 * `allowed` checks an address against ALLOWED_EMAILS; it also applies to sessions that began
 * earlier.
 */
export function tablesOf(
  policy: Policy | null,
  local: ReadonlyMap<string, number>,
  allowed: (email: string) => boolean,
): Tables {
  const byId = new Map(policy?.projects.map((p) => [p.id, p]));
  const byHost = new Map(
    policy?.projects.flatMap((project) => {
      const claims = new Map(project.host_claims?.map(({ host, ...claim }) => [host, claim]));
      return project.hosts.map(
        (host) => [host.toLowerCase(), { project, ...claims.get(host) }] as const,
      );
    }),
  );
  const byDomain = new Map(
    policy?.projects.flatMap((project) =>
      (project.domains ?? []).map(
        ({ host, ...domain }) => [host.toLowerCase(), { project, ...domain }] as const,
      ),
    ),
  );
  const disabled = new Set(policy?.disabled_users.map((email) => email.toLowerCase()));
  const deleted = new Map(
    policy?.deleted_users?.map((user) => [user.email.toLowerCase(), Date.parse(user.deleted_at)]),
  );
  const revoked = new Set(policy?.revoked_sessions.map((s) => s.id));
  const tokens = new Map(policy?.device_tokens.map((t) => [t.hash, t]));
  return {
    loaded: policy !== null,
    projectById: (id) => byId.get(id),
    projectByHost: (host) => byHost.get(host),
    domainByHost: (host) => byDomain.get(host),
    isDisabled: (email) => disabled.has(email.toLowerCase()) || !allowed(email),
    isRevoked: (id) => revoked.has(id) || local.has(id),
    isDeleted(email, begunAt) {
      const at = deleted.get(email.toLowerCase());
      return at !== undefined && begunAt <= at + DELETED_SKEW_MS;
    },
    deviceToken: (token) => tokens.get(createHash('sha256').update(token).digest('hex')),
  };
}
