/** The Location header of an answer. */
import { pathOf } from '@berth/wire/client';
import type { Route } from '@berth/wire/route';

export const hasId = (answer: unknown): answer is { id: string } =>
  typeof answer === 'object' && answer !== null && 'id' in answer && typeof answer.id === 'string';

/** Returns the path of the created or changing resource. */
export function locationOf(row: Route, params: unknown, answer: unknown): string {
  if (row.location?.includes(':') === false) return row.location;
  const end = row.path.indexOf('/:id');
  if (row.location === undefined && end >= 0)
    return pathOf(
      { ...row, path: row.path.slice(0, end + '/:id'.length) },
      params as { id: string },
    );
  if (row.location?.includes('/:name') === true)
    return pathOf({ ...row, path: row.location }, params as { id: string; name: string });
  // A project has only one such resource, so its path contains no id besides the project's.
  if (row.location !== undefined && end >= 0 && !hasId(answer))
    return pathOf({ ...row, path: row.location }, params as { id: string });
  if (!hasId(answer))
    throw new Error(`${row.method} ${row.path} answers ${row.status} without an id`);
  const path = row.location ?? `${row.path}/:id`;
  const last = /:(\w+)$/.exec(path)?.[1] ?? 'id';
  return pathOf({ ...row, path }, { ...(params as Record<string, string>), [last]: answer.id });
}
