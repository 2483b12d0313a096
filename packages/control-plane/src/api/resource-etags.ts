/**
 * Entity tags of resources that people change. They cover only fields that people set, so that
 * changes by the platform do not make an edit stale.
 */
import { isScaledToZero, ProjectPatch } from '@berth/wire/project';
import type { Role } from '@berth/wire/vocabulary';
import { maySeeEnv } from '../domain/identity/access.ts';
import type {
  DatasetRecord,
  ProjectRecord,
  ProjectSettings,
  UserRecord,
} from '../domain/platform/records.ts';
import { etagOf } from './etag.ts';

const SETTABLE = Object.keys(ProjectPatch.properties).sort() as (keyof ProjectSettings)[];

/**
 * Returns the tag of a project. For a viewer it covers only the names in `env` and `build_args`: a
 * digest of short values would reveal them.
 */
export function projectEtag(project: ProjectRecord, role: Role): string {
  const shown = (key: keyof ProjectSettings): unknown =>
    (key === 'env' || key === 'build_args') && !maySeeEnv(role)
      ? Object.keys(project[key]).sort()
      : project[key];
  // Empty while the project runs, so that older versions compute the same ETag.
  const stopped = project.stopped_at === null ? [] : ['stopped'];
  if (project.stopped_by_person && isScaledToZero(project)) stopped.push('by_person');
  return etagOf(
    JSON.stringify([
      project.id,
      project.name,
      project.secrets_version,
      ...stopped,
      ...SETTABLE.map(shown),
    ]),
  );
}

export const datasetEtag = ({ id, name, nfs_path }: DatasetRecord): string =>
  etagOf(JSON.stringify([id, name, nfs_path]));

/** Covers the password hash too. The hash is salted, so the tag reveals nothing. */
export const userEtag = ({ id, email, role, disabled, password_hash }: UserRecord): string =>
  etagOf(JSON.stringify([id, email, role, disabled, password_hash]));
