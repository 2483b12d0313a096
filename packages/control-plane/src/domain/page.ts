/** Lists are read page by page. */

/** `cursor` is the opaque `next` of the page before. A wrong cursor: `validation` on field `cursor`. */
export type Page = { limit: number; cursor: string | null };
/** `name`: only records with exactly this name. */
export type NameFilter = { name?: string };
/** `next`: the cursor of the next page; null on the last page. */
export type Paged<T> = { items: T[]; next: string | null };
