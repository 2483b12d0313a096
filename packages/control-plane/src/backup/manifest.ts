/** The part of a backup that says what is in it. */
import { type Static, Type } from 'typebox';
import { Value } from 'typebox/value';
import { BackupError } from './errors.ts';
import { EtcFiles, refuseOutside } from './etc.ts';

/** 2 has secret files of the machine (archive.ts). Earlier versions of Berth read 1. */
const FORMAT = 2;

const Manifest = Type.Object({
  /** Rises when an earlier version of Berth could not read the backup. */
  format: Type.Integer(),
  /** Version of Berth. */
  berth: Type.String(),
  created_at: Type.String(),
  /** Id of the installation, which is in the name of the file too. */
  installation: Type.String(),
  engine: Type.Union([Type.Literal('sqlite'), Type.Literal('postgres')]),
  migrations: Type.Array(Type.String()),
  /** Number of rows of each table. */
  rows: Type.Record(Type.String(), Type.Integer()),
  /** Ids of the keys of SECRETS_KEY that encrypt the secrets in the database. */
  key_ids: Type.Array(Type.String()),
  /** Settings of the control plane, without secrets. */
  settings: Type.Record(Type.String(), Type.String()),
  /**
   * Volumes of projects. Their data is on nodes and not in the backup. Absent: none, or the backup
   * is of an earlier version.
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
  /** Settings of the machine; a backup of an earlier version has none. */
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
