/** Routes of the volumes on a node. */
import type { NodeVolumes, VolumeState } from '@berth/wire/volume';
import type { ProjectAccess } from '../../domain/identity/access.ts';
import { DomainError } from '../../domain/platform/errors.ts';
import type { VolumeCopy } from '../../domain/data/volume-copy.ts';
import type { Define, Call } from '../define.ts';
import { time, timeOrNull } from '../views.ts';
import type { NodeStore } from '../../domain/nodes/node-store.ts';
import type { VolumeStore } from '../../domain/data/volume-store.ts';
import type { Changes } from '../../domain/platform/changes.ts';

export type Deps = {
  nodes: Pick<NodeStore, 'get'>;
  volumes: Pick<VolumeStore, 'forget' | 'onNode' | 'requestDelete'>;
  changes: Pick<Changes, 'notify'>;
  now: () => number;
};

export function volumeRoutes(route: Define, deps: Deps): void {
  route('nodeVolumes', (call) => nodeVolumes(deps, call));
  route('deleteNodeVolumes', (call) => deleteNodeVolumes(deps, call));
}

async function nodeVolumes(deps: Deps, { params, access }: Call<'nodeVolumes'>) {
  const { id } = await deps.nodes.get(params.id);
  const copies = await deps.volumes.onNode(id);
  return {
    items: copies.filter((copy) => maySee(copy, access)).map(volumesView),
    next_cursor: null,
  };
}

async function deleteNodeVolumes(deps: Deps, { params, query, access }: Call<'deleteNodeVolumes'>) {
  const { id } = await deps.nodes.get(params.id);
  const copy = (await deps.volumes.onNode(id)).find((c) => c.id === params.copy);
  if (copy === undefined || !maySee(copy, access))
    throw new DomainError('not_found', 'the node has no such volumes');
  if (query.forget === true) return volumesView(await deps.volumes.forget(id, copy.id));
  const deleting = await deps.volumes.requestDelete(id, copy.id, deps.now());
  deps.changes.notify(`node:${id}`);
  return volumesView(deleting);
}

/**
 * Returns whether the caller, an admin, can see a copy: tokens of admins can be limited to some
 * projects.
 */
export const maySee = (copy: Pick<VolumeCopy, 'project_id'>, { only }: ProjectAccess): boolean =>
  only === null || only.includes(copy.project_id);

const STATES: Record<VolumeCopy['state'], VolumeState> = {
  current: 'in_use',
  incoming: 'incoming',
  left: 'old',
  kept: 'kept',
  deleting: 'deleting',
};

export const volumesView = ({
  id,
  project_id,
  project,
  state,
  names,
  sizes,
  bytes,
  missing_since,
  changed_at,
}: VolumeCopy): NodeVolumes => ({
  copy: id,
  project_id,
  project,
  state: STATES[state],
  folders: [...new Set([...names, ...Object.keys(sizes)])].map((name) => ({
    name,
    bytes: sizes[name] ?? null,
  })),
  bytes,
  missing_since: timeOrNull(missing_since ?? null),
  kept_of_deleted: state === 'kept',
  changed_at: time(changed_at),
});
