/** Changes a list of a project. The API accepts such a list only as a whole. */
import { defined } from '@berth/kit/defined';
import { ApiError } from '@berth/wire/client';
import type { Project } from '@berth/wire/project';
import type { BodyOf } from '@berth/wire/routes';
import type { Cli } from '../cli.ts';
import { refused } from '../problem.ts';

/** Maximum number of attempts, because other people can change the project at the same time. */
const TRIES = 5;

/**
 * Reads the current project and changes it, because an older copy of a list could undo another
 * person's change.
 * @param decide gets the project of each attempt, and returns the fields to change; its errors end
 * the command
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
