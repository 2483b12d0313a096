/** Lists are read page by page. */

/**
 * `cursor`: the opaque `next` of the previous page. An invalid one causes `validation` on the field
 * `cursor`.
 */
export type Page = { limit: number; cursor: string | null };
/** `name`: only records with exactly this name. */
export type NameFilter = { name?: string };
/**
 * `find`: a part of the name, the domain prefix or the git address, in any case. `ids`: only these
 * records.
 */
export type ProjectFilter = NameFilter & { find?: string; ids?: readonly string[] };
/** `next`: the cursor of the next page; null on the last page. */
export type Paged<T> = { items: T[]; next: string | null };
