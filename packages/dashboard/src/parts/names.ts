/** Names for the ids that answers contain. */
import { useQueries } from '@tanstack/react-query';
import { useEffect, useMemo } from 'react';
import { call } from '../api/client.ts';
import { useList } from '../api/queries.ts';

/** Ids of one request. */
const BATCH = 100;
type Waiting = { id: string; done: (name: string | null) => void; failed: (error: unknown) => void };
let waiting: Waiting[] = [];

/** Reads the name of a project. The reads of one turn become one request for each 100 ids. Null: it does not exist or is hidden. */
export const readName = (id: string): Promise<string | null> =>
  new Promise((done, failed) => {
    if (waiting.length === 0) setTimeout(flush);
    waiting.push({ id, done, failed });
  });

function flush(): void {
  const all = waiting;
  waiting = [];
  for (let at = 0; at < all.length; at += BATCH) void readBatch(all.slice(at, at + BATCH));
}

async function readBatch(batch: readonly Waiting[]): Promise<void> {
  try {
    const ids = [...new Set(batch.map(({ id }) => id))];
    const { items } = await call('listProjects', { query: { ids: ids.join(','), limit: BATCH } });
    const names = new Map(items.map(({ id, name }) => [id, name]));
    for (const { id, done } of batch) done(names.get(id) ?? null);
  } catch (error) {
    for (const { failed } of batch) failed(error);
  }
}

/** Returns the names of these projects, and only these are read. A name is the id until the page has it. */
export function useProjectNames(ids: readonly string[]): (id: string) => string {
  const wanted = [...new Set(ids)];
  const names = useQueries({
    // The key begins with the route, so that events mark it (api/live.ts).
    queries: wanted.map((id) => ({ queryKey: ['listProjects', 'name', id], queryFn: () => readName(id) })),
    combine: (results) => results.map(({ data }) => data ?? null),
  });
  const byId = new Map(wanted.map((id, index) => [id, names[index] ?? id]));
  return (id) => byId.get(id) ?? id;
}

const ALL = { query: { limit: 200 } };
export function useNodeNames(): (id: string) => string {
  const { items, more } = useList('listNodes', ALL);
  useEffect(() => more?.(), [more]);
  const names = useMemo(() => new Map(items.map(({ id, hostname }) => [id, hostname])), [items]);
  return (id) => names.get(id) ?? id;
}
