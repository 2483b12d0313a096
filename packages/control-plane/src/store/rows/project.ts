import { ProjectPatch } from '@berth/wire/project';
import type { Guarded } from '../../domain/identity/access.ts';
import type { ProjectRecord, ProjectSettings } from '../../domain/platform/records.ts';
import type { Row } from '../engine/tables.ts';
import { type Encoded, decodeRow } from './columns.ts';

const ENCODED: Encoded<ProjectRecord> = {
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
  sticky: 'flag',
  allow_exec: 'flag',
  deletes_volumes: 'flag',
  requires: 'json',
  replace_set: 'flag',
  on_node_lost_set: 'flag',
};

export const projectOf = ({ auth_epoch: _, ...row }: Row<'projects'>): ProjectRecord =>
  decodeRow(row, ENCODED);

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
