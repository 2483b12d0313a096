/**
 * Finds the project that has a domain prefix, and changes the owner of a prefix, inside the
 * caller's transaction. A prefix that was in use stays reserved for its last project for some time
 * (DOMAIN_QUARANTINE), like a custom domain (domains.ts).
 */
import { sql } from 'kysely';
import { claimRefusal, refusalMessage } from '../domain/routes/domains.ts';
import { DomainError } from '../domain/platform/errors.ts';
import { type Claiming, MAX_KEPT_HOSTS, newClaim, SWEPT_AT_ONCE } from './claiming.ts';
import type { Database } from './engine/database.ts';
import type { NewRow, Tx } from './engine/tables.ts';
import { LIVE_STATES } from './states.ts';

export const PREFIX_SET = 'another project already has this domain prefix';
const PREFIX_SERVED =
  'another project still serves this domain prefix until its next deployment is live';

/** Locks the prefix until the transaction ends. */
export const lockPrefix = ({ capabilities }: Database, tx: Tx, prefix: string): Promise<void> =>
  capabilities.lockName(tx, `prefix:${prefix}`);

/**
 * Returns why the project cannot have the prefix, or null if it can. Call it with the prefix
 * locked.
 */
export async function prefixUse(
  tx: Tx,
  prefix: string,
  projectId: string | null,
): Promise<string | null> {
  const set = await tx
    .selectFrom('projects')
    .select('id')
    .where('domain_prefix', '=', prefix)
    .executeTakeFirst();
  if (set !== undefined && set.id !== projectId) return PREFIX_SET;
  return (await isServedByOthers(tx, prefix, projectId)) ? PREFIX_SERVED : null;
}

/**
 * Gives the prefix to the project. Returns the reason if this is refused, or null. Call it with the
 * prefix locked, after `prefixUse`.
 */
export async function claimPrefix(
  claiming: Claiming,
  tx: Tx,
  prefix: string,
  projectId: string,
  now: number,
): Promise<string | null> {
  const { quarantineMs } = claiming;
  const last = await tx
    .selectFrom('prefix_claims')
    .selectAll()
    .where('prefix', '=', prefix)
    .executeTakeFirst();
  if (last?.project_id === projectId && last.released_at === null) return null;
  const refusal = claimRefusal(last, projectId, quarantineMs, now);
  if (refusal !== null) return refusalMessage(`the domain prefix ${prefix}`, refusal);
  if (await hasManyKept(tx, projectId, now - quarantineMs))
    return `the project gave up ${MAX_KEPT_HOSTS} domain prefixes recently; change it later`;
  await putClaim(tx, prefix, newClaim(claiming, projectId, now));
  return null;
}

const putClaim = (
  tx: Tx,
  prefix: string,
  row: Omit<NewRow<'prefix_claims'>, 'prefix'>,
): Promise<unknown> =>
  tx
    .insertInto('prefix_claims')
    .values({ prefix, ...row })
    .onConflict((oc) => oc.column('prefix').doUpdateSet(row))
    .execute();

async function hasManyKept(tx: Tx, projectId: string, since: number): Promise<boolean> {
  const { count } = await tx
    .selectFrom('prefix_claims')
    .select((eb) => eb.fn.countAll().as('count'))
    .where('project_id', '=', projectId)
    .where('released_at', '>', since)
    .executeTakeFirstOrThrow();
  return Number(count) >= MAX_KEPT_HOSTS;
}

/**
 * Claims the prefix of a release. Throws domain_prefix_taken. (A constraint ensures that the
 * prefixes in the settings of projects are unique.)
 */
export async function claimReleasePrefix(
  claiming: Claiming,
  tx: Tx,
  prefix: string,
  projectId: string,
  now: number,
): Promise<void> {
  await lockPrefix(claiming.db, tx, prefix);
  if (await isServedByOthers(tx, prefix, projectId))
    throw new DomainError('domain_prefix_taken', PREFIX_SERVED);
  const problem = await claimPrefix(claiming, tx, prefix, projectId, now);
  if (problem !== null) throw new DomainError('domain_prefix_taken', problem);
}

/**
 * Releases prefixes that the project gave up. A prefix that never ran and has no deployment in
 * progress had no visitors, so it is free at once.
 */
export async function releasePrefixes(
  tx: Tx,
  projectId: string,
  prefixes: readonly string[],
  now: number,
): Promise<void> {
  for (const prefix of prefixes) {
    const claim = tx
      .selectFrom('prefix_claims')
      .select('prefix')
      .where('prefix', '=', prefix)
      .where('project_id', '=', projectId);
    if ((await claim.executeTakeFirst()) === undefined) continue;
    if (await mayHaveVisitors(tx, projectId, prefix))
      await tx
        .updateTable('prefix_claims')
        .set({ released_at: now })
        .where('prefix', '=', prefix)
        .execute();
    else await tx.deleteFrom('prefix_claims').where('prefix', '=', prefix).execute();
  }
}

/**
 * Ends the quarantine of a prefix. Returns whether it was in quarantine. Throws wrong_state if a
 * project has or serves the prefix.
 */
export async function freePrefix(db: Database, tx: Tx, prefix: string): Promise<boolean> {
  await lockPrefix(db, tx, prefix);
  const use = await prefixUse(tx, prefix, null);
  if (use !== null) throw new DomainError('wrong_state', `${use} (${prefix})`);
  const claim = await tx
    .deleteFrom('prefix_claims')
    .where('prefix', '=', prefix)
    .returning('prefix')
    .executeTakeFirst();
  return claim !== undefined;
}

/** Releases all prefixes of a project that is being removed. */
export async function releaseAllPrefixes(tx: Tx, projectId: string, now: number): Promise<void> {
  const held = await tx
    .selectFrom('prefix_claims')
    .select('prefix')
    .where('project_id', '=', projectId)
    .where('released_at', 'is', null)
    .execute();
  await releasePrefixes(
    tx,
    projectId,
    held.map(({ prefix }) => prefix),
    now,
  );
}

/**
 * A deployment in progress goes live at the prefix with which it began, even if the prefix in the
 * project's settings has changed by then.
 */
async function mayHaveVisitors(tx: Tx, projectId: string, prefix: string): Promise<boolean> {
  const ran = tx
    .selectFrom('deployments')
    .select('project_id')
    .where('project_id', '=', projectId)
    .where('domain_prefix', '=', prefix)
    .where('status', 'in', [...LIVE_STATES, 'retired']);
  const routed = tx
    .selectFrom('routes')
    .select('project_id')
    .where('project_id', '=', projectId)
    .where('domain_prefix', '=', prefix);
  return (await ran.union(routed).executeTakeFirst()) !== undefined;
}

/**
 * Makes the claims match the projects, and deletes claims whose quarantine is over. An older
 * version that runs beside this one creates, moves, rolls back and deletes projects without
 * changing claims. A prefix that is served until the next deployment stays in use until then.
 */
export async function sweepPrefixes(claiming: Claiming, now: number): Promise<void> {
  const { db, quarantineMs } = claiming;
  const live = sql.join(LIVE_STATES);
  const isServed = sql<boolean>`(exists (
    select 1 from routes r where r.project_id = prefix_claims.project_id
      and r.domain_prefix = prefix_claims.prefix)
    or exists (select 1 from deployments d where d.project_id = prefix_claims.project_id
      and d.domain_prefix = prefix_claims.prefix and d.status in (${live})))`;
  const isSet = sql<boolean>`exists (select 1 from projects p where p.id = prefix_claims.project_id
    and p.domain_prefix = prefix_claims.prefix)`;
  await db.write(async (tx) => {
    const unclaimed = await tx
      .selectFrom('projects')
      .leftJoin('prefix_claims', 'prefix_claims.prefix', 'projects.domain_prefix')
      .select(['projects.id', 'projects.domain_prefix'])
      .where((eb) =>
        eb.or([
          eb('prefix_claims.project_id', 'is', null),
          eb('prefix_claims.project_id', '!=', eb.ref('projects.id')),
          eb('prefix_claims.released_at', 'is not', null),
        ]),
      )
      .limit(SWEPT_AT_ONCE)
      .execute();
    for (const { id, domain_prefix } of unclaimed)
      await putClaim(tx, domain_prefix, newClaim(claiming, id, now));
    const unclaimedRoutes = await tx
      .selectFrom('routes')
      .leftJoin('prefix_claims', 'prefix_claims.prefix', 'routes.domain_prefix')
      .select(['routes.project_id', 'routes.domain_prefix'])
      .where('prefix_claims.prefix', 'is', null)
      .limit(SWEPT_AT_ONCE)
      .execute();
    for (const { project_id, domain_prefix } of unclaimedRoutes)
      await putClaim(tx, domain_prefix, newClaim(claiming, project_id, now));
    await tx
      .updateTable('prefix_claims')
      .set({ released_at: now })
      .where('released_at', 'is', null)
      .where(sql<boolean>`not ${isSet}`)
      .where(sql<boolean>`not ${isServed}`)
      .execute();
    await tx
      .updateTable('prefix_claims')
      .set({ released_at: now })
      .where('released_at', 'is not', null)
      .where(isServed)
      .execute();
    await tx
      .deleteFrom('prefix_claims')
      .where('released_at', '<=', now - quarantineMs)
      .where(sql<boolean>`not ${isServed}`)
      .execute();
  });
}

/**
 * Returns whether a different project serves the prefix. After a project changes its prefix, it
 * serves the old one until its next deployment is live.
 */
async function isServedByOthers(
  tx: Tx,
  prefix: string,
  projectId: string | null,
): Promise<boolean> {
  const routes = tx.selectFrom('routes').select('project_id').where('domain_prefix', '=', prefix);
  const live = tx
    .selectFrom('deployments')
    .select('project_id')
    .where('domain_prefix', '=', prefix)
    .where('status', 'in', [...LIVE_STATES]);
  const users = await routes.union(live).execute();
  return users.some((user) => user.project_id !== projectId);
}
