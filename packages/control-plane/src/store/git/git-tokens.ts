import { DomainError } from '../../domain/platform/errors.ts';
import type { GitTokenStore } from '../../domain/git/git-stores.ts';
import { afterMove } from '../../domain/git/git-token.ts';
import type { Database } from '../engine/database.ts';
import type { Tx } from '../engine/tables.ts';
import { type NewEvent, writeEvents } from '../events.ts';
import { projectOf } from '../rows/project.ts';
import { accessEvent, changingProject } from './project-row.ts';

export const createGitTokenStore = (db: Database): GitTokenStore => ({
  async get(projectId) {
    return (
      (await db.kysely
        .selectFrom('git_tokens')
        .selectAll()
        .where('project_id', '=', projectId)
        .executeTakeFirst()) ?? null
    );
  },

  put: (row, guard) =>
    db.write(async (tx) => {
      const project = await changingProject(db, tx, row.project_id);
      guard?.(projectOf(project));
      await tx.deleteFrom('git_tokens').where('project_id', '=', row.project_id).execute();
      await tx.insertInto('git_tokens').values(row).execute();
      await writeEvents(db, tx, [
        accessEvent(project, 'git_token_set', `git token set for ${row.host}`, row.set_at),
      ]);
      return row;
    }),

  remove: (projectId, now) =>
    db.write(async (tx) => {
      const project = await changingProject(db, tx, projectId);
      const gone = await tx
        .deleteFrom('git_tokens')
        .where('project_id', '=', projectId)
        .returning('host')
        .executeTakeFirst();
      if (gone === undefined)
        throw new DomainError('not_found', `project ${project.name} has no git token`);
      await writeEvents(db, tx, [
        accessEvent(project, 'git_token_deleted', `git token for ${gone.host} deleted`, now),
      ]);
    }),
});

/**
 * Deletes the token of a project that moves to another git host, and returns the event. Call it in
 * the transaction that changes the project. Throws validation.
 */
export async function dropMovedToken(
  tx: Tx,
  project: { id: string; name: string },
  gitUrl: string,
  now: number,
): Promise<NewEvent[]> {
  const token = await tx
    .selectFrom('git_tokens')
    .select('host')
    .where('project_id', '=', project.id)
    .executeTakeFirst();
  if (token === undefined || afterMove(token.host, gitUrl) === 'keep') return [];
  await tx.deleteFrom('git_tokens').where('project_id', '=', project.id).execute();
  const why = `git_url has another host now: ${gitUrl}`;
  const message = `git token for ${token.host} deleted, because ${why}`;
  return [accessEvent(project, 'git_token_deleted', message, now)];
}
