/**
 * Paths of the agent's folders and files under SVC_ROOT. docs/contract.md "Mount modes" promises
 * the first two; the others are internal.
 *
 *   objects/{dataset_id}/v{version}          a complete version: created by one rename, and never
 *                                            changed afterwards
 *   mounts/{deployment_id}/{dataset name}    relative symlink to a version, which also pins the
 *                                            version against eviction
 *   objects/{dataset_id}/.v{version}.json    the version's meta data (versions.ts)
 *   objects/{dataset_id}/.trees/{xx}/{hex}   tree objects of its versions, by digest (trees.ts)
 *   mounts/{deployment_id}/.deployment.json  the folder's owner (mounts.ts)
 *   .staging/{process}/                      running copies (work-folders.ts)
 *   .trash/{process}/                        folders that are about to be deleted
 *   .copy-rate.json                          speed of recent copies in bytes/s (copy-rate.ts)
 */
import { join } from 'node:path';

export type Layout = {
  root: string;
  objects: string;
  mounts: string;
  staging: string;
  trash: string;
  copyRate: string;
  dataset(datasetId: string): string;
  version(datasetId: string, version: number): string;
  meta(datasetId: string, version: number): string;
  trees(datasetId: string): string;
  /** Folder of a deployment. */
  mount(deploymentId: string): string;
  mountOwner(deploymentId: string): string;
  link(deploymentId: string, name: string): string;
};

const ID = /^[A-Za-z0-9_-]{1,64}$/;
/** Tells whether the text has the form of a dataset id or deployment id. */
export const isId = (text: string): boolean => ID.test(text);
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;

/**
 * Creates the layout. Its functions throw on an id or name that could leave the folder, because
 * both come over the network.
 */
export function createLayout(root: string): Layout {
  const [objects, mounts] = [join(root, 'objects'), join(root, 'mounts')];
  const id = (text: string): string => checked(ID, text, 'an id');
  const number = (version: number): number => {
    if (!Number.isSafeInteger(version) || version < 1)
      throw new Error(`not a version of a dataset: ${version}`);
    return version;
  };
  return {
    root,
    objects,
    mounts,
    staging: join(root, '.staging'),
    trash: join(root, '.trash'),
    copyRate: join(root, '.copy-rate.json'),
    dataset: (datasetId) => join(objects, id(datasetId)),
    version: (datasetId, version) => join(objects, id(datasetId), `v${number(version)}`),
    meta: (datasetId, version) => join(objects, id(datasetId), `.v${number(version)}.json`),
    trees: (datasetId) => join(objects, id(datasetId), '.trees'),
    mount: (deploymentId) => join(mounts, id(deploymentId)),
    mountOwner: (deploymentId) => join(mounts, id(deploymentId), '.deployment.json'),
    link: (deploymentId, name) =>
      join(mounts, id(deploymentId), checked(NAME, name, 'the name of a dataset')),
  };
}

function checked(pattern: RegExp, text: string, what: string): string {
  if (!pattern.test(text)) throw new Error(`not ${what}: ${JSON.stringify(text.slice(0, 100))}`);
  return text;
}

/** Returns the Map key of a dataset version. */
export const keyOf = (datasetId: string, version: number): string => `${datasetId}/v${version}`;

/**
 * Returns the version that the target of a symlink in mounts/ names; null if the text is no such
 * target.
 */
export function targetOf(text: string): { datasetId: string; version: number } | null {
  const [, datasetId, version] =
    /^\.\.\/\.\.\/objects\/([A-Za-z0-9_-]{1,64})\/v([1-9]\d*)$/.exec(text) ?? [];
  return datasetId === undefined ? null : { datasetId, version: Number(version) };
}
export const targetText = (datasetId: string, version: number): string =>
  `../../objects/${datasetId}/v${version}`;

/** Returns the folder name in .trash/{process}/, which names the version. */
export const trashName = (datasetId: string, version: number, count: number): string =>
  `${datasetId}.v${version}.${count}`;
export function trashedOf(name: string): { datasetId: string; version: number } | null {
  const [, datasetId, version] = /^([A-Za-z0-9_-]{1,64})\.v([1-9]\d*)\.\d+$/.exec(name) ?? [];
  return datasetId === undefined ? null : { datasetId, version: Number(version) };
}
