/**
 * Conditions for queries that limit projects to those that a caller can see. The table
 * `project_members` decides: a project without rows is visible to every user. The rows of a deleted
 * project stay while the feed has its events, so that these events stay hidden.
 */
import { type RawBuilder, sql } from 'kysely';
import type { Member } from '@berth/wire/project';
import { type ProjectAccess, seesAll } from '../domain/identity/access.ts';
import { invalid } from '../domain/platform/errors.ts';
import type { Database } from './engine/database.ts';
import type { Db, Tx } from './engine/tables.ts';

/** A caller without an account, who sees only projects without members. */
export const NOBODY: ProjectAccess = { userId: '', isAdmin: false, only: null };

/** The maximum number of projects of a token. */
const FEW = 100;

/** Returns a condition on a column with project ids; null if the caller can see every project. */
export function visible(
  access: ProjectAccess | undefined,
  column: string,
): RawBuilder<boolean> | null {
  if (access === undefined || seesAll(access)) return null;
  const id = sql.ref(column);
  const limit = access.only === null ? sql`1 = 1` : sql`${id} in (${sql.join(access.only)})`;
  if (access.isAdmin) return sql<boolean>`(${limit})`;
  return sql<boolean>`(${limit} and (
    not exists (select 1 from project_members where project_members.project_id = ${id})
    or ${id} in (select project_id from project_members where user_id = ${access.userId})))`;
}

/**
 * Returns the ids of the projects that a caller can see if they are few; null if the caller can see
 * all projects, or many. A list then reads these projects one by one. With only the condition of
 * `visible`, it would read the rows of all hidden projects until its page is full.
 */
export async function fewVisible(
  db: Db,
  access: ProjectAccess | undefined,
): Promise<string[] | null> {
  const seen = visible(access, 'projects.id');
  if (seen === null) return null;
  const rows = await db
    .selectFrom('projects')
    .select('id')
    .where(seen)
    .limit(FEW + 1)
    .execute();
  return rows.length > FEW ? null : rows.map(({ id }) => id);
}

/** Returns the ids that the caller can see. For deleted projects, the last members count. */
export async function visibleOf(
  db: Db,
  ids: readonly string[],
  access: ProjectAccess,
): Promise<Set<string>> {
  const wanted = new Set(
    access.only === null ? ids : ids.filter((id) => access.only?.includes(id)),
  );
  if (access.isAdmin || wanted.size === 0) return wanted;
  const rows = await db
    .selectFrom('project_members')
    .select(['project_id', 'user_id'])
    .where('project_id', 'in', [...wanted])
    .execute();
  const own = new Set(
    rows.filter((row) => row.user_id === access.userId).map((row) => row.project_id),
  );
  for (const { project_id } of rows) if (!own.has(project_id)) wanted.delete(project_id);
  return wanted;
}

/** Writes the member rows of a project. The caller must have locked the project's row. */
export async function setMembers(
  tx: Tx,
  projectId: string,
  members: readonly Member[],
): Promise<void> {
  await tx.deleteFrom('project_members').where('project_id', '=', projectId).execute();
  if (members.length > 0)
    await tx
      .insertInto('project_members')
      .values(members.map(({ user_id, role }) => ({ project_id: projectId, user_id, role })))
      .execute();
}

/**
 * Refuses new members that do not exist. A deleted user can stay in the list: the last member keeps
 * the project restricted.
 */
export async function refuseUnknownMembers(
  tx: Tx,
  members: readonly Member[],
  present: readonly Member[],
): Promise<void> {
  const added = members
    .filter(({ user_id }) => !present.some((member) => member.user_id === user_id))
    .map(({ user_id }) => user_id);
  if (added.length === 0) return;
  const users = await tx.selectFrom('users').select('id').where('id', 'in', added).execute();
  for (const [i, { user_id }] of members.entries())
    if (added.includes(user_id) && !users.some(({ id }) => id === user_id))
      throw invalid(`members[${i}].user_id`, 'exists', 'there is no user with this id');
}

export type LeftProject = { id: string; name: string; isLast: boolean };
/**
 * Removes a deleted user from the members of projects. The last member stays in the list, because
 * an empty list would open the project to every user. Returns the user's projects.
 */
export async function leaveProjects(
  { capabilities }: Database,
  tx: Tx,
  userId: string,
  now: number,
): Promise<LeftProject[]> {
  const ofUser = tx
    .selectFrom('project_members')
    .select('project_id')
    .where('user_id', '=', userId);
  const projects = await tx
    .selectFrom('projects')
    .select(['id', 'name', 'members'])
    .where('id', 'in', ofUser)
    .orderBy('id')
    .$if(capabilities.rowLocks, (q) => q.forUpdate())
    .execute();
  const leftProjects: LeftProject[] = [];
  for (const { id, name, members } of projects) {
    const others = (JSON.parse(members) as Member[]).filter((member) => member.user_id !== userId);
    leftProjects.push({ id, name, isLast: others.length === 0 });
    if (others.length === 0) continue;
    await tx
      .updateTable('projects')
      .set((eb) => ({
        members: JSON.stringify(others),
        updated_at: now,
        flow_version: eb('flow_version', '+', 1),
      }))
      .where('id', '=', id)
      .execute();
    await tx
      .deleteFrom('project_members')
      .where('project_id', '=', id)
      .where('user_id', '=', userId)
      .execute();
  }
  return leftProjects;
}

/**
 * Removes the rows of deleted projects that no longer have events in the feed. Returns the number
 * of removed rows.
 */
export async function removeOldMembers(db: Database): Promise<number> {
  const { numDeletedRows } = await db.writeOne((kysely) =>
    kysely
      .deleteFrom('project_members')
      .where('project_id', 'not in', (eb) => eb.selectFrom('projects').select('id'))
      .where('project_id', 'not in', (eb) =>
        eb
          .selectFrom('events')
          .select(eb.ref('project_id').$notNull().as('id'))
          .where('project_id', 'is not', null),
      )
      .executeTakeFirstOrThrow(),
  );
  return Number(numDeletedRows);
}
