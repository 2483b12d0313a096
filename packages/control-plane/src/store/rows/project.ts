import { defined } from '@berth/kit/defined';
import type { Guarded } from '../../domain/identity/access.ts';
import type { ProjectRecord, ProjectSettings } from '../../domain/platform/records.ts';
import type { NewRow, Row } from '../engine/tables.ts';
import { flagColumn, jsonColumn } from './json.ts';

type SettingColumns = Pick<NewRow<'projects'>, keyof ProjectSettings>;

/** Returns columns for the given settings only. */
export function settingColumns<T extends Partial<ProjectSettings>>(
  settings: T,
): T extends ProjectSettings ? SettingColumns : Partial<SettingColumns>;
export function settingColumns({
  auth_required,
  deploy_on_push,
  env,
  datasets,
  watch_paths,
  members,
  build_args,
  submodules,
  git_lfs,
  volumes,
  domains,
  cors_origins,
  requires,
  ...plain
}: Partial<ProjectSettings>): Partial<SettingColumns> {
  return {
    ...plain,
    ...defined({
      auth_required: flagColumn(auth_required),
      deploy_on_push: flagColumn(deploy_on_push),
      watch_paths: jsonColumn(watch_paths),
      volumes: jsonColumn(volumes),
      members: jsonColumn(members),
      domains: jsonColumn(domains),
      cors_origins: jsonColumn(cors_origins),
      requires: jsonColumn(requires),
      submodules: flagColumn(submodules),
      git_lfs: flagColumn(git_lfs),
      build_args: jsonColumn(build_args),
      env: jsonColumn(env),
      datasets: jsonColumn(datasets),
    }),
  };
}

/** Returns the id and members of a project, for access checks. */
export const guardedOf = ({ id, members }: Pick<Row<'projects'>, 'id' | 'members'>): Guarded => ({
  id,
  members: JSON.parse(members) as Guarded['members'],
});

export const projectOf = ({ auth_epoch: _, ...row }: Row<'projects'>): ProjectRecord => ({
  ...row,
  auth_required: row.auth_required !== 0,
  deploy_on_push: row.deploy_on_push !== 0,
  watch_paths: JSON.parse(row.watch_paths) as ProjectRecord['watch_paths'],
  volumes: JSON.parse(row.volumes) as ProjectRecord['volumes'],
  deletes_volumes: row.deletes_volumes !== 0,
  members: JSON.parse(row.members) as ProjectRecord['members'],
  domains: JSON.parse(row.domains) as ProjectRecord['domains'],
  cors_origins: JSON.parse(row.cors_origins) as ProjectRecord['cors_origins'],
  requires: JSON.parse(row.requires) as ProjectRecord['requires'],
  replace_set: row.replace_set !== 0,
  submodules: row.submodules !== 0,
  git_lfs: row.git_lfs !== 0,
  build_args: JSON.parse(row.build_args) as ProjectRecord['build_args'],
  env: JSON.parse(row.env) as ProjectRecord['env'],
  datasets: JSON.parse(row.datasets) as ProjectRecord['datasets'],
  replace: row.replace as ProjectRecord['replace'],
  on_dataset_change: row.on_dataset_change as ProjectRecord['on_dataset_change'],
});
