/** Who may use the API, and as what: for admins. */
import { DomainError, invalid } from '../../domain/errors.ts';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { pageOf } from '../page.ts';
import type { Passwords } from '../passwords.ts';
import { userView } from '../views.ts';

export function userRoutes(route: Define, deps: ApiDeps & { passwords: Passwords }): void {
  const { stores, changes, settings, passwords, now } = deps;
  const bySettings = (email: string): boolean => settings.adminEmails.includes(email);

  route('listUsers', async ({ query }) => {
    const { items, next } = await stores.users.list(pageOf(query));
    return { items: items.map(userView), next_cursor: next };
  });

  route('createUser', async ({ body, request }) => {
    const email = body.email.toLowerCase();
    request.audited = { target: email };
    if (bySettings(email) && body.role !== 'admin') throw new DomainError('admin_by_settings');
    const password_hash = body.password === undefined ? null : await passwords.hash(body.password);
    return userView(await stores.users.create({ email, role: body.role, password_hash }, now()));
  });

  route('patchUser', async ({ params, body, user, request }) => {
    const { email } = await stores.users.get(params.id);
    request.audited = { target: email };
    if (bySettings(email) && ((body.role !== undefined && body.role !== 'admin') || body.disabled === true))
      throw new DomainError('admin_by_settings');
    if (body.password !== undefined && params.id === user.id)
      throw invalid('password', 'own', 'your own is changed with the old one, at POST /api/auth/password');
    const { password, ...rest } = body;
    const hash = password === undefined || password === null ? password : await passwords.hash(password);
    const changed = await stores.users.patch(params.id, { ...rest, ...(hash === undefined ? {} : { password_hash: hash }) });
    changes.notify('access', 'policy');
    return userView(changed);
  });

  route('deleteUser', async ({ params, request }) => {
    const { email } = await stores.users.get(params.id);
    request.audited = { target: email };
    if (bySettings(email)) throw new DomainError('admin_by_settings');
    await stores.users.remove(params.id);
    changes.notify('access', 'policy');
  });
}
