import type { Guarded } from '../../domain/identity/access.ts';
import type { ProjectRecord, ProjectSettings } from '../../domain/platform/records.ts';
import type { NewRow, Row } from '../engine/tables.ts';

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
  ...plain
}: Partial<ProjectSettings>): Partial<SettingColumns> {
  return {
    ...plain,
    ...(auth_required === undefined ? {} : { auth_required: Number(auth_required) }),
    ...(deploy_on_push === undefined ? {} : { deploy_on_push: Number(deploy_on_push) }),
    ...(watch_paths === undefined ? {} : { watch_paths: JSON.stringify(watch_paths) }),
    ...(volumes === undefined ? {} : { volumes: JSON.stringify(volumes) }),
    ...(members === undefined ? {} : { members: JSON.stringify(members) }),
    ...(domains === undefined ? {} : { domains: JSON.stringify(domains) }),
    ...(cors_origins === undefined ? {} : { cors_origins: JSON.stringify(cors_origins) }),
    ...(submodules === undefined ? {} : { submodules: Number(submodules) }),
    ...(git_lfs === undefined ? {} : { git_lfs: Number(git_lfs) }),
    ...(build_args === undefined ? {} : { build_args: JSON.stringify(build_args) }),
    ...(env === undefined ? {} : { env: JSON.stringify(env) }),
    ...(datasets === undefined ? {} : { datasets: JSON.stringify(datasets) }),
  };
}

/** `members` without the other columns. */
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
  submodules: row.submodules !== 0,
  git_lfs: row.git_lfs !== 0,
  build_args: JSON.parse(row.build_args) as ProjectRecord['build_args'],
  env: JSON.parse(row.env) as ProjectRecord['env'],
  datasets: JSON.parse(row.datasets) as ProjectRecord['datasets'],
  replace: row.replace as ProjectRecord['replace'],
  on_dataset_change: row.on_dataset_change as ProjectRecord['on_dataset_change'],
});
