import type { Guarded } from '../../domain/identity/access.ts';
import type { ProjectRecord } from '../../domain/platform/records.ts';
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
  deletes_volumes: 'flag',
  requires: 'json',
  replace_set: 'flag',
  on_node_lost_set: 'flag',
};

export const projectOf = ({ auth_epoch: _, ...row }: Row<'projects'>): ProjectRecord =>
  decodeRow(row, ENCODED);

/** Returns the id and members of a project, for access checks. */
export const guardedOf = ({ id, members }: Pick<Row<'projects'>, 'id' | 'members'>): Guarded => ({
  id,
  members: JSON.parse(members) as Guarded['members'],
});
