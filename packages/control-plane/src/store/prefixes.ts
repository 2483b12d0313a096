/** Finds the project that has a domain prefix, inside the caller's transaction. */
import { DomainError } from '../domain/errors.ts';
import type { Database } from './engine/database.ts';
import type { Tx } from './engine/tables.ts';
import { LIVE_STATES } from './states.ts';

export const PREFIX_SET = 'another project already has this domain prefix';
const PREFIX_SERVED = 'another project still serves this domain prefix until its next deployment is live';

/** Locks the prefix until the transaction ends. */
export const lockPrefix = ({ capabilities }: Database, tx: Tx, prefix: string): Promise<void> =>
  capabilities.lockName(tx, `prefix:${prefix}`);

/** Returns why the project may not have the prefix; null: it may. Call it with the prefix locked. */
export async function prefixUse(tx: Tx, prefix: string, projectId: string | null): Promise<string | null> {
  const set = await tx.selectFrom('projects').select('id').where('domain_prefix', '=', prefix).executeTakeFirst();
  if (set !== undefined && set.id !== projectId) return PREFIX_SET;
  return (await isServedByOthers(tx, prefix, projectId)) ? PREFIX_SERVED : null;
}

/** Throws domain_prefix_taken. (The prefixes that projects are set to are unique by constraint.) */
export async function refuseUsedPrefix(db: Database, tx: Tx, prefix: string, projectId: string | null): Promise<void> {
  await lockPrefix(db, tx, prefix);
  if (await isServedByOthers(tx, prefix, projectId)) throw new DomainError('domain_prefix_taken', PREFIX_SERVED);
}

/** Returns whether another project serves the prefix: a project that gave up a prefix publishes it until its next deployment is live. */
async function isServedByOthers(tx: Tx, prefix: string, projectId: string | null): Promise<boolean> {
  const routes = tx.selectFrom('routes').select('project_id').where('domain_prefix', '=', prefix);
  const live = tx
    .selectFrom('deployments')
    .select('project_id')
    .where('domain_prefix', '=', prefix)
    .where('status', 'in', [...LIVE_STATES]);
  const users = await routes.union(live).execute();
  return users.some((user) => user.project_id !== projectId);
}
