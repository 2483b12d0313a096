import { defined } from '@berth/kit/defined';
import type { Identity } from '@berth/wire/gateway';
import { sql } from 'kysely';
import type { PolicyFacts } from '../../domain/identity/identity-records.ts';
import type { PolicyStore } from '../../domain/identity/identity-stores.ts';
import type { Database } from '../engine/database.ts';
import { UNSETTLED_STATES } from '../states.ts';
import { ACCESS_VERSION } from './access-version.ts';

export const createPolicyStore = (db: Database): PolicyStore => ({
  stamp: () => policyStamp(db),
  read: (now) => readPolicy(db, now),
});

async function policyStamp(db: Database): Promise<string> {
  // Every plan and every patch of a project increases its flow_version, and every change of
  // `disabled` increases ACCESS_VERSION. In the other tables, rows are added and removed, so this
  // compares sums: if one row is removed and one with an older time is added between two reads, the
  // maximum can stay the same.
  const { rows } = await sql<Record<string, unknown>>`select
      (select count(*) from projects) as projects,
      (select sum(flow_version) from projects) as versions,
      (select max(created_at) from projects) as youngest,
      (select count(*) from prefix_claims) as claims,
      (select sum(claimed_at) from prefix_claims) as claimed,
      (select count(*) from users where disabled = 1) as disabled,
      (select value from meta where key = ${ACCESS_VERSION}) as access,
      (select count(*) from deleted_users) as deleted,
      (select sum(deleted_at) from deleted_users) as deletions,
      (select count(*) from revoked_sessions) as revoked,
      (select sum(revoked_at) from revoked_sessions) as revocations,
      (select count(*) from device_tokens) as tokens,
      (select sum(created_at) from device_tokens) as issues`.execute(db.kysely);
  return JSON.stringify(rows[0]);
}

function readPolicy(db: Database, now: number): Promise<PolicyFacts> {
  return db.snapshot(async (tx) => {
    const projects = await tx
      .selectFrom('projects')
      .select(['id', 'name', 'domain_prefix', 'auth_required', 'auth_epoch', 'cors_origins'])
      .orderBy('name')
      .execute();
    // Reads only routes that still have an old prefix: few among thousands. Every running
    // deployment is published, so it has a route.
    const published = await tx
      .selectFrom('routes')
      .innerJoin('projects', 'projects.id', 'routes.project_id')
      .select(['routes.project_id', 'routes.domain_prefix'])
      .whereRef('routes.domain_prefix', '!=', 'projects.domain_prefix')
      .execute();
    const open = await tx
      .selectFrom('deployments')
      .innerJoin('projects', 'projects.id', 'deployments.project_id')
      .select(['deployments.project_id', 'deployments.domain_prefix'])
      .where('deployments.status', 'in', [...UNSETTLED_STATES])
      .whereRef('deployments.domain_prefix', '!=', 'projects.domain_prefix')
      .execute();
    const more = new Map<string, Set<string>>();
    for (const { project_id, domain_prefix } of [...published, ...open])
      more.set(project_id, (more.get(project_id) ?? new Set()).add(domain_prefix));
    const claims = await tx
      .selectFrom('domain_claims')
      .select(['host', 'id', 'project_id'])
      .where('released_at', 'is', null)
      .orderBy('host')
      .execute();
    const prefixClaims = await tx
      .selectFrom('prefix_claims')
      .select(['prefix', 'id', 'project_id'])
      .orderBy('prefix')
      .execute();
    const prefixes = Map.groupBy(prefixClaims, (claim) => claim.project_id);
    const domains = Map.groupBy(claims, (claim) => claim.project_id);
    const disabled = await tx
      .selectFrom('users')
      .select('email')
      .where('disabled', '=', 1)
      .orderBy('email')
      .execute();
    const deleted = await tx
      .selectFrom('deleted_users')
      .select(['email', 'deleted_at'])
      .where('expires_at', '>', now)
      .orderBy('email')
      .execute();
    const revoked = await tx
      .selectFrom('revoked_sessions')
      .select(['id', 'expires_at'])
      .where('expires_at', '>', now)
      .orderBy('expires_at')
      .orderBy('id')
      .execute();
    const tokens = await tx
      .selectFrom('device_tokens')
      .select(['id', 'hash', 'identity', 'expires_at', 'scope'])
      .where('expires_at', '>', now)
      .orderBy('expires_at')
      .orderBy('id')
      .execute();
    return {
      projects: projects.map(
        ({ id, name, domain_prefix, auth_required, auth_epoch, cors_origins }) => ({
          id,
          name,
          prefixes: [domain_prefix, ...(more.get(id) ?? [])].sort(),
          claims: (prefixes.get(id) ?? []).map((claim) => ({
            prefix: claim.prefix,
            claim: claim.id,
          })),
          auth_required: auth_required !== 0,
          auth_epoch,
          ...defined({
            cors_origins:
              cors_origins === '[]' ? undefined : (JSON.parse(cors_origins) as string[]),
          }),
          domains: (domains.get(id) ?? []).map((claim) => ({
            host: claim.host,
            claim: claim.id,
          })),
        }),
      ),
      disabled: disabled.map((user) => user.email),
      deleted,
      revoked,
      tokens: tokens.map((token) => ({
        ...token,
        identity: JSON.parse(token.identity) as Identity,
        scope: token.scope ?? 'projects',
      })),
    };
  });
}
