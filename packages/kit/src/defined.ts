/**
 * Leaves out undefined fields, because `exactOptionalPropertyTypes` forbids setting them to
 * undefined.
 */

type OptionalKeys<T> = { [K in keyof T]: undefined extends T[K] ? K : never }[keyof T];

/** The fields of T; a field that can be undefined is optional, and is not undefined if present. */
export type Defined<T> = Omit<T, OptionalKeys<T>> & {
  [K in OptionalKeys<T>]?: Exclude<T[K], undefined>;
};

/** Returns a copy without the fields that are undefined. */
export function defined<T extends object>(fields: T): Defined<T> {
  const entries = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as Defined<T>;
}
