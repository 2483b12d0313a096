/** Encryption of stored secrets. Implemented in secrets/. */

/**
 * Encrypts values of one project. Each value is bound to the project and to a name: a sealed text
 * opens only under the same name.
 */
export type ProjectVault = {
  /** Returns the encrypted value as text for a database column. */
  seal(name: string, value: string | Buffer): string;
  /** Throws secrets_locked. */
  open(name: string, sealed: string): Buffer;
  /**
   * Returns an HMAC with the project's key: equal values of the same name have equal fingerprints.
   */
  fingerprint(name: string, value: string | Buffer): string;
};

/**
 * Seals values with the key of their project, which SECRETS_KEY wraps. `name` distinguishes the
 * uses: `secret:NAME`, `deploy-key`, `git-token`, `hook-secret`. Every method throws not_found
 * (project) and secrets_locked (SECRETS_KEY lacks the key).
 */
export type Vault = {
  seal(projectId: string, name: string, value: string | Buffer): Promise<string>;
  open(projectId: string, name: string, sealed: string): Promise<Buffer>;
  fingerprint(projectId: string, name: string, value: string | Buffer): Promise<string>;
  /**
   * Returns the project's vault, for sealing within a transaction or sealing several values.
   * Creates the project's key on first use.
   */
  of(projectId: string): Promise<ProjectVault>;
  /**
   * Counts the project keys: `all`; `earlier`: wrapped by an old key of SECRETS_KEY; `locked`: no
   * key of SECRETS_KEY can open them.
   */
  keys(): Promise<KeyCounts>;
};
export type KeyCounts = { all: number; earlier: number; locked: number };

/**
 * Names of keys for values that belong to no project. The vault accepts these names instead of a
 * project id; project ids are UUIDs.
 */
export const PLATFORM_KEYS = ['notifications'] as const;

/**
 * `wrapped`: encrypted key of the project. `wrapped_by`: id of the key in SECRETS_KEY that opens
 * it.
 */
export type ProjectKeyRecord = { project_id: string; wrapped: string; wrapped_by: string };
export type ProjectKeyStore = {
  get(projectId: string): Promise<ProjectKeyRecord | null>;
  /**
   * Stores the key unless the project already has a key, and returns the stored key. Throws
   * not_found.
   */
  setOnce(record: ProjectKeyRecord, now: number): Promise<ProjectKeyRecord>;
  /** Replaces `wrapped` by compare-and-set: only if it still equals `from`. */
  rewrap(record: ProjectKeyRecord, from: string): Promise<void>;
  /**
   * Returns up to `limit` keys that a key other than `keyId` wraps, ordered by project id. `after`:
   * only projects with a larger id.
   */
  wrappedByOthers(keyId: string, after: string, limit: number): Promise<ProjectKeyRecord[]>;
  /** Returns the number of project keys by the id of the key that wraps them. */
  counts(): Promise<Map<string, number>>;
};
