/** The processes of a project: limits, start rules and counts (docs/processes.md). Pure. */
import { type ConfigOrigin, type Process, PROJECT_DEFAULTS, WEB } from '@berth/wire/project';
import { defined } from '@berth/kit/defined';
import type { ReplaceMode } from '@berth/wire/vocabulary';
import type { ProjectSettings } from '../platform/records.ts';

type WithProcesses = Pick<ProjectSettings, 'processes'>;

/** Returns the processes without HTTP. */
export const workersIn = ({ processes }: WithProcesses): Process[] =>
  processes.filter(({ name }) => name !== WEB);

export const processIn = ({ processes }: WithProcesses, name: string): Process | undefined =>
  processes.find((one) => one.name === name);

/** Processes and the counts that people set, by name of the process. */
export type Counted = WithProcesses & { scaled: Readonly<Record<string, number>> };

/** A release: its processes can come from a file of the repository. */
type Release = { config: Pick<ConfigOrigin, 'keys'> | null };

/**
 * Returns how many instances of a process of a release should run: as many as a person set, else as
 * the list of the project says, else as the file of the release says.
 */
export function countIn(
  project: Counted,
  { name, count = 1 }: Process,
  { config }: Release,
): number {
  const listed = processIn(project, name)?.count;
  // Each project has `web` with this count from the beginning, so a file can say another first one.
  const isOfFile = config?.keys.includes('processes') === true;
  const isDefault = isOfFile && name === WEB && listed === 1;
  return project.scaled[name] ?? (isDefault ? count : (listed ?? count));
}

/**
 * Returns the counts that people set, after a change of the list. The count of `web` ends with it: a
 * project without `web` is not scaled to 0.
 */
export function scaledAfter(
  { scaled }: Pick<Counted, 'scaled'>,
  given: readonly Process[],
): Record<string, number> {
  const names = given.map(({ name }) => name);
  const kept = Object.entries(scaled).filter(([name]) => name !== WEB && !names.includes(name));
  const set = given.flatMap(({ name, count }) => (count === undefined ? [] : [[name, count]]));
  return Object.fromEntries([...kept, ...set]) as Record<string, number>;
}

/** Returns how instances of a process without HTTP are replaced. */
export const replaceOf = ({ replace }: Process): ReplaceMode => replace ?? 'recreate';

/**
 * Returns the settings with the start rule and the health path that `web` sets itself, in the fields
 * of the project that hold for it.
 */
export function withWeb<S extends ProjectSettings>(settings: S): S {
  const { replace, health_path } = processIn(settings, WEB) ?? {};
  return {
    ...settings,
    ...defined({ replace: replace ?? undefined, health_path: health_path ?? undefined }),
  };
}

type Limited = Pick<ProjectSettings, 'memory_bytes' | 'cpus' | 'processes'>;

/** Returns the settings with the limits of a process; a limit that it does not set is the project's. */
function withLimits<S extends Limited>(settings: S, process: Process | undefined): S {
  const { memory_bytes, cpus } = process ?? {};
  return {
    ...settings,
    memory_bytes: memory_bytes ?? settings.memory_bytes,
    cpus: cpus ?? settings.cpus,
  };
}

/** Returns the settings with the limits of the containers of `web`. */
export const webSettings = <S extends Limited>(settings: S): S =>
  withLimits(settings, processIn(settings, WEB));

/**
 * Returns the settings for a container without HTTP: the limits of its process. They list no `web`,
 * so that `webSettings` changes nothing.
 */
export const workerSettings = (settings: ProjectSettings, process: Process): ProjectSettings => ({
  ...withLimits(settings, process),
  health_path: PROJECT_DEFAULTS.health_path,
  processes: workersIn(settings),
});
