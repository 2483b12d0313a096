/** A project and its ETag, for changes that send a whole list. */
import type { Project } from '@berth/wire/project';
import { useApiQueryWithTag } from '../api/queries.ts';

export type TaggedProject = {
  project: Project;
  /** `If-Match` with the ETag of `project`; empty until the project is read. */
  headers: { headers?: { 'if-match': string } };
  /** False until the answer arrives: before that, a change would have no `If-Match`. */
  isRead: boolean;
};
/**
 * Reads the project and its ETag in one answer: a list from another answer could undo another
 * person's change.
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

/** Returns why the change of a list cannot be sent yet; null if it can. */
export const notReadReason = ({ isRead }: TaggedProject): string | null =>
  isRead ? null : 'the project is not read yet';
