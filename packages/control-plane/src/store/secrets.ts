/**
 * The sealed secrets of projects, deleted with their project. Only the vault can open them
 * (secrets/vault.ts).
 */
import { sql } from 'kysely';
import { DomainError, invalid } from '../domain/platform/errors.ts';
import type { ProjectRecord } from '../domain/platform/records.ts';
import {
  envHasName,
  type NewSecret,
  type SealedSecret,
  type SecretRecord,
  type SecretStore,
  secretsProblem,
} from '../domain/secrets/secrets.ts';
import type { Database } from './engine/database.ts';
import type { Db, Row, Tx } from './engine/tables.ts';
import { writeEvents } from './events.ts';
import { removeKeptVariable } from './kept-settings.ts';
import { lockedProject } from './project-row.ts';
import { projectEvent } from './projects.ts';
import { projectOf } from './rows/project.ts';
import { writeStoryLine } from './story.ts';

const SHOWN = ['name', 'fingerprint', 'scope', 'delivery', 'set_by', 'set_at'] as const;
type Shown = Pick<Row<'project_secrets'>, (typeof SHOWN)[number]>;
const secretOf = ({ delivery, ...row }: Shown): SecretRecord => ({ ...row, as: delivery });

export const secretsOf = async (db: Db, projectId: string): Promise<SecretRecord[]> =>
  (
    await db
      .selectFrom('project_secrets')
      .select(SHOWN)
      .where('project_id', '=', projectId)
      .orderBy('name')
      .execute()
  ).map(secretOf);

export function createSecretStore(db: Database): SecretStore {
  return {
    list: (projectId) => secretsOf(db.kysely, projectId),

    async get(projectId, name) {
      const row = await secretRow(db.kysely, projectId, name);
      if (row === undefined) throw noSecret(name);
      return secretOf(row);
    },

    async sealed(projectId, names) {
      if (names.length === 0) return [];
      const rows = await db.kysely
        .selectFrom('project_secrets')
        .select([...SHOWN, 'sealed'])
        .where('project_id', '=', projectId)
        .where('name', 'in', [...names])
        .orderBy('name')
        .execute();
      return rows.map(({ sealed, ...row }): SealedSecret => ({ ...secretOf(row), sealed }));
    },

    set: (projectId, secret, now, guard) =>
      db.write(async (tx) => {
        const project = await changeableProject(db, tx, projectId, guard);
        if (Object.hasOwn(project.env, secret.name)) throw envHasName(secret.name);
        return writeSecret(db, tx, project, secret, now, '');
      }),

    delivered: (deploymentId, { prints, missing }, now) =>
      db.write(async (tx) => {
        if (prints !== null) {
          const secrets = prints.length === 0 ? null : JSON.stringify(prints);
          await tx
            .updateTable('deployments')
            .set({ secrets })
            .where('id', '=', deploymentId)
            .execute();
        }
        if (missing.length === 0) return;
        const message =
          `the project no longer has the ${missing.length === 1 ? 'secret' : 'secrets'} ` +
          `${missing.join(', ')}; the deployment starts without ` +
          (missing.length === 1 ? 'it' : 'them');
        await writeStoryLine(
          tx,
          { deployment_id: deploymentId, kind: 'secrets', message },
          now,
          'words',
        );
      }),

    remove: (projectId, name, now, guard) =>
      db.write(async (tx) => {
        const project = await changeableProject(db, tx, projectId, guard);
        const removed = await tx
          .deleteFrom('project_secrets')
          .where('project_id', '=', projectId)
          .where('name', '=', name)
          .returning('name')
          .executeTakeFirst();
        if (removed === undefined) throw noSecret(name);
        await raiseSecretsVersion(tx, projectId, now);
        await writeEvents(db, tx, [projectEvent(project, 'secret_deleted', now, ` ${name}`)]);
      }),

    importEnv: (projectId, name, seal, now, guard) =>
      db.write(async (tx) => {
        const project = await changeableProject(db, tx, projectId, guard);
        const { [name]: value, ...env } = project.env;
        if (value === undefined || !Object.hasOwn(project.env, name))
          throw new DomainError('not_found', `project ${project.name} has no variable ${name}`);
        const secret = seal(value);
        await tx
          .updateTable('projects')
          .set((eb) => ({ env: JSON.stringify(env), flow_version: eb('flow_version', '+', 1) }))
          .where('id', '=', projectId)
          .execute();
        await forgetVariable(db, tx, projectId, name);
        return writeSecret(db, tx, project, secret, now, ' from its environment variable');
      }),
  };
}

const noSecret = (name: string): DomainError =>
  new DomainError('not_found', `the project has no secret ${name}`);

const secretRow = (db: Db, projectId: string, name: string): Promise<Shown | undefined> =>
  db
    .selectFrom('project_secrets')
    .select(SHOWN)
    .where('project_id', '=', projectId)
    .where('name', '=', name)
    .executeTakeFirst();

/** Returns the locked project. Throws not_found, being_deleted, and errors of the guard. */
async function changeableProject(
  db: Database,
  tx: Tx,
  projectId: string,
  guard: (present: ProjectRecord) => void,
): Promise<ProjectRecord> {
  const project = projectOf(await lockedProject(db, tx, projectId));
  if (project.deleting_at !== null) throw new DomainError('being_deleted');
  guard(project);
  return project;
}

async function raiseSecretsVersion(tx: Tx, projectId: string, now: number): Promise<ProjectRecord> {
  const row = await tx
    .updateTable('projects')
    .set((eb) => ({ updated_at: now, secrets_version: eb('secrets_version', '+', 1) }))
    .where('id', '=', projectId)
    .returningAll()
    .executeTakeFirstOrThrow();
  return projectOf(row);
}

async function writeSecret(
  db: Database,
  tx: Tx,
  { id, name: projectName }: ProjectRecord,
  { bytes, as, ...secret }: NewSecret,
  now: number,
  how: string,
): ReturnType<SecretStore['set']> {
  const others = await tx
    .selectFrom('project_secrets')
    .select((eb) => [
      eb.fn.countAll<number>().as('count'),
      eb.fn.coalesce(eb.fn.sum<number>('bytes'), sql<number>`0`).as('bytes'),
    ])
    .where('project_id', '=', id)
    .where('name', '!=', secret.name)
    .executeTakeFirstOrThrow();
  const problem = secretsProblem({ count: others.count + 1, bytes: others.bytes + bytes });
  if (problem !== null) throw invalid(problem.field, problem.rule, problem.message);
  const columns = { ...secret, bytes, delivery: as, set_at: now };
  await tx
    .insertInto('project_secrets')
    .values({ project_id: id, ...columns })
    .onConflict((oc) => oc.columns(['project_id', 'name']).doUpdateSet(columns))
    .execute();
  const project = await raiseSecretsVersion(tx, id, now);
  const where = secret.scope === 'build' ? 'build' : as;
  await writeEvents(db, tx, [
    projectEvent({ id, name: projectName }, 'secret_set', now, ` ${secret.name} (${where})${how}`),
  ]);
  const { sealed: _, ...shown } = secret;
  return { project, secret: { ...shown, as, set_at: now } };
}

/**
 * Removes the variable from the settings that deployments have copied: a rollback gets the current
 * value of the secret instead.
 */
async function forgetVariable(
  db: Database,
  tx: Tx,
  projectId: string,
  name: string,
): Promise<void> {
  const settings = db.capabilities.withoutKey('settings', ['env', name]);
  const hasName = `%"${name}"%`;
  await sql`
    update deployments set settings = ${settings}
    where project_id = ${projectId} and settings like ${hasName}`.execute(tx);
  await removeKeptVariable(tx, projectId, name);
}
