/**
 * Returns the generation from which on retention protects a project's newest deployments. Runs one
 * query for each project in each pass.
 */
import type { Db } from './engine/tables.ts';

export type FirstProtected = (projectId: string) => Promise<number>;

export function createFirstProtected(db: Db, count: number): FirstProtected {
  const floors = new Map<string, number>();
  return async (projectId) => {
    const cached = floors.get(projectId);
    if (cached !== undefined) return cached;
    const row = await db
      .selectFrom('deployments')
      .select('generation')
      .where('project_id', '=', projectId)
      .orderBy('generation', 'desc')
      .offset(count - 1)
      .limit(1)
      .executeTakeFirst();
    const floor = row?.generation ?? 0;
    floors.set(projectId, floor);
    return floor;
  };
}
