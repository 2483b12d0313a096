/**
 * Checks whether a scan's claim on its dataset is still valid. Every write of a scan makes this
 * check in its own transaction.
 */
import type { ScanClaim } from '../../domain/data/dataset-stores.ts';
import type { Tx } from '../engine/tables.ts';
import type { Connection } from '../engine/connection.ts';
import type { Row } from '../engine/tables.ts';

/**
 * Returns the dataset's row, or undefined if the claim is lost. A valid claim stays valid until the
 * transaction ends.
 */
export const claimedRow = (
  { capabilities }: Connection,
  tx: Tx,
  { token, dataset }: ScanClaim,
): Promise<Row<'datasets'> | undefined> =>
  tx
    .selectFrom('datasets')
    .selectAll()
    .where('id', '=', dataset.id)
    .where('scanning_by', '=', token)
    .where('deleting_at', 'is', null)
    .$if(capabilities.rowLocks, (q) => q.forUpdate())
    .executeTakeFirst();

export const isClaimed = async (db: Connection, tx: Tx, claim: ScanClaim): Promise<boolean> =>
  (await claimedRow(db, tx, claim)) !== undefined;
