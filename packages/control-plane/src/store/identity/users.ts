import { defined } from '@berth/kit/defined';
import { type Identity, SESSION_MAX_MS } from '@berth/wire/gateway';
import type { Role } from '@berth/wire/vocabulary';
import { refuseDeletedSince } from '../../domain/identity/deleted-account.ts';
import type { UserChange } from '../../domain/identity/identity-stores.ts';
import type { UserStore } from '../../domain/identity/user-store.ts';
import { DomainError, taken } from '../../domain/platform/errors.ts';
import type { RecordGuard } from '../../domain/platform/record-change.ts';
import type { Page, Paged } from '../../domain/platform/page.ts';
import type { UserRecord } from '../../domain/platform/records.ts';
import type { Database } from '../engine/database.ts';
import type { Db, Row, Tx } from '../engine/tables.ts';
import { type NewEvent, writeEvents } from '../events.ts';
import type { NewId } from '../ids.ts';
import { keyAfter, paged } from '../pages.ts';
import { type LeftProject, leaveProjects } from '../project-access.ts';
import { removeExpired } from '../sweep.ts';
import { raiseAccessVersion } from './access-version.ts';

export const userOf = (row: Row<'users'>): UserRecord => ({ ...row, disabled: row.disabled !== 0 });

export function createUserStore(db: Database, newId: NewId, clock: () => number): UserStore {
  return {
    findByEmail: (email) => findUserByEmail(db, email),
    get: (id) => getUser(db, id),
    list: (page) => listUsers(db, page),
    count: () => countUsers(db),
    create: (input, now, provenAt) => createUser(db, newId, input, now, provenAt),
    patch: (id, change, guard) => patchUser(db, clock, id, change, guard),
    remove: (id, now, guard) => removeUser(db, id, now, guard),
    makeAdmins: (emails) => makeAdmins(db, emails),
    deletedAt: (email) => accountDeletedAt(db, email),
    sweep: (now) => removeExpired(db, 'deleted_users', now),
    setLastLogin: (id, now) => setLastLogin(db, id, now),
  };
}

async function findUserByEmail(db: Database, email: string): Promise<UserRecord | null> {
  const row = await db.kysely
    .selectFrom('users')
    .selectAll()
    .where('email', '=', email.toLowerCase())
    .executeTakeFirst();
  return row === undefined ? null : userOf(row);
}

async function getUser(db: Database, id: string): Promise<UserRecord> {
  const row = await db.kysely
    .selectFrom('users')
    .selectAll()
    .where('id', '=', id)
    .executeTakeFirst();
  return userOf(found(row, id));
}

async function listUsers(db: Database, page: Page): Promise<Paged<UserRecord>> {
  const after = keyAfter(page.cursor, ['string']);
  let query = db.kysely.selectFrom('users').selectAll();
  if (after !== null) query = query.where('email', '>', after[0]);
  const rows = await query
    .orderBy('email')
    .limit(page.limit + 1)
    .execute();
  return paged(rows, page, (row) => [row.email], userOf);
}

async function countUsers(db: Database): Promise<number> {
  const row = await db.kysely
    .selectFrom('users')
    .select((eb) => eb.fn.countAll<number>().as('users'))
    .executeTakeFirstOrThrow();
  return row.users;
}

async function createUser(
  db: Database,
  newId: NewId,
  input: { email: string; role: Role; password_hash: string | null },
  now: number,
  provenAt: number | undefined,
): Promise<UserRecord> {
  const row = {
    id: newId(),
    ...input,
    email: input.email.toLowerCase(),
    disabled: 0,
    last_login_at: null,
    created_at: now,
  };
  try {
    return await db.write(async (tx) => {
      const created = await tx
        .insertInto('users')
        .values(row)
        .returningAll()
        .executeTakeFirstOrThrow();
      // Checked after the insert, which waits for a concurrent deletion: a sign-in from before the
      // deletion must not create the account again.
      if (provenAt !== undefined) refuseDeletedSince(await deletionOf(tx, row.email), provenAt);
      await writeEvents(db, tx, [userEvent(created, 'created', now)]);
      return userOf(created);
    });
  } catch (error) {
    if (db.capabilities.violatesUnique(error, 'users', 'email'))
      throw taken('email', 'email_taken', `another user has the address ${row.email}`);
    throw error;
  }
}

function patchUser(
  db: Database,
  clock: () => number,
  id: string,
  { disabled, ...plain }: UserChange,
  guard: RecordGuard<UserRecord> | undefined,
): Promise<UserRecord> {
  return db.write(async (tx) => {
    await db.capabilities.lockName(tx, ADMINS);
    const before = found(
      await tx.selectFrom('users').selectAll().where('id', '=', id).executeTakeFirst(),
      id,
    );
    guard?.(userOf(before));
    // Sets the role even if it does not change, because an empty SET is invalid SQL.
    const set = {
      role: before.role,
      ...plain,
      ...defined({ disabled: disabled === undefined ? undefined : Number(disabled) }),
    };
    const after = { ...before, ...set };
    if (isAdmin(before) && !isAdmin(after)) await refuseWithoutAdmin(tx, id);
    const row = await tx
      .updateTable('users')
      .set(set)
      .where('id', '=', id)
      .returningAll()
      .executeTakeFirstOrThrow();
    // End the API sessions: the password changed, or the account is disabled.
    if (plain.password_hash !== undefined || after.disabled === 1)
      await tx.deleteFrom('api_sessions').where('user_id', '=', id).execute();
    if (after.disabled !== before.disabled) await raiseAccessVersion(tx);
    if (after.disabled === 1) await endDevices(tx, before.email);
    await writeEvents(db, tx, [userEvent(row, 'changed', clock())]);
    return userOf(row);
  });
}

async function removeUser(
  db: Database,
  id: string,
  now: number,
  guard: RecordGuard<UserRecord> | undefined,
): Promise<void> {
  await db.write(async (tx) => {
    await db.capabilities.lockName(tx, ADMINS);
    const user = found(
      await tx.selectFrom('users').selectAll().where('id', '=', id).executeTakeFirst(),
      id,
    );
    guard?.(userOf(user));
    if (isAdmin(user)) await refuseWithoutAdmin(tx, id);
    await endDevices(tx, user.email);
    const tombstone = { deleted_at: now, expires_at: now + TOMBSTONE_MS };
    await tx
      .insertInto('deleted_users')
      .values({ email: user.email, ...tombstone })
      .onConflict((oc) => oc.column('email').doUpdateSet(tombstone))
      .execute();
    const leftProjects = await leaveProjects(db, tx, id, now);
    await raiseAccessVersion(tx);
    // The foreign keys cascade to the user's API sessions and API tokens.
    await tx.deleteFrom('users').where('id', '=', id).execute();
    await writeEvents(db, tx, [
      userEvent(user, 'deleted', now),
      ...leftProjects.map((project) => leftEvent(project, now)),
    ]);
  });
}

async function makeAdmins(db: Database, emails: readonly string[]): Promise<void> {
  if (emails.length === 0) return;
  await db.write(async (tx) => {
    const lower = emails.map((email) => email.toLowerCase());
    await tx
      .updateTable('users')
      .set({ role: 'admin', disabled: 0 })
      .where('email', 'in', lower)
      .execute();
    await raiseAccessVersion(tx);
  });
}

async function accountDeletedAt(db: Database, email: string): Promise<number | null> {
  return deletionOf(db.kysely, email.toLowerCase());
}

async function setLastLogin(db: Database, id: string, now: number): Promise<void> {
  await db.writeOne((kysely) =>
    kysely.updateTable('users').set({ last_login_at: now }).where('id', '=', id).execute(),
  );
}

/**
 * Longer than the longest session: when the tombstone expires, every session from before the
 * deletion has expired.
 */
const TOMBSTONE_MS = SESSION_MAX_MS + 86_400_000;

async function deletionOf(db: Db | Tx, email: string): Promise<number | null> {
  const row = await db
    .selectFrom('deleted_users')
    .select('deleted_at')
    .where('email', '=', email)
    .executeTakeFirst();
  return row?.deleted_at ?? null;
}

/**
 * Ends device tokens, and denies approved devices that have not fetched their token yet (few,
 * because a code is valid for 10 minutes). Returns the number of tokens.
 */
export async function endDevices(tx: Tx, email: string): Promise<number> {
  const ended = await tx
    .deleteFrom('device_tokens')
    .where('email', '=', email)
    .returning('id')
    .execute();
  const approved = await tx
    .selectFrom('device_codes')
    .select(['device_hash', 'identity'])
    .where('status', '=', 'approved')
    .execute();
  const theirs = approved.filter(
    ({ identity }) =>
      identity !== null && (JSON.parse(identity) as Identity).email.toLowerCase() === email,
  );
  for (const { device_hash } of theirs)
    await tx
      .updateTable('device_codes')
      .set({ status: 'denied' })
      .where('device_hash', '=', device_hash)
      .execute();
  return ended.length;
}

export const userEvent = (
  user: { id: string; email: string },
  what: string,
  at: number,
): NewEvent => ({
  at,
  kind: `user.${what}`,
  user_id: user.id,
  message: `user ${user.email} ${what}`,
});

const leftEvent = ({ id, name, isLast }: LeftProject, at: number): NewEvent => ({
  at,
  kind: 'project.changed',
  project_id: id,
  message: isLast
    ? `project ${name}: its last member was deleted, so only admins see it until they change its ` +
      'members'
    : `project ${name} changed: members`,
});

/**
 * Name of the lock for changes that remove an admin: of two concurrent changes, the second one sees
 * the result of the first.
 */
export const ADMINS = 'admins';
const isAdmin = (user: Pick<Row<'users'>, 'role' | 'disabled'>): boolean =>
  user.role === 'admin' && user.disabled === 0;

async function refuseWithoutAdmin(tx: Tx, leaving: string): Promise<void> {
  const other = await tx
    .selectFrom('users')
    .select('id')
    .where('role', '=', 'admin')
    .where('disabled', '=', 0)
    .where('id', '!=', leaving)
    .limit(1)
    .executeTakeFirst();
  if (other === undefined) throw new DomainError('last_admin');
}

function found(row: Row<'users'> | undefined, id: string): Row<'users'> {
  if (row === undefined) throw new DomainError('not_found', `no user has the id ${id}`);
  return row;
}
