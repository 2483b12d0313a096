/** Decides which datasets a deployment mounts, at which version and path. Pure. */
import type { DatasetMount } from '@berth/wire/dataset';
import type { DatasetFact } from '../deployments/facts.ts';
import type { WaitReason } from '../deployments/wait-reason.ts';
import type { Wanted } from '../nodes/dataset-copies.ts';
import type { PinnedDataset, ProjectSettings } from '../platform/records.ts';

type Uses = ProjectSettings['datasets'];
type MountProblem =
  /** The deployment fails at once, because waiting does not help. */
  | { code: 'dataset_not_ready' | 'mount_conflict'; message: string }
  /** The deployment waits for the first version of a dataset. */
  | { waits: Extract<WaitReason, { kind: 'dataset_without_version' }> };

/** Returns the mount path, or its default (docs/interfaces.md "Project"). */
export const mountPathOf = (use: Uses[number], name: string): string =>
  use.mount_path ?? `/data/${name}`;

/**
 * Returns the mounts with their paths. An existing mount keeps its path, even if its dataset was
 * renamed. Exception: the new list names a different path for it.
 */
export function withPaths(uses: Uses, before: Uses, nameOf: (id: string) => string | null): Uses {
  return uses.map((use, i) => {
    // A later check rejects duplicate and unknown datasets, so their mounts get no path here.
    if (use.mount_path !== undefined || uses.findIndex((u) => u.dataset_id === use.dataset_id) < i)
      return use;
    const kept = before.find((b) => b.dataset_id === use.dataset_id)?.mount_path;
    const name = nameOf(use.dataset_id);
    return kept === undefined && name === null
      ? use
      : { ...use, mount_path: kept ?? mountPathOf(use, name ?? '') };
  });
}

/**
 * Adds the missing mount paths to an old release. Each path derives from the name that the dataset
 * had at that time.
 */
export const pathsOfRelease = (uses: Uses, pins: readonly PinnedDataset[] | null): Uses =>
  withPaths(uses, [], (id) => pins?.find((pin) => pin.dataset_id === id)?.name ?? null);

/** Returns whether one path equals the other or is inside it. */
export const overlap = (a: string, b: string): boolean =>
  a === b || a.startsWith(`${b}/`) || b.startsWith(`${a}/`);

/** Returns the `dependency` datasets that have a version, for placement. */
export function wantedOf(uses: Uses, datasets: readonly DatasetFact[]): Wanted[] {
  return uses.flatMap((use) => {
    const dataset = datasets.find((d) => d.id === use.dataset_id);
    if (use.mode !== 'dependency' || dataset === undefined || dataset.version === null) return [];
    return [
      {
        id: dataset.id,
        name: dataset.name,
        bytes: dataset.bytes,
        status: dataset.status,
        version: dataset.version,
      },
    ];
  });
}

/**
 * Returns the mounts of a deploy task, or the problem. Checks for path conflicts again, because a
 * dataset might have been renamed since the project was checked.
 */
export function mountsOf(
  uses: Uses,
  datasets: readonly DatasetFact[],
): { mounts: DatasetMount[] } | MountProblem {
  const mounts: DatasetMount[] = [];
  for (const use of uses) {
    const dataset = datasets.find((d) => d.id === use.dataset_id);
    if (dataset === undefined)
      return {
        code: 'dataset_not_ready',
        message: `dataset ${use.dataset_id} was deleted`,
      };
    const { id, name, nfs_path, bytes, files } = dataset;
    const shared = use.mode === 'readwrite';
    if (!shared && dataset.version === null)
      return {
        waits: { kind: 'dataset_without_version', dataset: name, problem: dataset.problem },
      };
    const mount_path = mountPathOf(use, name);
    const other = mounts.find((m) => overlap(m.mount_path, mount_path));
    if (other !== undefined)
      return {
        code: 'mount_conflict',
        message: `${other.name} at ${other.mount_path} and ${name} at ${mount_path}`,
      };
    mounts.push({
      dataset_id: id,
      name,
      nfs_path,
      version: shared ? null : dataset.version,
      manifest_digest: shared ? null : dataset.manifest_digest,
      bytes,
      files,
      mode: use.mode,
      mount_path,
    });
  }
  return { mounts };
}

export const pinsOf = (mounts: readonly DatasetMount[]): PinnedDataset[] =>
  mounts.map(({ dataset_id, name, mode, version }) => ({ dataset_id, name, mode, version }));

/** Returns the pinned datasets that have a newer version now. */
export function newerVersions(
  pins: readonly PinnedDataset[] | null,
  datasets: readonly DatasetFact[],
): { pin: PinnedDataset; version: number }[] {
  return (pins ?? []).flatMap((pin) => {
    const version = datasets.find((d) => d.id === pin.dataset_id)?.version ?? null;
    return pin.version !== null && version !== null && version > pin.version
      ? [{ pin, version }]
      : [];
  });
}
