/** Types of decisions about the current record inside a store's transaction. */

/** A change, or a function that returns the change for the current record. */
export type RecordChange<R, C> = C | ((present: R) => C);
/**
 * Runs inside the transaction with the current record, possibly more than once. Throws to reject
 * the change.
 */
export type RecordGuard<R> = (present: R) => void;
