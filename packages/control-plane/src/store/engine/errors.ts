import { CodedError } from '@berth/kit/coded-error';

/**
 * Failures of the database itself, for the person who starts the control plane. Invalid requests
 * never cause one.
 */
export type StoreErrorCode =
  /** Berth does not support this DATABASE_URL. */
  | 'unsupported_url'
  /** The file or its folder cannot be opened or created, or is not a database. */
  | 'cannot_open'
  /** This version of the engine has a bug that loses data. */
  | 'engine_too_old'
  /** Another control plane has locked the file. */
  | 'held'
  /** A newer version of Berth migrated the database. */
  | 'newer_database'
  /** No control plane of this version has migrated the database yet. */
  | 'older_database'
  | 'migration_failed'
  /** Another program held the write lock for too long. */
  | 'locked'
  /** The server does not answer, or the connection to it was lost before a commit. */
  | 'unreachable'
  /**
   * The connection was lost during a commit. Only a later read shows whether the commit succeeded.
   */
  | 'unknown_outcome';

export class StoreError extends CodedError<StoreErrorCode> {
  override name = 'StoreError';
}

/** The logger of the database. */
export type StoreLog = {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
};
