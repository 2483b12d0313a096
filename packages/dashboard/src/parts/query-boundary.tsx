/** Shows the answer of a query, its error, or a loading state. */
import { ApiError } from '@berth/wire/client';
import type { ReactNode } from 'react';
import { NotFound } from './not-found.tsx';
import { SkeletonLines } from '../ui/feedback.tsx';
import { Problem } from './problem.tsx';

type Query<T> = { data: T | undefined; error: unknown; refetch: () => unknown };
/**
 * `page`: a 404 shows the page for an unknown address. During an error, old data stays on the
 * screen, and the banner reports the error.
 */
export function QueryBoundary<T>({
  query,
  what,
  page = false,
  children,
}: {
  query: Query<T>;
  what: string;
  page?: boolean;
  children: (data: T) => ReactNode;
}) {
  if (page && query.error instanceof ApiError && query.error.status === 404) return <NotFound />;
  if (query.data !== undefined) return children(query.data);
  if (query.error !== null && query.error !== undefined)
    return (
      <Problem error={query.error} what={`Loading ${what}`} again={() => void query.refetch()} />
    );
  return (
    <div role="status">
      <span className="visually-hidden">Loading {what}</span>
      <SkeletonLines />
    </div>
  );
}
