/** Datasets: folders under the shared storage, their numbered versions, and what changed from one to the next (INTERFACES.md). */
import { type Static, Type } from 'typebox';
import { Id, literals, orNull, Time } from './vocabulary.ts';

/** `new`: never scanned; `unreachable`: what is known stays; `suspicious`: emptied or mostly gone, nothing is recorded until it is back or someone accepts the loss. */
export const DATASET_STATES = ['new', 'ok', 'unreachable', 'suspicious'] as const;
export type DatasetState = (typeof DATASET_STATES)[number];

/** Also the name of its symlink on a node, so: no separators, nothing hidden, nothing that reads as an option. */
export const DatasetName = Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$' });
/** Relative to DATASET_NFS_BASE_PATH; rules in control-plane/src/domain/paths.ts. */
export const NfsPath = Type.String({ minLength: 1, maxLength: 1000 });
/** `sha256:` of the root tree object (tree.ts). */
export const ManifestDigest = Type.String({ pattern: '^sha256:[0-9a-f]{64}$' });
const Bytes = Type.Integer({ minimum: 0 });
const Count = Type.Integer({ minimum: 0 });
const Version = Type.Integer({ minimum: 1 });

export const DatasetCreate = Type.Object({ name: DatasetName, nfs_path: NfsPath }, { additionalProperties: false });
export type DatasetCreate = Static<typeof DatasetCreate>;
export const DatasetPatch = Type.Object(
  { name: Type.Optional(DatasetName), nfs_path: Type.Optional(NfsPath) },
  { additionalProperties: false, minProperties: 1 },
);
export type DatasetPatch = Static<typeof DatasetPatch>;
/** `full` hashes every file again; `accept_loss` records a state that was `suspicious`. */
export const DatasetScan = Type.Object(
  { full: Type.Optional(Type.Boolean()), accept_loss: Type.Optional(Type.Boolean()) },
  { additionalProperties: false },
);
export type DatasetScan = Static<typeof DatasetScan>;

/** What a scan left out, and why; `first` names at most 100. */
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
  problem: orNull(Type.String({ description: 'why it is not ok, or why the last scan recorded nothing' })),
  version: orNull(Version),
  manifest_digest: orNull(ManifestDigest),
  bytes: Bytes,
  files: Count,
  skipped: Skipped,
  scanning: Type.Boolean({ description: 'a scan is asked for or under way' }),
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
/** `path` is text where the name is UTF-8 without control characters, else percent-encoded (tree.ts, `displayPath`). Size and checksum are of the new state, null when removed. */
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

/** The modes of the contract's table "Mount modes". */
export const MOUNT_MODES = ['dependency', 'readwrite'] as const;
export type MountMode = (typeof MOUNT_MODES)[number];

/** A dataset at one version, as an agent needs it to copy and prove it. */
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

/** One row of a deploy task: where it comes from and where the container sees it. `version` is null for `readwrite`: the share itself is mounted. */
export const DatasetMount = Type.Object({
  ...DatasetSource.properties,
  mode: literals(MOUNT_MODES),
  mount_path: Type.String({ description: 'absolute path in the container' }),
});
export type DatasetMount = Static<typeof DatasetMount>;

/** What a deployment was made with. `current_version` and `moved_on` are as of now. */
export const DeploymentDataset = Type.Object({
  dataset_id: Id,
  name: DatasetName,
  mode: literals(MOUNT_MODES),
  version: orNull(Version),
  current_version: orNull(Version),
  moved_on: Type.Boolean(),
});
export type DeploymentDataset = Static<typeof DeploymentDataset>;

/** A copy under way: bytes that had to be copied and are there, bytes a second of late, seconds left (null: not known yet). */
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

/** Tree objects by digest; more than 256 at once are refused. An unknown one is left out of the answer. */
export const TreeRequest = Type.Object({ digests: Type.Array(ManifestDigest, { minItems: 1, maxItems: 256 }) });
export const TreeAnswer = Type.Object({ objects: Type.Record(Type.String(), Type.String()) });

/** How a dataset stands, for an agent whose source moved on while it copied. */
export const DatasetStanding = Type.Object({
  ...DatasetSource.properties,
  status: literals(DATASET_STATES),
  problem: orNull(Type.String()),
  scanning: Type.Boolean(),
  last_scanned_at: orNull(Time),
});
export type DatasetStanding = Static<typeof DatasetStanding>;
