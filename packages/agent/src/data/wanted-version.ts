/** The version of a dataset that a task needs on this node. */
import type { DatasetSource } from '@berth/wire/dataset';
import { TaskFailure } from '../failures.ts';

export type WantedVersion = {
  dataset_id: string;
  name: string;
  nfs_path: string;
  version: number;
  manifest_digest: string;
};

/**
 * Returns the version that the dataset has now. Throws TaskFailure dataset_not_ready if the dataset
 * has no version.
 */
export function wantedVersionOf({
  dataset_id,
  name,
  nfs_path,
  version,
  manifest_digest,
}: DatasetSource): WantedVersion {
  if (version === null || manifest_digest === null)
    throw new TaskFailure('dataset_not_ready', name);
  return { dataset_id, name, nfs_path, version, manifest_digest };
}

/** Returns the version as shown to people: `imagenet v3`. */
export const versionText = ({ name, version }: Pick<WantedVersion, 'name' | 'version'>): string =>
  `${name} v${version}`;
