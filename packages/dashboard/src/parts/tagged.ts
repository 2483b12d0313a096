/** A project and its ETag, for changes of a whole list. */
import type { Project } from '@berth/wire/project';
import { useAskWithTag } from '../api/queries.ts';

/**
 * Returns the list and its ETag of one answer: with the list of another one, a change could undo
 * that of another person. `isRead`: the answer is there; without it a change has no `If-Match`.
 */
export function useTagged(shown: Project): {
  project: Project;
  headers: { headers?: { 'if-match': string } };
  isRead: boolean;
} {
  const { data } = useAskWithTag('getProject', { params: { id: shown.id } });
  const etag = data?.etag ?? null;
  return {
    project: data?.answer ?? shown,
    headers: etag === null ? {} : { headers: { 'if-match': etag } },
    isRead: etag !== null,
  };
}
