/** Names for the ids that answers contain. */
import { useQueries } from '@tanstack/react-query';
import { useEffect, useMemo } from 'react';
import { call } from '../api/client.ts';
import { useList } from '../api/queries.ts';
import { BATCH, createNameReader } from './name-reader.ts';

const readName = createNameReader((ids) => call('listProjects', { query: { ids: ids.join(','), limit: BATCH } }));

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
