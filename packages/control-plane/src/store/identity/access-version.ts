/**
 * A counter that rises with each change of `disabled`, so that another control plane sees the
 * change in one read (policy.ts, `stamp`).
 */
import { sql } from 'kysely';
import type { Tx } from '../engine/tables.ts';

export const ACCESS_VERSION = 'access_version';

export async function raiseAccessVersion(tx: Tx): Promise<void> {
  await tx
    .insertInto('meta')
    .values({ key: ACCESS_VERSION, value: '1' })
    .onConflict((oc) =>
      oc.column('key').doUpdateSet({ value: sql`cast(cast(meta.value as bigint) + 1 as text)` }),
    )
    .execute();
}
