import { CodedError } from '@berth/kit/coded-error';

/**
 * A failure of a backup or a restore, for the operator. The message says what happened, to which
 * file, and what to do.
 */
export type BackupErrorCode =
  /** The file is not a backup of Berth. */
  | 'not_a_backup'
  /** A byte changed, or the end of the file is missing. */
  | 'damaged'
  /** None of the given identities can decrypt the file. */
  | 'wrong_identity'
  /** A newer version of Berth made the backup. */
  | 'newer_backup'
  /** SECRETS_KEY cannot decrypt the secrets in the backup. */
  | 'missing_key'
  /** The target of the restore already contains data. */
  | 'not_empty'
  | 'disk_full'
  /** The folder or the object storage does not answer, or refuses the request. */
  | 'target_unavailable'
  /** pg_dump, pg_restore or the database failed. */
  | 'failed';

export class BackupError extends CodedError<BackupErrorCode> {
  override name = 'BackupError';
}

const FULL = /^(ENOSPC|EDQUOT|SQLITE_FULL)$/;
/** Returns whether the error means that the disk or the quota is full. */
export function isDiskFull(error: unknown): boolean {
  for (let e = error; e instanceof Error; e = e.cause)
    if ('code' in e && FULL.test(String(e.code))) return true;
  return false;
}
