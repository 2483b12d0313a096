/**
 * A counter that each change of `disabled` increases, so that another control plane finds the
 * change with one read (policy.ts, `stamp`).
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
