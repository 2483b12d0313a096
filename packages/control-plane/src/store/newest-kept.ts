/** From which generation on the deployments of a project are among its newest ones. Asked once for each project in a pass. */
import type { Db } from './engine/tables.ts';

export type NewestKept = (projectId: string) => Promise<number>;

export function createNewestKept(db: Db, count: number): NewestKept {
  const floors = new Map<string, number>();
  return async (projectId) => {
    const known = floors.get(projectId);
    if (known !== undefined) return known;
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
