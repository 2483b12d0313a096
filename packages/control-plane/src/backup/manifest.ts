/** The manifest: the part of a backup that describes its content. */
import { type Static, Type } from 'typebox';
import { Value } from 'typebox/value';
import { BackupError } from './errors.ts';
import { EtcFiles, refuseOutside } from './etc.ts';

/** Format 2 added secret files of the machine (archive.ts). Older versions of Berth read only 1. */
const FORMAT = 2;

const Manifest = Type.Object({
  /** Format version; increased on incompatible changes. */
  format: Type.Integer(),
  /** Version of Berth that made the backup. */
  berth: Type.String(),
  created_at: Type.String(),
  /** Id of the installation, which is also in the file name. */
  installation: Type.String(),
  engine: Type.Union([Type.Literal('sqlite'), Type.Literal('postgres')]),
  migrations: Type.Array(Type.String()),
  /** Number of rows of each table. */
  rows: Type.Record(Type.String(), Type.Integer()),
  /** Ids of the keys in SECRETS_KEY that encrypt the secrets in the database. */
  key_ids: Type.Array(Type.String()),
  /** Settings of the control plane, without secrets. */
  settings: Type.Record(Type.String(), Type.String()),
  /**
   * Volumes of projects. Their data is on nodes and not in the backup. Absent if there are no
   * volumes, or if an older version made the backup.
   */
  volumes: Type.Optional(
    Type.Array(
      Type.Object({
        project: Type.String(),
        node: Type.String(),
        names: Type.Array(Type.String()),
        bytes: Type.Union([Type.Number(), Type.Null()]),
      }),
    ),
  ),
  /** Settings of the machine; absent if an older version made the backup. */
  etc: Type.Optional(EtcFiles),
});
export type Manifest = Static<typeof Manifest>;

/** Secret settings, only with --with-keys: SECRETS_KEY and others. */
const Keys = Type.Record(Type.String(), Type.String());
export type Keys = Static<typeof Keys>;

export const newManifest = (
  content: Omit<Manifest, 'format'>,
  { hasEtcSecrets }: { hasEtcSecrets: boolean },
): Manifest => ({
  format: hasEtcSecrets ? FORMAT : 1,
  ...content,
});

export function manifestIn(json: unknown): Manifest {
  const { format, berth } = (json ?? {}) as Record<string, unknown>;
  if (Number.isInteger(format) && Number(format) > FORMAT)
    throw new BackupError(
      'newer_backup',
      `a newer version of Berth (${String(berth)}) made this backup: use that version or a ` +
        'newer one',
    );
  if (!Value.Check(Manifest, json))
    throw new BackupError('damaged', 'its manifest.json has another form');
  refuseOutside(json.etc?.files ?? []);
  return json;
}

export function keysIn(json: unknown): Keys {
  if (!Value.Check(Keys, json)) throw new BackupError('damaged', 'its keys.json has another form');
  return json;
}
