/** Routes of users and their roles, for admins. */
import { defined } from '@berth/kit/defined';
import type { User } from '@berth/wire/user';
import { DomainError, invalid } from '../../domain/platform/errors.ts';
import type { UserRecord } from '../../domain/platform/records.ts';
import type { Define, SetEtag, Call } from '../define.ts';
import { checkIfMatch } from '../etag.ts';
import { pageOf } from '../page.ts';
import type { Passwords } from '../auth/passwords.ts';
import { userEtag } from '../resource-etags.ts';
import { userView } from '../views.ts';
import type { UserStore } from '../../domain/identity/user-store.ts';
import type { ApiSettings } from '../settings.ts';
import type { Changes } from '../../domain/platform/changes.ts';

export type Deps = {
  users: Pick<UserStore, 'create' | 'get' | 'list' | 'patch' | 'remove'>;
  passwords: Pick<Passwords, 'hash'>;
  settings: Pick<ApiSettings, 'adminEmails'>;
  changes: Pick<Changes, 'notify'>;
  now: () => number;
};

export function userRoutes(route: Define, deps: Deps): void {
  route('listUsers', (call) => listUsers(deps, call));
  route('getUser', async ({ params, setEtag }) => view(await deps.users.get(params.id), setEtag));
  route('createUser', (call) => createUser(deps, call));
  route('patchUser', (call) => patchUser(deps, call));
  route('deleteUser', (call) => deleteUser(deps, call));
}

/** Converts a user and sets its ETag. */
function view(user: UserRecord, setEtag: SetEtag): User {
  setEtag(userEtag(user));
  return userView(user);
}

/** Returns the check of If-Match, which the store calls inside the transaction. */
function unchanged(ifMatch: string | undefined) {
  return (present: UserRecord): void => checkIfMatch(ifMatch, userEtag(present));
}

function isAdminBySettings(deps: Deps, email: string): boolean {
  return deps.settings.adminEmails.includes(email);
}

async function listUsers(deps: Deps, { query }: Call<'listUsers'>) {
  const { items, next } = await deps.users.list(pageOf(query));
  return { items: items.map(userView), next_cursor: next };
}

async function createUser(deps: Deps, { body, request, setEtag }: Call<'createUser'>) {
  const email = body.email.toLowerCase();
  request.audited = { target: email };
  if (isAdminBySettings(deps, email) && body.role !== 'admin')
    throw new DomainError('admin_by_settings');
  const password_hash =
    body.password === undefined ? null : await deps.passwords.hash(body.password);
  return view(
    await deps.users.create({ email, role: body.role, password_hash }, deps.now()),
    setEtag,
  );
}

async function patchUser(
  deps: Deps,
  { params, body, user, request, setEtag, ifMatch }: Call<'patchUser'>,
) {
  const { email } = await deps.users.get(params.id);
  request.audited = { target: email };
  if (
    isAdminBySettings(deps, email) &&
    ((body.role !== undefined && body.role !== 'admin') || body.disabled === true)
  )
    throw new DomainError('admin_by_settings');
  if (body.password !== undefined && params.id === user.id)
    throw invalid(
      'password',
      'own',
      'change your own password with POST /api/auth/password, which requires the old one',
    );
  const { password, ...rest } = body;
  const hash =
    password === undefined || password === null ? password : await deps.passwords.hash(password);
  const change = { ...rest, ...defined({ password_hash: hash }) };
  const changed = await deps.users.patch(params.id, change, unchanged(ifMatch));
  deps.changes.notify('access', 'policy', 'events');
  return view(changed, setEtag);
}

async function deleteUser(deps: Deps, { params, request, ifMatch }: Call<'deleteUser'>) {
  const { email } = await deps.users.get(params.id);
  request.audited = { target: email };
  if (isAdminBySettings(deps, email)) throw new DomainError('admin_by_settings');
  await deps.users.remove(params.id, deps.now(), unchanged(ifMatch));
  deps.changes.notify('access', 'policy', 'events');
}
