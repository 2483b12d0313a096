/** Queries of the page. A query's key is its route and input, so that events can mark it. */
import {
  type InfiniteData,
  infiniteQueryOptions,
  keepPreviousData,
  QueryCache,
  QueryClient,
  queryOptions,
  type UseInfiniteQueryResult,
  useInfiniteQuery,
  useQuery,
  type UseQueryResult,
} from '@tanstack/react-query';
import { useMemo } from 'react';
import { defined } from '@berth/kit/defined';
import { ApiError, type CallInput } from '@berth/wire/client';
import type { AnswerOf, RouteName } from '@berth/wire/routes';
import { call, exchange, isAway } from './client.ts';
import { reportPerson } from './connection.ts';

const ME: RouteName = 'me';
/** Number of events on one page. */
const EVENTS = 100;
let person: string | null = null;

/** Removes the answers of the previous person. Session mounts the page again. */
function take(me: AnswerOf<'me'>): void {
  if (person !== null && person !== me.id) {
    queries.removeQueries({ predicate: ({ queryKey: [name] }) => name !== ME });
    queries.getMutationCache().clear();
  }
  person = me.id;
  reportPerson();
}

/** Cached answers stay on the screen while the control plane is away; connection.ts reports it. */
export const queries = new QueryClient({
  queryCache: new QueryCache({
    onSuccess: (answer, { queryKey: [name] }) => {
      if (name === ME) take(answer as AnswerOf<'me'>);
    },
  }),
  defaultOptions: {
    queries: {
      staleTime: 30_000,
      gcTime: 10 * 60_000,
      refetchOnWindowFocus: true,
      retry: (count, error) => isAway(error) || (count < 1 && !(error instanceof ApiError)),
      retryDelay: (count) => Math.min(500 * 2 ** count, 5_000),
      networkMode: 'always',
    },
    mutations: { networkMode: 'always', retry: false },
  },
});

type Input<N extends RouteName> = Omit<CallInput<N>, 'signal' | 'headers'>;
type Key<N extends RouteName> = readonly [N, Input<N>];

export const apiQuery = <N extends RouteName>(name: N, input: Input<N>) =>
  queryOptions({
    queryKey: [name, input] as Key<N>,
    queryFn: ({ signal }): Promise<AnswerOf<N>> =>
      call(name, { ...input, signal } as unknown as CallInput<N>),
  });

/** Reads a resource and keeps it up to date. `everyMs`: polls for data without events. */
export const useApiQuery = <N extends RouteName>(
  name: N,
  input: Input<N>,
  { everyMs = false, ...options }: { enabled?: boolean; everyMs?: number | false } = {},
): UseQueryResult<AnswerOf<N>> =>
  useQuery({ ...apiQuery(name, input), ...options, refetchInterval: everyMs }) as UseQueryResult<
    AnswerOf<N>
  >;

/** Like `useApiQuery`, with the ETag that a change sends as `If-Match`. */
export const useApiQueryWithTag = <N extends RouteName>(
  name: N,
  input: Input<N>,
): UseQueryResult<{ answer: AnswerOf<N>; etag: string | null }> =>
  useQuery({
    queryKey: [name, input, 'etag'],
    queryFn: ({ signal }) => exchange(name, { ...input, signal } as unknown as CallInput<N>),
  });

/** `more` reads the next page. It is null while a page loads and after the last page. */
function listOf<
  I,
  Q extends Pick<UseInfiniteQueryResult, 'hasNextPage' | 'isFetchingNextPage' | 'fetchNextPage'>,
>(query: Q, items: I[]) {
  const more =
    query.hasNextPage && !query.isFetchingNextPage ? () => void query.fetchNextPage() : null;
  return { items, more, hasMore: query.hasNextPage, query };
}

/** Pages of events, newest first. `find`: text to search in the kind and the message. */
export function useEvents(find: string) {
  const query = useInfiniteQuery({
    // The key begins with the route, so that events can mark the query (live.ts).
    queryKey: ['events', find, 'pages'],
    initialPageParam: null as number | null,
    queryFn: ({ pageParam, signal }) =>
      call('events', {
        query: {
          limit: EVENTS,
          ...defined({ find: find === '' ? undefined : find, before: pageParam ?? undefined }),
        },
        signal,
      }),
    getNextPageParam: (last) => last.previous ?? null,
    placeholderData: keepPreviousData,
  });
  const items = useMemo(
    () => query.data?.pages.flatMap((page) => page.items.toReversed()) ?? [],
    [query.data],
  );
  return listOf(query, items);
}

type ItemOf<N extends RouteName> = AnswerOf<N> extends { items: (infer I)[] } ? I : never;
type Page<N extends RouteName> = { items: ItemOf<N>[]; next_cursor: string | null };

/**
 * Pages of a list. `items` has all pages that were read; `more` reads the next page. `keep`: while
 * a search for other words runs, the rows of the previous search stay.
 */
export function useApiList<N extends RouteName>(
  name: N,
  input: Input<N>,
  { keep = false, ...options }: { enabled?: boolean; keep?: boolean } = {},
): {
  items: ItemOf<N>[];
  more: (() => void) | null;
  hasMore: boolean;
  query: UseInfiniteQueryResult<InfiniteData<Page<N>>>;
} {
  const query = useInfiniteQuery({
    ...infiniteQueryOptions({
      queryKey: [name, input, 'pages'],
      initialPageParam: null as string | null,
      queryFn: async ({ pageParam, signal }): Promise<Page<N>> => {
        const withQuery = input as { query?: object };
        const query = { ...withQuery.query, ...defined({ cursor: pageParam ?? undefined }) };
        return (await call(name, {
          ...input,
          query,
          signal,
        } as unknown as CallInput<N>)) as unknown as Page<N>;
      },
      getNextPageParam: (last: Page<N>) => last.next_cursor,
    }),
    ...options,
    ...defined({ placeholderData: keep ? keepPreviousData : undefined }),
  });
  const items = useMemo(() => query.data?.pages.flatMap((page) => page.items) ?? [], [query.data]);
  return listOf(query, items);
}
