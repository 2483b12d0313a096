/** Decisions that a store takes with the record as it stands inside the transaction. */

/** A change, or a function that makes the change from the present record. */
export type Change<R, C> = C | ((present: R) => C);
/** Called inside the transaction with the present record, possibly more than once; throws to refuse. */
export type Guard<R> = (present: R) => void;
