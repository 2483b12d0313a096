import type { RouteStore } from '../domain/stores.ts';
import type { Database } from './engine/database.ts';
import { routeOf } from './rows/route.ts';

export const createRouteStore = ({ kysely }: Database): RouteStore => ({
  async all() {
    const rows = await kysely
      .selectFrom('routes')
      .innerJoin('projects', 'projects.id', 'routes.project_id')
      .selectAll('routes')
      .select(['projects.name as project_name', 'projects.auth_required', 'projects.domains'])
      .orderBy('projects.name')
      .execute();
    return rows.map((row) => ({
      ...routeOf(row),
      auth_required: row.auth_required !== 0,
      domains: row.domains === '[]' ? [] : (JSON.parse(row.domains) as string[]),
    }));
  },
});
