/** What a drain looks at (flow/drain.ts), read from the stores. */
import type { DrainRecord } from '../domain/records.ts';
import type { Stores } from '../domain/stores.ts';
import type { Left } from './drain.ts';

/** What runs on the node, and what is under way for it. */
export async function leftOn(stores: Pick<Stores, 'deployments'>, nodeId: string, { tries }: DrainRecord): Promise<Left[]> {
  const running = (await stores.deployments.servingOn(nodeId)).filter((d) => d.status === 'running');
  if (running.length === 0) return [];
  const projects = new Set(running.map((d) => d.project_id));
  const open = (await stores.deployments.unsettled()).filter((d) => projects.has(d.project_id)).map((d) => d.id);
  const tried = running.flatMap((d) => tries[d.project_id]?.deployment_id ?? []);
  const known = new Map((await stores.deployments.getMany([...open, ...tried])).map((d) => [d.id, d]));
  return running.map((d) => ({
    running: d,
    underWay: open.map((id) => known.get(id)).find((o) => o?.project_id === d.project_id) ?? null,
    tried: known.get(tries[d.project_id]?.deployment_id ?? '') ?? null,
  }));
}
