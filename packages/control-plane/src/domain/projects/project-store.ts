/**
 * Interface to the projects in the database. Each method runs its own transaction,
 * and documents its rule and the codes of DomainError that it throws. Implemented in store/.
 */
import type { ConfigOrigin, ProjectCreate } from '@berth/wire/project';
import type { Guarded, ProjectAccess } from '../identity/access.ts';
import type { RecordChange, RecordGuard } from '../platform/record-change.ts';
import type { Page, Paged, ProjectFilter } from '../platform/page.ts';
import type { ProjectRecord, ProjectSettings } from '../platform/records.ts';

export type ConfiguredRelease = { config: ConfigOrigin; settings: ProjectSettings };
export type Configured = Map<string, ConfiguredRelease>;

/** Settings to write; `scaled` are the counts that people set. */
export type ProjectChange = Partial<ProjectSettings & Pick<ProjectRecord, 'scaled'>>;

export type ProjectStore = {
  /**
   * Creates a project with the defaults of PROJECT_DEFAULTS (`replace`: rolling). Throws
   * name_taken, domain_prefix_taken, domain_taken, validation (a dataset is unknown or being
   * deleted, a member is unknown). `access`: errors do not name projects that this caller must not
   * see. `replaceSet`: whether a person set `replace` (default: whether the input has it).
   */
  create(
    input: ProjectCreate,
    now: number,
    access?: ProjectAccess,
    options?: { replaceSet?: boolean },
  ): Promise<ProjectRecord>;
  /** Throws not_found. */
  get(id: string): Promise<ProjectRecord>;
  /** Returns the existing records; missing ids are skipped. */
  getMany(ids: readonly string[]): Promise<ProjectRecord[]>;
  /** `access`: only projects that this caller can see. */
  list(page: Page, filter?: ProjectFilter, access?: ProjectAccess): Promise<Paged<ProjectRecord>>;
  /**
   * Returns the fields that decide who can see the project with this id, else with this name; null
   * if there is no such project.
   */
  guarded(idOrName: string): Promise<Guarded | null>;
  /**
   * Returns the ids of the given projects that the caller can see. For a deleted project, its
   * members at the deletion decide.
   */
  visible(ids: readonly string[], access: ProjectAccess): Promise<Set<string>>;
  /**
   * Removes the stored members of deleted projects that have no events left. Returns the number of
   * removed rows.
   */
  sweep(now: number): Promise<number>;
  /** Returns the id of the project with this id, else with this name, else null. */
  idOf(idOrName: string): Promise<string | null>;
  /**
   * Changes the given fields and increments flow_version. If `change` is a function, it runs inside
   * the transaction with the current project, possibly more than once, and throws to reject. A
   * prefix also counts as taken while another project still serves under it. Throws not_found,
   * domain_prefix_taken, domain_taken, being_deleted, validation. `access`: as in `create`.
   */
  patch(
    id: string,
    change: RecordChange<ProjectRecord, ProjectChange>,
    now: number,
    access?: ProjectAccess,
  ): Promise<ProjectRecord>;
  /**
   * Marks the project for deletion and increments flow_version. Idempotent. `volumes`: true deletes
   * its volumes too; otherwise they stay on their nodes. Throws not_found.
   */
  markDeleting(
    id: string,
    now: number,
    options?: { volumes?: boolean; guard?: RecordGuard<ProjectRecord> },
  ): Promise<ProjectRecord>;
  listDeleting(): Promise<ProjectRecord[]>;
  /**
   * Removes a marked project with its data if it has no open task and no node reports a container
   * of it. Returns whether the project was removed.
   */
  removeIfGone(id: string): Promise<boolean>;
  /**
   * Returns the settings of the running deployments that have some from berth.toml, by project id.
   * The deployment of a stopped project counts as running.
   */
  configured(ids: readonly string[]): Promise<Configured>;
  /** Returns the id of the running deployment of each project, by project id. */
  runningDeployments(ids: readonly string[]): Promise<Map<string, string>>;
  /** Returns the projects whose running deployment has the process `web`. */
  servedByWeb(ids: readonly string[]): Promise<Set<string>>;
};
