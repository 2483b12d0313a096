/** Interfaces to the tables of git access. Implemented in store/git/. */
import type { HostKeyChange, StoredKey } from './git-hosts.ts';
import type { HostKey } from './git-hosts.ts';
import type { ProjectRecord } from '../platform/records.ts';

/** `sealed`: the private key, sealed by the vault. */
export type DeployKeyRecord = {
  project_id: string;
  public_key: string;
  fingerprint: string;
  sealed: string;
  created_at: number;
};
export type DeployKeyStore = {
  get(projectId: string): Promise<DeployKeyRecord | null>;
  /** Replaces the key of the project. Throws not_found, being_deleted. */
  put(record: DeployKeyRecord): Promise<void>;
  /** Throws not_found. */
  remove(projectId: string, now: number): Promise<void>;
};

/**
 * `host`: host of the token (domain/git/git-token.ts). `sealed`: the token, sealed by the vault.
 */
export type GitTokenRecord = {
  project_id: string;
  host: string;
  username: string | null;
  sealed: string;
  api_url: string | null;
  set_by: string | null;
  set_at: number;
};
export type GitTokenStore = {
  get(projectId: string): Promise<GitTokenRecord | null>;
  /**
   * Replaces the token of the project. `guard` runs inside the transaction with the current project
   * and throws to reject. Throws not_found, being_deleted.
   */
  put(record: GitTokenRecord, guard?: (present: ProjectRecord) => void): Promise<GitTokenRecord>;
  /** Throws not_found. */
  remove(projectId: string, now: number): Promise<void>;
};

export type GitHostStore = {
  /** Returns the stored keys of all hosts, by host. */
  all(): Promise<StoredKey[]>;
  of(host: string): Promise<StoredKey[]>;
  /**
   * Decides and writes a change in one transaction. Returns the stored keys after the change.
   * `event`: text of the event to record; null: none.
   */
  change(
    host: string,
    decide: (stored: readonly StoredKey[]) => HostKeyChange & { event: string | null },
    now: number,
  ): Promise<StoredKey[]>;
  /** Forgets the host. Throws not_found. */
  remove(host: string, now: number): Promise<void>;
  /**
   * Imports the keys that a builder trusted, if its import is still allowed. Returns the number of
   * hosts that got a key.
   */
  import(
    nodeId: string,
    keys: readonly (HostKey & { host: string })[],
    now: number,
  ): Promise<number>;
  /** Removes untrusted keys that were presented before `before`. Returns their number. */
  sweep(before: number): Promise<number>;
};
