/** The volumes on a node. */
import type { NodeVolumes, VolumeState } from '@berth/wire/volume';
import type { ProjectAccess } from '../../domain/identity/access.ts';
import { DomainError } from '../../domain/platform/errors.ts';
import type { VolumeCopy } from '../../domain/data/volume-copy.ts';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { time, timeOrNull } from '../views.ts';

export function volumeRoutes(
  route: Define,
  { stores, changes, now }: Pick<ApiDeps, 'stores' | 'changes' | 'now'>,
): void {
  route('nodeVolumes', async ({ params, access }) => {
    const { id } = await stores.nodes.get(params.id);
    const copies = await stores.volumes.onNode(id);
    return {
      items: copies.filter((copy) => maySee(copy, access)).map(volumesView),
      next_cursor: null,
    };
  });

  route('deleteNodeVolumes', async ({ params, query, access }) => {
    const { id } = await stores.nodes.get(params.id);
    const copy = (await stores.volumes.onNode(id)).find((c) => c.id === params.copy);
    if (copy === undefined || !maySee(copy, access))
      throw new DomainError('not_found', 'the node has no such volumes');
    if (query.forget === true) return volumesView(await stores.volumes.forget(id, copy.id));
    const deleting = await stores.volumes.requestDelete(id, copy.id, now());
    changes.notify(`node:${id}`);
    return volumesView(deleting);
  });
}

/** Admins see all projects, but their tokens may be limited to some. */
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
