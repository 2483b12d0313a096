/** What is wrong with a folder of the shared storage, as rules of field `nfs_path`; null: it is an existing folder below the base. */
export type FolderLook = { rule: 'no_share' | 'outside' | 'missing' | 'not_a_folder' | 'unreachable'; message: string } | null;
/** Answers within a few seconds, also when the share hangs. */
export type LookAtFolder = (nfsPath: string) => Promise<FolderLook>;
