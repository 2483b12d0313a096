/** Names for the ids that answers contain. */
import { useQuery } from '@tanstack/react-query';
import { call } from '../api/client.ts';
import { queries } from '../api/queries.ts';
import { BATCH, createNameReader } from './name-reader.ts';

const readName = createNameReader((ids) => call('listProjects', { query: { ids: ids.join(','), limit: BATCH } }));

/** Null: the project does not exist or is hidden. */
type Names = Readonly<Record<string, string | null>>;
/** The last known name of each project that a page showed. The keys begin with the route, so that events mark them (api/live.ts). */
const KNOWN = ['listProjects', 'known names'];
queries.setQueryDefaults(KNOWN, { gcTime: Number.POSITIVE_INFINITY });

async function readNames(ids: readonly string[]): Promise<Names> {
  const names = Object.fromEntries(await Promise.all(ids.map(async (id) => [id, await readName(id)] as const)));
  queries.setQueryData<Names>(KNOWN, (known) => ({ ...known, ...names }));
  return names;
}

/**
 * Returns the names of these projects, and only these are read. A name is the id until the page has it. One query reads all of them: a
 * query for each id costs a render of the page for each id.
 */
export function useProjectNames(ids: readonly string[]): (id: string) => string {
  const wanted = [...new Set(ids)].toSorted();
  const { data } = useQuery({
    queryKey: ['listProjects', 'names', wanted],
    queryFn: () => readNames(wanted),
    enabled: wanted.length > 0,
    // Each event may change the ids. `KNOWN` has the names after that time.
    gcTime: 30_000,
  });
  const known = queries.getQueryData<Names>(KNOWN);
  return (id) => data?.[id] ?? known?.[id] ?? id;
}
