/** Lists the audit log, for admins. */
import { defined } from '@berth/kit/defined';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { pageOf } from '../page.ts';
import { auditView } from '../views.ts';

export function auditRoutes(route: Define, { stores }: ApiDeps): void {
  route('audit', async ({ query }) => {
    const { user, action, target, outcome, since, until } = query;
    const filter = {
      ...defined({
        email: user,
        action,
        target,
        outcome,
        since: since === undefined ? undefined : Date.parse(since),
        until: until === undefined ? undefined : Date.parse(until),
      }),
    };
    const { items, next } = await stores.audit.list(filter, pageOf(query));
    return { items: items.map(auditView), next_cursor: next };
  });
}
