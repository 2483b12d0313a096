/** Routes of users and their roles, for admins. */
import { defined } from '@berth/kit/defined';
import type { User } from '@berth/wire/user';
import { DomainError, invalid } from '../../domain/platform/errors.ts';
import type { UserRecord } from '../../domain/platform/records.ts';
import type { Define, SetEtag } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { checkIfMatch } from '../etag.ts';
import { pageOf } from '../page.ts';
import type { Passwords } from '../auth/passwords.ts';
import { userEtag } from '../resource-etags.ts';
import { userView } from '../views.ts';

export function userRoutes(route: Define, deps: ApiDeps & { passwords: Passwords }): void {
  const { stores, changes, settings, passwords, now } = deps;
  /** Converts a user and sets its ETag. */
  const view = (user: UserRecord, setEtag: SetEtag): User => {
    setEtag(userEtag(user));
    return userView(user);
  };
  /** Returns the check of If-Match. The store calls it inside the transaction. */
  const unchanged =
    (ifMatch: string | undefined) =>
    (present: UserRecord): void =>
      checkIfMatch(ifMatch, userEtag(present));
  const isAdminBySettings = (email: string): boolean => settings.adminEmails.includes(email);

  route('listUsers', async ({ query }) => {
    const { items, next } = await stores.users.list(pageOf(query));
    return { items: items.map(userView), next_cursor: next };
  });

  route('getUser', async ({ params, setEtag }) => view(await stores.users.get(params.id), setEtag));

  route('createUser', async ({ body, request, setEtag }) => {
    const email = body.email.toLowerCase();
    request.audited = { target: email };
    if (isAdminBySettings(email) && body.role !== 'admin')
      throw new DomainError('admin_by_settings');
    const password_hash = body.password === undefined ? null : await passwords.hash(body.password);
    return view(
      await stores.users.create({ email, role: body.role, password_hash }, now()),
      setEtag,
    );
  });

  route('patchUser', async ({ params, body, user, request, setEtag, ifMatch }) => {
    const { email } = await stores.users.get(params.id);
    request.audited = { target: email };
    if (
      isAdminBySettings(email) &&
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
      password === undefined || password === null ? password : await passwords.hash(password);
    const change = { ...rest, ...defined({ password_hash: hash }) };
    const changed = await stores.users.patch(params.id, change, unchanged(ifMatch));
    changes.notify('access', 'policy', 'events');
    return view(changed, setEtag);
  });

  route('deleteUser', async ({ params, request, ifMatch }) => {
    const { email } = await stores.users.get(params.id);
    request.audited = { target: email };
    if (isAdminBySettings(email)) throw new DomainError('admin_by_settings');
    await stores.users.remove(params.id, now(), unchanged(ifMatch));
    changes.notify('access', 'policy', 'events');
  });
}
