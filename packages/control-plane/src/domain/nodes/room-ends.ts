/**
 * Finds the containers of a project that are ending, and says that a new version waits for their
 * room. The deployment (flow/two-versions.ts) and the preview of its placement both use it. Pure.
 */
import { defined } from '@berth/kit/defined';
import type { InstanceRecord } from '../deployments/instance.ts';
import { webSettings } from '../projects/processes.ts';
import type { RoomEnds } from '../deployments/wait-reason.ts';
import type { DeploymentRecord } from '../platform/records.ts';
import type { Ending, Room } from './room.ts';

type Version = Pick<DeploymentRecord, 'id' | 'project_id' | 'generation' | 'settings'>;
type Instance = Pick<InstanceRecord, 'id' | 'state' | 'labelled' | 'number' | 'node_id'>;

/** Returns the containers that leave the route, and those that open tasks remove. */
export function endingOf(
  projectId: string,
  { ending = [] }: Pick<Room, 'ending'>,
  versions: readonly (Version & { instances: readonly Instance[] })[],
): readonly Ending[] {
  const draining = versions.flatMap(({ id: deployment_id, project_id, generation, ...version }) =>
    version.instances
      .filter(({ state }) => state === 'draining')
      .flatMap(({ id, labelled, number, node_id }) => {
        const bytes = webSettings(version.settings).memory_bytes ?? 0;
        const instance_id = labelled ? id : null;
        const of = { project_id, deployment_id, generation, instance_id, number };
        return node_id === null ? [] : [{ ...of, node_id, containers: 1, bytes }];
      }),
  );
  return [...ending.filter(({ project_id }) => project_id === projectId), ...draining];
}

/** Maximum number of containers that the reason names. */
const MAX_NAMED = 3;

/** `nameOf` returns the hostname of a node; undefined: the node was deleted. */
export const roomEnds = (
  ending: readonly Ending[],
  nameOf: (nodeId: string) => string | undefined,
): RoomEnds => ({
  kind: 'room_ends',
  containers: ending.slice(0, MAX_NAMED).map(({ generation, number, node_id }) => ({
    generation,
    ...defined({ number }),
    node: nameOf(node_id) ?? 'a deleted node',
  })),
  others: Math.max(0, ending.length - MAX_NAMED),
});
