/**
 * Volumes: folders on the disk of a deploy node that outlive the deployments of their project. A
 * *copy* is the set of volume folders of one project on one node. Exactly one copy of a project is
 * `current`, and only the node of that copy can run a deployment with volumes:
 *
 *   (first deployment) ──▶ current
 *   (a move begins) ──▶ incoming
 *   incoming ── a container answers with it ──▶ current; the old copy becomes `left`
 *   incoming ── the move failed ──▶ deleting
 *   current ── the project is deleted ──▶ kept
 *   left, kept ── an admin deletes the copy ──▶ deleting
 *   deleting ── its node deleted it ──▶ (row removed)
 *
 * Each copy has an id, which the agent writes beside the folders. Berth never starts a writing
 * container on a node whose folders have another id or none, so an empty or older volume never
 * replaces a full one. Pure.
 */
import { decimalSizeText } from '@berth/wire/size-text';
import { CAN_MOVE_VOLUMES, CAN_VOLUMES, type VolumeMounts } from '@berth/wire/volume';
import { whyOnlyOne } from '@berth/wire/can';
import type { Need } from '../nodes/build-needs.ts';
import type { FieldProblem } from '../platform/errors.ts';
import { overlap } from './mounts.ts';
import { mountPathProblem } from '@berth/wire/path-rules';
import type { ProjectSettings } from '../platform/records.ts';
import type { VolumeCopy } from './volume-copy.ts';

type Uses = Pick<ProjectSettings, 'volumes'>;

/** Returns whether two running versions of the project would write to the same files. */
export const isStopFirst = (settings: Pick<ProjectSettings, 'datasets' | 'volumes'>): boolean =>
  whyOnlyOne(settings) !== null;

/** Checks the volumes for duplicate names, and their paths against each other and the datasets. */
export function volumeProblems({
  volumes,
  datasets,
}: Pick<ProjectSettings, 'datasets' | 'volumes'>): FieldProblem[] {
  const names = new Set<string>();
  const taken = datasets.flatMap(({ mount_path }) => mount_path ?? []);
  return volumes.flatMap(({ name, mount_path }, i) => {
    const other = taken.find((path) => overlap(path, mount_path));
    const problems = [
      names.has(name)
        ? { field: `volumes[${i}].name`, rule: 'unique', message: 'another volume has this name' }
        : null,
      mountPathProblem(mount_path, `volumes[${i}].mount_path`),
      other === undefined
        ? null
        : {
            field: `volumes[${i}].mount_path`,
            rule: other === mount_path ? 'unique' : 'nested',
            message: `${mount_path} and ${other}: one mount would hide the other`,
          },
    ].filter((problem) => problem !== null);
    names.add(name);
    taken.push(mount_path);
    return problems;
  });
}

export const currentCopy = (copies: readonly VolumeCopy[]): VolumeCopy | null =>
  copies.find((c) => c.state === 'current') ?? null;

/** Returns the node that has the volumes; null: any node can take the project. */
export function volumeHome(copies: readonly VolumeCopy[]): string | null {
  const copy = currentCopy(copies);
  return copy === null || copy.names.length === 0 ? null : copy.node_id;
}

export const volumeNeeds = ({ volumes }: Uses): Need[] =>
  volumes.length === 0
    ? []
    : [
        {
          capability: CAN_VOLUMES,
          what:
            `mount the ${volumes.length === 1 ? 'volume' : 'volumes'} ` +
            volumes.map((v) => v.name).join(', '),
          because: 'is of an earlier version, or cannot write to SVC_ROOT',
        },
      ];

/** Capability that a node needs to receive a copy of the volumes. */
export const moveNeed: Need = {
  capability: CAN_MOVE_VOLUMES,
  what: 'receive the volumes of another node',
  because: 'is of an earlier version',
};

/** Returns whether source and target of the move reported the same files. */
export const isProven = (
  source: Pick<VolumeCopy, 'digest'>,
  copy: Pick<VolumeCopy, 'digest'>,
): boolean => source.digest !== null && source.digest === copy.digest;

/** Returns the mounts of a deploy task. The agent can create a volume that the copy lacks. */
export const volumeMounts = (
  { volumes }: Uses,
  copy: Pick<VolumeCopy, 'id' | 'names'>,
): VolumeMounts => ({
  copy: copy.id,
  mounts: volumes.map(({ name, mount_path }) => ({
    name,
    mount_path,
    create: !copy.names.includes(name),
  })),
});

/** Describes the copy for people: volumes, project, size and node. */
export const copyText = ({ project, hostname, names, bytes }: VolumeCopy): string =>
  `the ${names.length === 1 ? 'volume' : 'volumes'} ${names.join(', ')} of ${project} ` +
  `(${bytes === null ? 'size unknown' : decimalSizeText(bytes)}) on ${hostname}`;
