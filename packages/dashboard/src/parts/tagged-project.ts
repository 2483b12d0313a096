/** A project and its ETag, for changes of a whole list. */
import type { Project } from '@berth/wire/project';
import { useApiQueryWithTag } from '../api/queries.ts';

export type TaggedProject = {
  project: Project;
  /** `If-Match` with the ETag of `project`; empty until it is read. */
  headers: { headers?: { 'if-match': string } };
  /** False: the answer is not there yet, and a change would have no `If-Match`. */
  isRead: boolean;
};
/**
 * Reads the list and its ETag in one answer: with the list of another answer, a change could undo
 * the change of another person.
 */
export function useTaggedProject(shown: Project): TaggedProject {
  const { data } = useApiQueryWithTag('getProject', { params: { id: shown.id } });
  const etag = data?.etag ?? null;
  return {
    project: data?.answer ?? shown,
    headers: etag === null ? {} : { headers: { 'if-match': etag } },
    isRead: etag !== null,
  };
}

/** Why a change of a list cannot be sent yet; null: it can. */
export const notReadReason = ({ isRead }: TaggedProject): string | null =>
  isRead ? null : 'the project is not read yet';
