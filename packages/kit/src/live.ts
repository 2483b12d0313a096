/**
 * Values that a reload replaces while the process runs (reload.ts). Read a value at each use and
 * keep no copy.
 */

export type Live<T> = () => T;

/** Returns a function that reads the value and a function that replaces it. */
export function live<T>(value: T): { read: Live<T>; replace(next: T): void } {
  return {
    read: () => value,
    replace: (next) => void (value = next),
  };
}

/**
 * Returns a function for the result of `make`, which is computed again after each replacement of
 * the value. So a cache in the result never outlives the value.
 */
export function derived<T extends object, U>(read: Live<T>, make: (value: T) => U): Live<U> {
  let from: T | null = null;
  let made: U;
  return () => {
    const value = read();
    if (value !== from) {
      made = make(value);
      from = value;
    }
    return made;
  };
}
