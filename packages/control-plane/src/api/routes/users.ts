/** Who may use the API, and as what: for admins. */
import type { User } from '@berth/wire/user';
import { DomainError, invalid } from '../../domain/errors.ts';
import type { UserRecord } from '../../domain/records.ts';
import type { Define, Tag } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { checkIfMatch } from '../etag.ts';
import { pageOf } from '../page.ts';
import type { Passwords } from '../auth/passwords.ts';
import { userTag } from '../tags.ts';
import { userView } from '../views.ts';

export function userRoutes(route: Define, deps: ApiDeps & { passwords: Passwords }): void {
  const { stores, changes, settings, passwords, now } = deps;
  /** One user and its ETag. */
  const view = (user: UserRecord, tag: Tag): User => {
    tag(userTag(user));
    return userView(user);
  };
  /** The check of If-Match, for where the user cannot change meanwhile. */
  const unchanged =
    (ifMatch: string | undefined) =>
    (present: UserRecord): void =>
      checkIfMatch(ifMatch, userTag(present));
  const bySettings = (email: string): boolean => settings.adminEmails.includes(email);

  route('listUsers', async ({ query }) => {
    const { items, next } = await stores.users.list(pageOf(query));
    return { items: items.map(userView), next_cursor: next };
  });

  route('getUser', async ({ params, tag }) => view(await stores.users.get(params.id), tag));

  route('createUser', async ({ body, request, tag }) => {
    const email = body.email.toLowerCase();
    request.audited = { target: email };
    if (bySettings(email) && body.role !== 'admin') throw new DomainError('admin_by_settings');
    const password_hash = body.password === undefined ? null : await passwords.hash(body.password);
    return view(await stores.users.create({ email, role: body.role, password_hash }, now()), tag);
  });

  route('patchUser', async ({ params, body, user, request, tag, ifMatch }) => {
    const { email } = await stores.users.get(params.id);
    request.audited = { target: email };
    if (bySettings(email) && ((body.role !== undefined && body.role !== 'admin') || body.disabled === true))
      throw new DomainError('admin_by_settings');
    if (body.password !== undefined && params.id === user.id)
      throw invalid('password', 'own', 'your own is changed with the old one, at POST /api/auth/password');
    const { password, ...rest } = body;
    const hash = password === undefined || password === null ? password : await passwords.hash(password);
    const change = { ...rest, ...(hash === undefined ? {} : { password_hash: hash }) };
    const changed = await stores.users.patch(params.id, change, unchanged(ifMatch));
    changes.notify('access', 'policy', 'events');
    return view(changed, tag);
  });

  route('deleteUser', async ({ params, request, ifMatch }) => {
    const { email } = await stores.users.get(params.id);
    request.audited = { target: email };
    if (bySettings(email)) throw new DomainError('admin_by_settings');
    await stores.users.remove(params.id, now(), unchanged(ifMatch));
    changes.notify('access', 'policy', 'events');
  });
}
