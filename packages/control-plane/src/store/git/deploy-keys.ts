import { DomainError } from '../../domain/platform/errors.ts';
import type { DeployKeyStore } from '../../domain/git/git-stores.ts';
import type { Database } from '../engine/database.ts';
import { writeEvents } from '../events.ts';
import { accessEvent, changingProject } from './project-row.ts';

export const createDeployKeyStore = (db: Database): DeployKeyStore => ({
  async get(projectId) {
    return (
      (await db.kysely
        .selectFrom('deploy_keys')
        .selectAll()
        .where('project_id', '=', projectId)
        .executeTakeFirst()) ?? null
    );
  },

  put: (record) =>
    db.write(async (tx) => {
      const project = await changingProject(db, tx, record.project_id);
      await tx.deleteFrom('deploy_keys').where('project_id', '=', record.project_id).execute();
      await tx.insertInto('deploy_keys').values(record).execute();
      const message = `deploy key created: ${record.fingerprint}`;
      await writeEvents(db, tx, [
        accessEvent(project, 'deploy_key_created', message, record.created_at),
      ]);
    }),

  remove: (projectId, now) =>
    db.write(async (tx) => {
      const project = await changingProject(db, tx, projectId);
      const gone = await tx
        .deleteFrom('deploy_keys')
        .where('project_id', '=', projectId)
        .returning('fingerprint')
        .executeTakeFirst();
      if (gone === undefined)
        throw new DomainError('not_found', `project ${project.name} has no deploy key`);
      await writeEvents(db, tx, [
        accessEvent(project, 'deploy_key_deleted', `deploy key deleted: ${gone.fingerprint}`, now),
      ]);
    }),
});
