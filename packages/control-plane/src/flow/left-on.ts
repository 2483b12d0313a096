/** What a drain looks at (flow/drain.ts), read from the stores. */
import type { DrainRecord } from '../domain/records.ts';
import type { Stores } from '../domain/stores.ts';
import type { Left } from './drain.ts';

/** What runs on the node, what is under way for it, and whether anything is still being deployed to the node (`arriving`). */
export async function leftOn(
  stores: Pick<Stores, 'deployments'>,
  nodeId: string,
  { tries }: DrainRecord,
): Promise<{ left: Left[]; arriving: boolean }> {
  const running = (await stores.deployments.servingOn(nodeId)).filter((d) => d.status === 'running');
  const open = (await stores.deployments.unsettled()).map((d) => d.id);
  const tried = running.flatMap((d) => tries[d.project_id]?.deployment_id ?? []);
  const known = new Map((await stores.deployments.getMany([...open, ...tried])).map((d) => [d.id, d]));
  const underWay = open.flatMap((id) => known.get(id) ?? []);
  const left = running.map((d) => ({
    running: d,
    underWay: underWay.find((o) => o.project_id === d.project_id) ?? null,
    tried: known.get(tries[d.project_id]?.deployment_id ?? '') ?? null,
  }));
  return { left, arriving: underWay.some((d) => d.node_id === nodeId) };
}
