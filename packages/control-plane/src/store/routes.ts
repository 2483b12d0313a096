import { defined } from '@berth/kit/defined';
import type { SelectQueryBuilder } from 'kysely';
import type { ProjectSettings } from '../domain/platform/records.ts';
import type { RouteStore } from '../domain/routes/route-stores.ts';
import type { Database } from './engine/database.ts';
import type { Row, Tables } from './engine/tables.ts';
import { isStoppedByPerson } from './rows/project.ts';
import { routeOf } from './rows/route.ts';

export const createRouteStore = ({ kysely }: Database): RouteStore => ({
  async all() {
    const rows = await kysely
      .selectFrom('routes')
      .innerJoin('projects', 'projects.id', 'routes.project_id')
      // Only a route with several servers has a health check. Reading the settings of all
      // deployments would make each change of a route slower.
      .leftJoin('deployments', (join) =>
        join
          .onRef('deployments.id', '=', 'routes.deployment_id')
          .on('routes.servers', 'is not', null),
      )
      .selectAll('routes')
      .select([
        'projects.name as project_name',
        'projects.auth_required',
        'projects.domains',
        'projects.sticky',
        'projects.processes',
        'projects.stopped_at',
        'projects.stopped_by_person',
        'deployments.settings',
      ])
      .orderBy('projects.name')
      .execute();
    return rows.map(({ settings, sticky, processes, stopped_at, stopped_by_person, ...row }) => ({
      ...routeOf(row),
      auth_required: row.auth_required !== 0,
      ...defined({
        sticky: sticky === 0 ? undefined : true,
        at_zero:
          row.stopped !== 0 && isAtZero({ processes, stopped_at, stopped_by_person })
            ? true
            : undefined,
        health_path: settings === null ? undefined : healthPathOf(settings),
      }),
      domains: row.domains === '[]' ? [] : (JSON.parse(row.domains) as string[]),
    }));
  },
});

/**
 * Returns whether the page says that the project has no web server, because it is scaled to 0 or has
 * no process `web`, and not that it is stopped.
 */
function isAtZero({
  stopped_at,
  stopped_by_person,
  ...row
}: Pick<Row<'projects'>, 'processes' | 'stopped_at' | 'stopped_by_person'>): boolean {
  // Only a version without `web` has a page while its project is not stopped. The list of the project
  // is that of its next version.
  if (stopped_at === null) return true;
  const processes = JSON.parse(row.processes) as ProjectSettings['processes'];
  return !isStoppedByPerson({ processes, stopped_at }, stopped_by_person);
}

const healthPathOf = (settings: string): string | null =>
  (JSON.parse(settings) as Pick<ProjectSettings, 'health_path'>).health_path;

/**
 * Returns the time for a route that is published now: later than the times of `others`. If two
 * routes have one address, be it that of a further instance, only the later one is published
 * (routing/traefik.ts), and the machine's clock might have been set back.
 */
export async function afterAll(
  others: SelectQueryBuilder<Tables, 'routes', object>,
  now: number,
): Promise<number> {
  const { latest } = await others
    .select((eb) => eb.fn.max('published_at').as('latest'))
    .executeTakeFirstOrThrow();
  return latest === null ? now : Math.max(now, latest + 1);
}
