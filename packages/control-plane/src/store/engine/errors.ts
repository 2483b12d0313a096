/** What can be wrong with the database itself, told to whoever starts the control plane. Never thrown for a request's fault. */
export type StoreErrorCode =
  /** DATABASE_URL is not one we can open. */
  | 'unsupported_url'
  /** The file or its folder cannot be opened, made or read as a database. */
  | 'cannot_open'
  /** The engine has a bug that loses data. */
  | 'engine_too_old'
  /** Another control plane holds the file. */
  | 'held'
  /** A later version of Berth has changed the tables. */
  | 'newer_database'
  | 'migration_failed'
  /** Somebody else kept the write lock for too long. */
  | 'locked'
  /** The server does not answer, or the connection to it was lost before anything was committed. */
  | 'unreachable'
  /** The connection was lost while a commit was under way: only who looks again knows whether it was made. */
  | 'unknown_outcome';

export class StoreError extends Error {
  override name = 'StoreError';
  readonly code: StoreErrorCode;
  constructor(code: StoreErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** Receives what happens to the database. */
export type StoreLog = { info(fields: object, message: string): void; warn(fields: object, message: string): void };
