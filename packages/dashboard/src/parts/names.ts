/** Names for the ids in answers of the API. */
import { useQuery } from '@tanstack/react-query';
import { call } from '../api/client.ts';
import { queries } from '../api/queries.ts';
import { BATCH, createNameReader } from './name-reader.ts';

const readName = createNameReader((ids) =>
  call('listProjects', { query: { ids: ids.join(','), limit: BATCH } }),
);

/**
 * Names that the page has already read. A project's name cannot change, so each name is read once,
 * and events do not mark these queries.
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
 * Returns the names of these projects, and reads only these. Until a name is read, its id is
 * returned. One query reads all names, because one query per id would cost one render per id.
 */
export function useProjectNames(ids: readonly string[]): (id: string) => string {
  const wanted = [...new Set(ids)].toSorted();
  const { data } = useQuery({
    queryKey: ['names of projects', wanted],
    queryFn: () => readNames(wanted),
    enabled: wanted.length > 0,
    // Drop unused queries soon, because each event can change the list of ids.
    gcTime: 30_000,
  });
  const knownNames = queries.getQueryData<Names>(KNOWN);
  return (id) => data?.[id] ?? knownNames?.[id] ?? id;
}
