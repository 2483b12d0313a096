/**
 * Interface to single values of the whole installation. Each method runs its own transaction,
 * and documents its rule and the codes of DomainError that it throws. Implemented in store/.
 */

export type MetaStore = {
  get(key: string): Promise<string | null>;
  /** Sets the value unless one exists, and returns the stored value. */
  setOnce(key: string, value: string): Promise<string>;
  set(key: string, value: string): Promise<void>;
  startingWith(prefix: string): Promise<{ key: string; value: string }[]>;
  /** Overwrites the value before removing the row, so that the database file does not keep it. */
  remove(key: string): Promise<void>;
};
