/** Applies berth.toml to the settings of a release (docs/berth-toml.md). Pure. */
import {
  atKey,
  type FileJob,
  type FileSettings as SettingsOfFile,
  keysOf,
  parseBerthToml,
  problemsText,
} from '@berth/wire/berth-toml';
import { type ConfigOrigin, WEB } from '@berth/wire/project';
import type { ConfigFile } from '@berth/wire/task';
import { linesIn } from '@berth/wire/toml-lines';
import type { ProjectSettings } from '../platform/records.ts';
import { mergedEnv } from './env.ts';
import { withWeb } from './processes.ts';
import { type ProjectRules, projectProblems } from './project-rules.ts';

/** The jobs of a file are no settings of the project. */
type FileSettings = Omit<SettingsOfFile, 'jobs'>;

/** A file cannot set the fields to which these rules belong. */
const NO_RULES: ProjectRules = {
  allowedHosts: [],
  baseDomain: '',
  ownHosts: [],
  hasLogin: true,
  reservedPrefixes: [],
  datasetName: () => null,
};

export type Applied =
  | { settings: ProjectSettings; keys: string[]; jobs: readonly FileJob[] }
  | { problem: string };

/**
 * Returns the settings with the values of the file, which win, or why the file is refused.
 * `secrets`: names of the project's secrets.
 */
export function applyConfigFile(
  { file, text }: ConfigFile,
  settings: ProjectSettings,
  secrets: readonly string[],
): Applied {
  const parsed = parseBerthToml(text);
  if ('problems' in parsed) return { problem: problemsText(file, parsed.problems) };
  const { jobs = [], ...ofFile } = parsed.settings;
  const merged = withFile(settings, ofFile);
  const lineOf = linesIn(text);
  const problems = [
    ...projectProblems(changedBy(ofFile, merged), merged, NO_RULES),
    ...secretProblems(ofFile, secrets),
  ].map(({ field, ...problem }) => atKey(lineOf, keyOf(field, merged), problem));
  return problems.length > 0
    ? { problem: problemsText(file, problems) }
    : { settings: withWeb(merged), keys: keysOf(parsed.settings), jobs };
}

/** Returns the key in the file: a process has its name there, and its place in the project. */
const keyOf = (field: string, { processes }: ProjectSettings): string =>
  field.replace(/^processes\[(\d+)\]/, (_, i: string) => `processes.${processes[Number(i)]?.name}`);

/**
 * The file replaces all processes but `web`, to which it adds. If neither the project nor the file
 * has `web`, the release has none.
 */
function processesWith(
  own: ProjectSettings['processes'],
  file: NonNullable<FileSettings['processes']>,
): ProjectSettings['processes'] {
  const isWeb = ({ name }: { name: string }): boolean => name === WEB;
  const web = [own.find(isWeb), file.find(isWeb)].filter((one) => one !== undefined);
  const others = file.filter((one) => !isWeb(one));
  return web.length === 0 ? others : [Object.assign({ name: WEB }, ...web), ...others];
}

const withFile = (settings: ProjectSettings, file: FileSettings): ProjectSettings => ({
  ...settings,
  ...file,
  processes:
    file.processes === undefined
      ? settings.processes
      : processesWith(settings.processes, file.processes),
  env: mergedEnv(settings.env, file.env ?? {}),
  build_args: mergedEnv(settings.build_args, file.build_args ?? {}),
});

/** Returns the fields that the file sets, with their merged values. */
const changedBy = (file: FileSettings, merged: ProjectSettings): Partial<ProjectSettings> =>
  Object.fromEntries(
    (Object.keys(file) as (keyof FileSettings)[]).map((name) => [name, merged[name]]),
  );

const secretProblems = (
  { env = {} }: FileSettings,
  secrets: readonly string[],
): { field: string; rule: string; message: string }[] =>
  Object.keys(env)
    .filter((name) => secrets.includes(name))
    .map((name) => ({
      field: `env.${name}`,
      rule: 'secret',
      message: 'is also a secret of the project: delete the secret, or remove this line',
    }));

/** Returns the field and, for a variable, its name. */
function fieldOf(key: string): { field: keyof FileSettings; name: string | null } {
  const dot = key.indexOf('.');
  const field = (dot === -1 ? key : key.slice(0, dot)) as keyof FileSettings;
  return { field, name: dot === -1 ? null : key.slice(dot + 1) };
}

/**
 * Returns the project's settings with the values that a release has from its file: the settings
 * that hold now.
 */
export function withConfig<T extends ProjectSettings>(
  project: T,
  release: { config: ConfigOrigin | null; settings: ProjectSettings } | null,
): T {
  if (release === null || release.config === null) return project;
  let result = project;
  for (const { field, name } of release.config.keys.map(fieldOf)) {
    if (name === null) result = { ...result, [field]: release.settings[field] };
    else if (field === 'env' || field === 'build_args') {
      const value = release.settings[field][name];
      if (value !== undefined) result = { ...result, [field]: { ...result[field], [name]: value } };
    }
  }
  return result;
}

/**
 * Returns the names in a change that the file sets to another value. A change to the value of the
 * file changes nothing.
 */
export function setByFile(
  changed: { readonly [K in keyof ProjectSettings]?: unknown },
  { config, settings }: { config: ConfigOrigin; settings: ProjectSettings },
  isSame: (a: unknown, b: unknown) => boolean,
): string[] {
  return config.keys.filter((key) => {
    const { field, name } = fieldOf(key);
    const value = changed[field];
    if (value === undefined) return false;
    if (field === 'processes') return !isSame(withoutCounts(value), withoutCounts(settings[field]));
    if (name === null) return !isSame(value, settings[field]);
    const of = (map: unknown): unknown => (map as Record<string, unknown>)[name];
    return Object.hasOwn(value as object, name) && !isSame(of(value), of(settings[field]));
  });
}

/** A count takes effect at once, so the file does not set it. */
const withoutCounts = (processes: unknown): unknown =>
  (processes as ProjectSettings['processes']).map(({ count: _, ...one }) => one);

/** Returns the first characters of a commit. */
export const originText = ({ file, commit }: Pick<ConfigOrigin, 'file' | 'commit'>): string =>
  commit === null ? file : `${file} at ${commit.slice(0, 7)}`;
