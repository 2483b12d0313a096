import { CodedError } from '@berth/kit/coded-error';

/**
 * A failure of a backup or a restore, for the operator: it says what happened, to which file, and
 * what to do.
 */
export type BackupErrorCode =
  /** The file is no backup of Berth. */
  | 'not_a_backup'
  /** A byte changed, or the end is missing. */
  | 'damaged'
  /** No identity opens the encrypted file. */
  | 'wrong_identity'
  /** A newer version of Berth made it. */
  | 'newer_backup'
  /** SECRETS_KEY does not open the secrets of the backup. */
  | 'missing_key'
  /** The place of the restore is in use. */
  | 'not_empty'
  | 'disk_full'
  /** The folder or the object storage does not answer or refuses. */
  | 'target_unavailable'
  /** pg_dump, pg_restore or the database failed. */
  | 'failed';

export class BackupError extends CodedError<BackupErrorCode> {
  override name = 'BackupError';
}

const FULL = /^(ENOSPC|EDQUOT|SQLITE_FULL)$/;
/** Returns whether the disk or the quota is full. */
export function isDiskFull(error: unknown): boolean {
  for (let e = error; e instanceof Error; e = e.cause)
    if ('code' in e && FULL.test(String(e.code))) return true;
  return false;
}
