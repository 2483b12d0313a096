/**
 * Values that a reload replaces while the process runs (reload.ts). Each part asks for the value at
 * each use and keeps no copy.
 */

export type Live<T> = () => T;

/** Returns the function that reads the value and the one that replaces it. */
export function live<T>(value: T): { read: Live<T>; replace(next: T): void } {
  return {
    read: () => value,
    replace: (next) => void (value = next),
  };
}

/**
 * Returns what `make` makes of the value, made again after each replacement. A cache in it never
 * outlives a value.
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
