/**
 * Datasets: folders of the shared storage, their numbered versions, and the changes between
 * versions.
 */
import { type Static, Type } from 'typebox';
import { Id, literals, orNull, Time } from './vocabulary.ts';

/**
 * `new`: not scanned yet. `unreachable`: the folder cannot be read; the recorded version stays.
 * `suspicious`: the folder is empty or lost most of its files; Berth records no scan until the
 * files are back or somebody accepts the loss.
 */
export const DATASET_STATES = ['new', 'ok', 'unreachable', 'suspicious'] as const;
export type DatasetState = (typeof DATASET_STATES)[number];

/**
 * The name is also the name of a symlink on nodes: it has no separators and cannot be a hidden file
 * or look like an option.
 */
export const DatasetName = Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$' });
/**
 * Path relative to DATASET_NFS_BASE_PATH. path-rules.ts has the full
 * rules.
 */
export const NfsPath = Type.String({ minLength: 1, maxLength: 1000 });
/** `sha256:` and the hash of the root tree object (tree.ts). */
export const ManifestDigest = Type.String({ pattern: '^sha256:[0-9a-f]{64}$' });
const Bytes = Type.Integer({ minimum: 0 });
const Count = Type.Integer({ minimum: 0 });
const Version = Type.Integer({ minimum: 1 });

export const DatasetCreate = Type.Object(
  { name: DatasetName, nfs_path: NfsPath },
  { additionalProperties: false },
);
export type DatasetCreate = Static<typeof DatasetCreate>;
export const DatasetPatch = Type.Object(
  { name: Type.Optional(DatasetName), nfs_path: Type.Optional(NfsPath) },
  { additionalProperties: false, minProperties: 1 },
);
export type DatasetPatch = Static<typeof DatasetPatch>;
/**
 * `full` hashes every file again. `accept_loss` records the present files of a `suspicious`
 * dataset. `accept_share` accepts a mounted share that differs from the previous one; such a scan
 * does not accept a loss.
 */
export const DatasetScan = Type.Object(
  {
    full: Type.Optional(Type.Boolean()),
    accept_loss: Type.Optional(Type.Boolean()),
    accept_share: Type.Optional(Type.Boolean()),
  },
  { additionalProperties: false },
);
export type DatasetScan = Static<typeof DatasetScan>;

/** Files that a scan skipped, with reasons. `first` lists at most 100 of them. */
export const Skipped = Type.Object({
  count: Count,
  first: Type.Array(Type.Object({ path: Type.String(), reason: Type.String() })),
});
export type Skipped = Static<typeof Skipped>;

export const Dataset = Type.Object({
  id: Id,
  name: DatasetName,
  nfs_path: Type.String(),
  status: literals(DATASET_STATES),
  problem: orNull(
    Type.String({
      description: 'why the status is not `ok`, or why the last scan recorded nothing',
    }),
  ),
  version: orNull(Version),
  manifest_digest: orNull(ManifestDigest),
  bytes: Bytes,
  files: Count,
  skipped: Skipped,
  scanning: Type.Boolean({ description: 'true if a scan is requested or in progress' }),
  deleting: Type.Boolean(),
  last_scanned_at: orNull(Time),
  created_at: Time,
  updated_at: Time,
});
export type Dataset = Static<typeof Dataset>;

export const DatasetVersion = Type.Object({
  version: Version,
  created_at: Time,
  files: Count,
  bytes: Bytes,
  manifest_digest: ManifestDigest,
});
export type DatasetVersion = Static<typeof DatasetVersion>;

export const DATASET_CHANGES = ['added', 'modified', 'removed'] as const;
export type DatasetChange = (typeof DATASET_CHANGES)[number];
/**
 * `path` is plain text if it is UTF-8 without control characters, else it is percent-encoded
 * (tree.ts, `displayPath`). `size` and `checksum` describe the new state; both are null for a
 * removed file.
 */
export const DatasetHistoryRow = Type.Object({
  at: Time,
  version: Version,
  path: Type.String(),
  change: literals(DATASET_CHANGES),
  size: orNull(Bytes),
  checksum: orNull(Type.String()),
  previous_checksum: orNull(Type.String()),
});
export type DatasetHistoryRow = Static<typeof DatasetHistoryRow>;

const Changed = { files: Count, bytes: Bytes };
/** The difference between two versions. Paths have the same form as in DatasetHistoryRow. */
export const DatasetDiff = Type.Object({
  from: DatasetVersion,
  to: DatasetVersion,
  totals: Type.Object({
    added: Type.Object(Changed),
    modified: Type.Object({ ...Changed, previous_bytes: Bytes }),
    removed: Type.Object(Changed),
    complete: Type.Boolean({
      description: 'false: the versions have more differences than are counted and listed',
    }),
  }),
  items: Type.Array(
    Type.Object({
      path: Type.String(),
      change: literals(DATASET_CHANGES),
      size: orNull(Bytes),
      previous_size: orNull(Bytes),
      checksum: orNull(Type.String()),
      previous_checksum: orNull(Type.String()),
    }),
  ),
  next_cursor: orNull(Type.String()),
});
export type DatasetDiff = Static<typeof DatasetDiff>;

/** Mount modes that the contract defines. */
export const MOUNT_MODES = ['dependency', 'readwrite'] as const;
export type MountMode = (typeof MOUNT_MODES)[number];

/** A dataset at one version, with the fields that an agent needs to copy and verify it. */
export const DatasetSource = Type.Object({
  dataset_id: Id,
  name: DatasetName,
  nfs_path: Type.String(),
  version: orNull(Version),
  manifest_digest: orNull(ManifestDigest),
  bytes: Bytes,
  files: Count,
});
export type DatasetSource = Static<typeof DatasetSource>;

/**
 * A dataset mount of a deploy task: source and path in the container. `version` is null for
 * `readwrite`, which mounts the share itself.
 */
export const DatasetMount = Type.Object({
  ...DatasetSource.properties,
  mode: literals(MOUNT_MODES),
  mount_path: Type.String({ description: 'absolute path in the container' }),
});
export type DatasetMount = Static<typeof DatasetMount>;

/**
 * A dataset of a deployment. `version` is fixed at placement; `current_version` and `moved_on`
 * describe the present.
 */
export const DeploymentDataset = Type.Object({
  dataset_id: Id,
  name: DatasetName,
  mode: literals(MOUNT_MODES),
  version: orNull(Version),
  current_version: orNull(Version),
  moved_on: Type.Boolean(),
});
export type DeploymentDataset = Static<typeof DeploymentDataset>;

/**
 * Progress of a copy. `bytes_total` counts only files that must be copied. The rate covers the
 * recent past; a value is null while it is unknown.
 */
export const CopyProgress = Type.Object({
  dataset_id: Id,
  name: Type.String({ maxLength: 63 }),
  version: Version,
  step: literals(['waiting', 'making room', 'copying', 'verifying', 'done']),
  bytes_done: Bytes,
  bytes_total: Bytes,
  bytes_per_second: orNull(Type.Number({ minimum: 0 })),
  remaining_seconds: orNull(Type.Number({ minimum: 0 })),
});
export type CopyProgress = Static<typeof CopyProgress>;
export const TaskProgress = Type.Object({ datasets: Type.Array(CopyProgress, { maxItems: 100 }) });
export type TaskProgress = Static<typeof TaskProgress>;

/** Requests at most 256 tree objects by digest. The answer omits unknown digests. */
export const TreeRequest = Type.Object({
  digests: Type.Array(ManifestDigest, { minItems: 1, maxItems: 256 }),
});
export const TreeAnswer = Type.Object({ objects: Type.Record(Type.String(), Type.String()) });

/** Current state of a dataset, for an agent whose dataset got a newer version during the copy. */
export const DatasetStanding = Type.Object({
  ...DatasetSource.properties,
  status: literals(DATASET_STATES),
  problem: orNull(Type.String()),
  scanning: Type.Boolean(),
  last_scanned_at: orNull(Time),
});
export type DatasetStanding = Static<typeof DatasetStanding>;
