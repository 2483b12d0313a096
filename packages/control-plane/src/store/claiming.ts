import type { Database } from './engine/database.ts';
import type { NewRow } from './engine/tables.ts';
import type { NewId } from './ids.ts';

/** The dependencies for changing the owner of a host. `quarantineMs`: DOMAIN_QUARANTINE. */
export type Claiming = { db: Database; newId: NewId; quarantineMs: number };

/**
 * Maximum number of a project's removed domains, and of its former domain prefixes, that are in
 * quarantine. Each keeps a row until its quarantine ends.
 */
export const MAX_KEPT_HOSTS = 200;
export const SWEPT_AT_ONCE = 500;

/**
 * Returns the columns of a new claim. The id is always new, even for the same project, so that older
 * session cookies stay invalid.
 */
export const newClaim = (
  { newId }: Pick<Claiming, 'newId'>,
  projectId: string,
  now: number,
): Omit<NewRow<'prefix_claims'>, 'prefix'> => ({
  id: newId(),
  project_id: projectId,
  claimed_at: now,
  released_at: null,
});
