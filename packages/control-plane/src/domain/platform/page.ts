/** Types of paged lists and their filters. */

/**
 * `cursor`: the opaque `next` of the previous page. An invalid cursor causes a `validation` error
 * on the field `cursor`.
 */
export type Page = { limit: number; cursor: string | null };
/** `name`: only records with exactly this name. */
export type NameFilter = { name?: string };
/**
 * `find`: text that the name, the domain prefix or the git address contains, ignoring case. `ids`:
 * only these records.
 */
export type ProjectFilter = NameFilter & { find?: string; ids?: readonly string[] };
/** `next`: the cursor of the next page; null on the last page. */
export type Paged<T> = { items: T[]; next: string | null };
