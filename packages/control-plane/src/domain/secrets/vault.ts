/** Encryption of stored secrets. Implemented in secrets/. */

/**
 * Encrypts values of one project. Each value is bound to the project and to a name: a sealed text
 * opens under no other name.
 */
export type ProjectVault = {
  /** Returns text for a column. */
  seal(name: string, value: string | Buffer): string;
  /** Throws secrets_locked. */
  open(name: string, sealed: string): Buffer;
  /** Returns an HMAC under the project's key: equal values of one name have equal fingerprints. */
  fingerprint(name: string, value: string | Buffer): string;
};

/**
 * Seals values with the key of their project, which SECRETS_KEY wraps. `name` tells the uses apart:
 * `secret:NAME`, `deploy-key`, `git-token`, `hook-secret`. Every method throws not_found (project)
 * and secrets_locked (SECRETS_KEY lacks the key).
 */
export type Vault = {
  seal(projectId: string, name: string, value: string | Buffer): Promise<string>;
  open(projectId: string, name: string, sealed: string): Promise<Buffer>;
  fingerprint(projectId: string, name: string, value: string | Buffer): Promise<string>;
  /**
   * Returns the project's vault, to seal within a transaction or to seal several values. Creates
   * the project's key on first use.
   */
  of(projectId: string): Promise<ProjectVault>;
  /**
   * Counts the project keys: all, those that an earlier SECRETS_KEY wraps, those that no key of
   * SECRETS_KEY opens.
   */
  keys(): Promise<KeyCounts>;
};
export type KeyCounts = { all: number; earlier: number; locked: number };

/**
 * Keys of values that belong to no project. The vault takes these names in place of an id of a
 * project; ids of projects are UUIDs.
 */
export const PLATFORM_KEYS = ['notifications'] as const;

/**
 * `wrapped`: the project's key, encrypted; `wrapped_by`: id of the key of SECRETS_KEY that opens
 * it.
 */
export type ProjectKeyRecord = { project_id: string; wrapped: string; wrapped_by: string };
export type ProjectKeyStore = {
  get(projectId: string): Promise<ProjectKeyRecord | null>;
  /** Stores the key unless the project has one, and returns the stored one. Throws not_found. */
  setOnce(record: ProjectKeyRecord, now: number): Promise<ProjectKeyRecord>;
  /** Replaces `wrapped` if it is still `from`. */
  rewrap(record: ProjectKeyRecord, from: string): Promise<void>;
  /**
   * Returns up to `limit` keys that another key than `keyId` wraps, after this project, by project
   * id.
   */
  wrappedByOthers(keyId: string, after: string, limit: number): Promise<ProjectKeyRecord[]>;
  /** Returns the number of project keys by the id of the key that wraps them. */
  counts(): Promise<Map<string, number>>;
};
