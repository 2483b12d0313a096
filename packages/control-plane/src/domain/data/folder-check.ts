/**
 * Problem of a folder on the shared storage; `rule` is an error rule of the field `nfs_path`. Null
 * if the folder exists below the base.
 */
export type FolderProblem = {
  rule: 'no_share' | 'outside' | 'missing' | 'not_a_folder' | 'unreachable';
  message: string;
} | null;
/** Checks a folder within a few seconds, even if the share hangs. */
export type CheckFolder = (nfsPath: string) => Promise<FolderProblem>;
