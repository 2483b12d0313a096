/** Secrets of projects: records, rules and the interface to the database. Pure. */
import {
  MAX_SECRET_BYTES,
  MAX_SECRETS,
  MAX_SECRETS_BYTES,
  type SecretDelivery,
  type SecretScope,
} from '@berth/wire/secret';
import { DomainError, type FieldProblem } from '../platform/errors.ts';
import type { RecordGuard } from '../platform/record-change.ts';
import type { ProjectRecord, SecretPrint } from '../platform/records.ts';

export type SecretRecord = {
  name: string;
  fingerprint: string;
  scope: SecretScope;
  as: SecretDelivery;
  /** E-mail address of the person who set it. */
  set_by: string | null;
  set_at: number;
};
export type SealedSecret = SecretRecord & { sealed: string };
export type NewSecret = Omit<SealedSecret, 'set_at'> & { bytes: number };
/** `project`: the project after the change, for its ETag. */
export type ChangedSecret = { secret: SecretRecord; project: ProjectRecord };

export type SecretStore = {
  /** Lists secrets by name. */
  list(projectId: string): Promise<SecretRecord[]>;
  /** Throws not_found. */
  get(projectId: string, name: string): Promise<SecretRecord>;
  /** Returns the existing secrets among these names. */
  sealed(projectId: string, names: readonly string[]): Promise<SealedSecret[]>;
  /**
   * Sets a secret. Throws not_found (project), being_deleted, env_conflict, validation (too many,
   * too large together).
   */
  set(
    projectId: string,
    secret: NewSecret,
    now: number,
    guard: RecordGuard<ProjectRecord>,
  ): Promise<ChangedSecret>;
  /** Throws not_found, being_deleted. */
  remove(
    projectId: string,
    name: string,
    now: number,
    guard: RecordGuard<ProjectRecord>,
  ): Promise<void>;
  /**
   * Stores which secrets the container of a deployment received (`prints`; null: unchanged), and
   * adds a story line about secrets that were deleted since the task was created (`missing`). Does
   * nothing if both are already stored.
   */
  delivered(
    deploymentId: string,
    what: { prints: SecretPrint[] | null; missing: readonly string[] },
    now: number,
  ): Promise<void>;
  /**
   * Removes the variable from the project's env and from its deployments, and sets a secret with
   * its value, in one transaction. `seal` can throw to reject the value. Throws not_found (no such
   * variable), being_deleted, validation.
   */
  importEnv(
    projectId: string,
    name: string,
    seal: (value: string) => NewSecret,
    now: number,
    guard: RecordGuard<ProjectRecord>,
  ): Promise<ChangedSecret>;
};

/**
 * Returns the name of a secret in the vault, distinct from the names of other uses of the vault.
 */
export const vaultName = (name: string): string => `secret:${name}`;

/** Checks a value. The message never contains the value. */
export function secretValueProblem(value: string): FieldProblem | null {
  if (value === '')
    return {
      field: 'value',
      rule: 'min_length',
      message: 'must not be empty; to remove a secret, delete it',
    };
  // A lone surrogate has no UTF-8 encoding, so the application would get a different text.
  if (!value.isWellFormed())
    return {
      field: 'value',
      rule: 'utf8',
      message: 'must be valid Unicode text; encode other data in base64',
    };
  if (Buffer.byteLength(value) > MAX_SECRET_BYTES)
    return {
      field: 'value',
      rule: 'max_bytes',
      message: `must not have more than ${MAX_SECRET_BYTES} bytes (64 KiB) in UTF-8`,
    };
  return null;
}

/** Checks the limits of all secrets of a project together. */
export function secretsProblem({
  count,
  bytes,
}: {
  count: number;
  bytes: number;
}): FieldProblem | null {
  if (count > MAX_SECRETS)
    return {
      field: 'name',
      rule: 'max_items',
      message: `a project must not have more than ${MAX_SECRETS} secrets; delete one first`,
    };
  if (bytes > MAX_SECRETS_BYTES)
    return {
      field: 'value',
      rule: 'max_bytes',
      message:
        `all secrets of a project together must not exceed ${MAX_SECRETS_BYTES} bytes (1 MiB); ` +
        `there would be ${bytes} bytes`,
    };
  return null;
}

/** Returns the error for a new secret with the name of an existing environment variable. */
export const envHasName = (name: string): DomainError =>
  new DomainError(
    'env_conflict',
    `the project has an environment variable ${name}: remove it, or move it: berth secret ` +
      `import ${name} (POST …/secrets/${name}/import)`,
    [{ field: 'name', rule: 'env_conflict', message: 'is the name of an environment variable' }],
  );

/** Returns the error for new environment variables with names of existing secrets. */
export const secretsHaveNames = (names: readonly string[]): DomainError =>
  new DomainError(
    'env_conflict',
    `the project has ${names.length === 1 ? 'a secret' : 'secrets'} ${names.join(', ')}: set ` +
      'the secret instead, or delete it first',
    names.map((name) => ({
      field: `env.${name}`,
      rule: 'env_conflict',
      message: 'is the name of a secret',
    })),
  );
