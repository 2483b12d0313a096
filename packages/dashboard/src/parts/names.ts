/** Names for the ids that answers contain. */
import { useEffect, useMemo } from 'react';
import { useList } from '../api/queries.ts';

const ALL = { query: { limit: 200 } };

/** Returns the name of a project. It is the id until the page has the name. */
export function useProjectNames(): (id: string) => string {
  const { items, more } = useList('listProjects', ALL);
  useEffect(() => more?.(), [more]);
  const names = useMemo(() => new Map(items.map(({ id, name }) => [id, name])), [items]);
  return (id) => names.get(id) ?? id;
}

export function useNodeNames(): (id: string) => string {
  const { items, more } = useList('listNodes', ALL);
  useEffect(() => more?.(), [more]);
  const names = useMemo(() => new Map(items.map(({ id, hostname }) => [id, hostname])), [items]);
  return (id) => names.get(id) ?? id;
}
