/** A change of a list of a project, which is sent as a whole. */
import { defined } from '@berth/kit/defined';
import { ApiError } from '@berth/wire/client';
import type { Project } from '@berth/wire/project';
import type { BodyOf } from '@berth/wire/routes';
import type { Cli } from '../cli.ts';
import { refused } from '../problem.ts';

/** Other people can change the project at the same time. */
const TRIES = 5;

/**
 * Changes the project as it is now: a list that is a moment old could undo the change of another
 * person.
 * @param decide gets the project of each try, and returns the fields to change; its errors end the
 *   command
 * @returns the changed project
 */
export async function changeProject(
  cli: Cli,
  decide: (present: Project) => Promise<BodyOf<'patchProject'>>,
): Promise<Project> {
  const { id } = await cli.project();
  const client = cli.client();
  for (let tries = 1; ; tries++) {
    const { answer: present, etag } = await client.exchange('getProject', { params: { id } });
    if (present === null) throw refused('not_found', 'the project is gone');
    const body = await decide(present);
    try {
      return await client.call('patchProject', {
        params: { id },
        body,
        ...defined({ headers: etag === null ? undefined : { 'if-match': etag } }),
      });
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== 'changed_meanwhile' || tries === TRIES)
        throw error;
    }
  }
}
