import type { Database } from './engine/database.ts';
import type { NewId } from './ids.ts';

/** The dependencies for changing the owner of a host. `quarantineMs`: DOMAIN_QUARANTINE. */
export type Claiming = { db: Database; newId: NewId; quarantineMs: number };
