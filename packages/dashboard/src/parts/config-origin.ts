/** Says which settings of a project come from berth.toml of its repository. */
import type { Project } from '@berth/wire/project';

/** Returns “from berth.toml at 3f2a91c”; null if the project or the job has nothing from a file. */
export const originText = ({
  config,
}: {
  config?: Pick<NonNullable<Project['config']>, 'file' | 'commit'> | null;
}): string | null => {
  if (config === null || config === undefined) return null;
  const at = config.commit === null ? '' : ` at ${config.commit.slice(0, 7)}`;
  return `from ${config.file}${at}`;
};

/**
 * Returns the origin of a field, such as `health_path` or `env.LOG_LEVEL`. For a field with names it
 * lists those of the file. Null: the field does not come from the file.
 */
export function originOf(project: Pick<Project, 'config'>, field: string): string | null {
  const keys = project.config?.keys ?? [];
  if (keys.includes(field)) return originText(project);
  const names = keys
    .filter((key) => key.startsWith(`${field}.`))
    .map((key) => key.slice(field.length + 1));
  return names.length === 0 ? null : `${names.join(', ')} ${originText(project)}`;
}
