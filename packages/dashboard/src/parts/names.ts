/** Names for the ids that answers contain. */
import { useQuery } from '@tanstack/react-query';
import { call } from '../api/client.ts';
import { queries } from '../api/queries.ts';
import { BATCH, createNameReader } from './name-reader.ts';

const readName = createNameReader((ids) =>
  call('listProjects', { query: { ids: ids.join(','), limit: BATCH } }),
);

/**
 * The names that the page has read. The name of a project cannot change, so each is read once, and
 * no event marks these queries.
 */
type Names = Readonly<Record<string, string>>;
const KNOWN = ['known names of projects'];
queries.setQueryDefaults(KNOWN, { gcTime: Number.POSITIVE_INFINITY });

async function readNames(ids: readonly string[]): Promise<Names> {
  const knownNames = queries.getQueryData<Names>(KNOWN);
  const missing = ids.filter((id) => knownNames?.[id] === undefined);
  const read = await Promise.all(missing.map(async (id) => [id, await readName(id)] as const));
  const names = Object.fromEntries(
    read.flatMap(([id, name]) => (name === null ? [] : [[id, name]])),
  );
  if (missing.length > 0) queries.setQueryData<Names>(KNOWN, (before) => ({ ...before, ...names }));
  return names;
}

/**
 * Returns the names of these projects, and only these are read. A name is the id until the page has
 * it. One query reads all of them: a query for each id costs a render of the page for each id.
 */
export function useProjectNames(ids: readonly string[]): (id: string) => string {
  const wanted = [...new Set(ids)].toSorted();
  const { data } = useQuery({
    queryKey: ['names of projects', wanted],
    queryFn: () => readNames(wanted),
    enabled: wanted.length > 0,
    // Each event can change the ids.
    gcTime: 30_000,
  });
  const knownNames = queries.getQueryData<Names>(KNOWN);
  return (id) => data?.[id] ?? knownNames?.[id] ?? id;
}
