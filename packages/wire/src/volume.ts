/** Volumes: folders on the disk of a deploy node that outlive the deployments of their project. */
import { type Static, Type } from 'typebox';
import { DnsLabel, Id } from './vocabulary.ts';

/** Capability of an agent that mounts volumes. */
export const CAN_VOLUMES = 'volumes';

/**
 * The volumes of a deploy task. `copy` identifies the folders: the agent mounts only a folder with this id, so that a copy that was left
 * behind is never mounted. `create`: the agent may create the folder. Without it, a missing folder is an error.
 */
export const VolumeMounts = Type.Object({
  copy: Id,
  mounts: Type.Array(Type.Object({ name: DnsLabel, mount_path: Type.String(), create: Type.Boolean() })),
});
export type VolumeMounts = Static<typeof VolumeMounts>;
