/** Lists the audit log, for admins. */
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { pageOf } from '../page.ts';
import { auditView } from '../views.ts';

export function auditRoutes(route: Define, { stores }: ApiDeps): void {
  route('audit', async ({ query }) => {
    const { user, action, target, outcome, since, until } = query;
    const filter = {
      ...(user === undefined ? {} : { email: user }),
      ...(action === undefined ? {} : { action }),
      ...(target === undefined ? {} : { target }),
      ...(outcome === undefined ? {} : { outcome }),
      ...(since === undefined ? {} : { since: Date.parse(since) }),
      ...(until === undefined ? {} : { until: Date.parse(until) }),
    };
    const { items, next } = await stores.audit.list(filter, pageOf(query));
    return { items: items.map(auditView), next_cursor: next };
  });
}
