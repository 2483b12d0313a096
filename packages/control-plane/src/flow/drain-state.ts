/** Reads the facts for one decision of a drain (flow/drain.ts). */
import type { DrainRecord } from '../domain/records.ts';
import type { Stores } from '../domain/stores.ts';
import type { Remaining } from './drain.ts';
import { isAtRest } from './stop.ts';

/**
 * Returns the deployments that still run on the node, and whether one is still being deployed to it (`arriving`). The container of a
 * stopped project stays on its node.
 */
export async function readDrainState(
  stores: Pick<Stores, 'deployments'>,
  nodeId: string,
  { tries }: DrainRecord,
): Promise<{ remaining: Remaining[]; arriving: boolean }> {
  const running = (await stores.deployments.servingOn(nodeId)).filter((d) => d.status === 'running' && !isAtRest(d));
  const openIds = (await stores.deployments.inProgress()).map((d) => d.id);
  const triedIds = running.flatMap((d) => tries[d.project_id]?.deployment_id ?? []);
  const byId = new Map((await stores.deployments.getMany([...openIds, ...triedIds])).map((d) => [d.id, d]));
  const inProgress = openIds.flatMap((id) => byId.get(id) ?? []);
  const remaining = running.map((d) => ({
    running: d,
    inProgress: inProgress.find((o) => o.project_id === d.project_id) ?? null,
    tried: byId.get(tries[d.project_id]?.deployment_id ?? '') ?? null,
  }));
  return { remaining, arriving: inProgress.some((d) => d.node_id === nodeId) };
}
