/** Whose host name a domain prefix is, inside a transaction of others. */
import { DomainError } from '../domain/errors.ts';
import type { Database, Tx } from './database.ts';
import { LIVE_STATES } from './states.ts';

/**
 * A project that gave up a prefix publishes it until its next deployment is live; nobody else may have it before.
 * (The prefixes that projects are set to are unique by constraint.)
 */
export async function refuseUsedPrefix({ capabilities }: Database, tx: Tx, prefix: string, projectId: string | null): Promise<void> {
  await capabilities.holdName(tx, `prefix:${prefix}`);
  const routes = tx.selectFrom('routes').select('project_id').where('domain_prefix', '=', prefix);
  const live = tx
    .selectFrom('deployments')
    .select('project_id')
    .where('domain_prefix', '=', prefix)
    .where('status', 'in', [...LIVE_STATES]);
  const users = await routes.union(live).execute();
  if (users.some((user) => user.project_id !== projectId)) {
    throw new DomainError(
      'domain_prefix_taken',
      'Another project still serves under this domain prefix, until its next deployment is live',
    );
  }
}
