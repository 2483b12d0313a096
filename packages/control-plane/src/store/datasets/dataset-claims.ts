/** Whether a claim on a dataset still holds: asked by every write of a scan, in the same transaction. */
import type { ScanClaim } from '../../domain/dataset-stores.ts';
import type { Tx } from '../engine/tables.ts';
import type { Doors } from '../engine/doors.ts';
import type { Row } from '../engine/tables.ts';

/** Undefined: the claim is lost. Else nobody takes it until the transaction ends. */
export const claimedRow = ({ capabilities }: Doors, tx: Tx, { token, dataset }: ScanClaim): Promise<Row<'datasets'> | undefined> =>
  tx
    .selectFrom('datasets')
    .selectAll()
    .where('id', '=', dataset.id)
    .where('scanning_by', '=', token)
    .where('deleting_at', 'is', null)
    .$if(capabilities.rowLocks, (q) => q.forUpdate())
    .executeTakeFirst();

export const isClaimed = async (db: Doors, tx: Tx, claim: ScanClaim): Promise<boolean> => (await claimedRow(db, tx, claim)) !== undefined;
