/** Lists the audit log, for admins. */
import { defined } from '@berth/kit/defined';
import type { Define, Call } from '../define.ts';
import { pageOf } from '../page.ts';
import { auditView } from '../views.ts';
import type { AuditStore } from '../../domain/identity/identity-stores.ts';

export type Deps = {
  audit: Pick<AuditStore, 'list'>;
};

export function auditRoutes(route: Define, deps: Deps): void {
  route('audit', (call) => audit(deps, call));
}

async function audit(deps: Deps, { query }: Call<'audit'>) {
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
  const { items, next } = await deps.audit.list(filter, pageOf(query));
  return { items: items.map(auditView), next_cursor: next };
}
