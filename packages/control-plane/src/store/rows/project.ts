import { isScaledToZero, ProjectPatch } from '@berth/wire/project';
import type { Guarded } from '../../domain/identity/access.ts';
import type { ProjectRecord, ProjectSettings } from '../../domain/platform/records.ts';
import type { Row } from '../engine/tables.ts';
import { type Encoded, decodeRow } from './columns.ts';

const ENCODED: Encoded<Omit<ProjectRecord, 'stopped_by_person'>> = {
  build_args: 'json',
  submodules: 'flag',
  git_lfs: 'flag',
  auth_required: 'flag',
  env: 'json',
  datasets: 'json',
  volumes: 'json',
  deploy_on_push: 'flag',
  watch_paths: 'json',
  members: 'json',
  cors_origins: 'json',
  domains: 'json',
  processes: 'json',
  scaled: 'json',
  sticky: 'flag',
  allow_exec: 'flag',
  deletes_volumes: 'flag',
  requires: 'json',
  release_command: 'json',
  replace_set: 'flag',
  on_node_lost_set: 'flag',
};

export const projectOf = ({
  auth_epoch: _,
  stopped_by_person,
  ...row
}: Row<'projects'>): ProjectRecord => {
  const project = decodeRow<Omit<ProjectRecord, 'stopped_by_person'>>(row, ENCODED);
  return { ...project, stopped_by_person: isStoppedByPerson(project, stopped_by_person) };
};

/**
 * Returns whether a person stopped the project. Null: an earlier version stopped it, and wrote
 * `stopped_at` alone. Only a count of 0 then means that no person did.
 */
export const isStoppedByPerson = (
  project: Pick<ProjectRecord, 'stopped_at' | 'processes'>,
  stored: number | null,
): boolean =>
  project.stopped_at !== null && (stored === null ? !isScaledToZero(project) : stored !== 0);

/**
 * Returns the settings that a deployment has stored. A version before 0.3 copies each column of the
 * project that it does not know into the settings, as the column has it: flags are numbers, and JSON
 * is text.
 */
export function storedSettings(text: string): Partial<ProjectSettings> {
  const stored = Object.entries(JSON.parse(text) as Partial<ProjectSettings>);
  return Object.fromEntries(
    stored
      .filter(([name]) => Object.hasOwn(ProjectPatch.properties, name))
      .map(([name, value]) => [name, decoded(name as keyof ProjectSettings, value)]),
  );
}

function decoded(name: keyof ProjectSettings, value: unknown): unknown {
  const encoding = (ENCODED as Partial<Record<keyof ProjectSettings, string>>)[name];
  if (encoding === 'json' && typeof value === 'string') return JSON.parse(value);
  return encoding === 'flag' && typeof value === 'number' ? value !== 0 : value;
}

/** Returns the id and members of a project, for access checks. */
export const guardedOf = ({ id, members }: Pick<Row<'projects'>, 'id' | 'members'>): Guarded => ({
  id,
  members: JSON.parse(members) as Guarded['members'],
});
