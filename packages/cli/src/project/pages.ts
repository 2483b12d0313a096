/** Reads lists of the API page by page. */
type Page<T> = { items: T[]; next_cursor: string | null };

/** Reads all pages and returns their items, at most `limit`. */
export async function allPages<T>(
  read: (cursor: { cursor?: string }) => Promise<Page<T>>,
  limit = 100_000,
): Promise<T[]> {
  const items: T[] = [];
  let cursor: { cursor?: string } = {};
  for (;;) {
    const page = await read(cursor);
    items.push(...page.items);
    if (page.next_cursor === null || items.length >= limit) return items.slice(0, limit);
    cursor = { cursor: page.next_cursor };
  }
}
