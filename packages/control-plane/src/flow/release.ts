/** Decides which settings a redeployed release keeps and which it takes from its project. Pure. */
import { defined } from '@berth/kit/defined';
import { can } from '@berth/wire/can';
import { ProjectPatch } from '@berth/wire/project';
import { DomainError } from '../domain/platform/errors.ts';
import { originText, withConfig } from '../domain/projects/config-file.ts';
import { withWeb } from '../domain/projects/processes.ts';
import type { Facts } from '../domain/deployments/facts.ts';
import { pathsOfRelease } from '../domain/data/mounts.ts';
import type {
  DeploymentRecord,
  ProjectRecord,
  ProjectSettings,
  RolledBack,
} from '../domain/platform/records.ts';
import { digestOf, stableJson } from '../domain/platform/stable-json.ts';

/**
 * Settings for which every release, even an old one, uses the project's current value.
 * `auth_required` is included because a rollback must not publish a project that requires a login.
 * Only PATCH decides who can see a project.
 */
const AT_ONCE = [
  'auth_required',
  'on_dataset_change',
  'data_copies',
  'deploy_on_push',
  'watch_paths',
  'members',
  'domains',
  'cors_origins',
  'spread',
  'sticky',
  'on_node_lost',
  'allow_exec',
  'exec_role',
] as const satisfies readonly (keyof ProjectSettings)[];
const isAtOnce = (name: keyof ProjectSettings): boolean =>
  (AT_ONCE as readonly string[]).includes(name);

/**
 * Returns only the settings of a project. A row can have other columns, which a later version of
 * Berth added.
 */
export const settingsOfProject = (project: ProjectRecord): ProjectSettings =>
  Object.fromEntries(
    Object.keys(ProjectPatch.properties).map((name) => [
      name,
      project[name as keyof ProjectSettings],
    ]),
  ) as ProjectSettings;

/** Counts take effect at once, so a release takes those of the project. */
const withCounts = (
  processes: ProjectSettings['processes'],
  present: ProjectSettings['processes'],
): ProjectSettings['processes'] =>
  processes.map((one) => ({
    ...one,
    ...defined({ count: present.find(({ name }) => name === one.name)?.count ?? one.count }),
  }));

/** Returns a setting without the parts that take effect at once. */
const deployedPart = (name: keyof ProjectSettings, value: unknown): unknown =>
  name === 'processes'
    ? (value as ProjectSettings['processes']).map(({ count: _, ...one }) => one)
    : value;

/** Returns the settings of the release with the mount paths that it had. */
const settingsOfRelease = ({ settings, datasets }: DeploymentRecord): ProjectSettings => ({
  ...settings,
  datasets: pathsOfRelease(settings.datasets, datasets),
});

/**
 * Returns the project's settings for a deployment from source, and the release's own settings for a
 * release.
 */
export function settingsFor(
  project: ProjectRecord,
  release: DeploymentRecord | null,
): ProjectSettings {
  const present = settingsOfProject(project);
  if (release === null) return withWeb(present);
  const ofFile = release.config?.keys ?? [];
  const atOnce = Object.fromEntries(
    AT_ONCE.filter((name) => !ofFile.includes(name)).map((name) => [name, present[name]]),
  ) as Partial<ProjectSettings>;
  const own = settingsOfRelease(release);
  return withWeb({ ...own, ...atOnce, processes: withCounts(own.processes, present.processes) });
}

/** Returns the names of the project settings that differ from those of the deployment. */
export const undeployedNames = (
  d: DeploymentRecord,
  project: ProjectRecord,
): (keyof ProjectSettings)[] => differingNames(settingsOfRelease(d), withConfig(project, d));

/**
 * Returns the names of the settings that need a deployment to take effect. A setting that a
 * rollback set aside counts only if it has changed since.
 */
export const namesToDeploy = (
  d: DeploymentRecord,
  project: ProjectRecord,
): (keyof ProjectSettings)[] =>
  undeployedNames(d, project).filter(
    (name) => d.rolled_back?.set_aside[name] !== digestOf(project[name]),
  );

type Rollback = {
  settings: ProjectSettings;
  release: DeploymentRecord;
  live: DeploymentRecord | null;
};
/**
 * Returns which deployment and settings the rollback sets aside. If the rollback redeploys the
 * serving release (for example away from a dead node), the record of that release stays. If no
 * deployment serves, or the rollback reverses an earlier rollback, the record of the target
 * applies.
 */
export function rolledBack(
  { settings, release, live }: Rollback,
  project: ProjectRecord,
): RolledBack | null {
  if (live?.id === release.id || live?.rollback_of === release.id) return live.rolled_back;
  if (live === null || live.rolled_back?.from === release.generation) return release.rolled_back;
  return {
    from: live.generation,
    set_aside: Object.fromEntries(
      differingNames(settings, withConfig(project, release)).map((name) => [
        name,
        digestOf(project[name]),
      ]),
    ),
  };
}

function differingNames(
  settings: ProjectSettings,
  stored: ProjectRecord,
): (keyof ProjectSettings)[] {
  const project = withWeb(stored);
  return (Object.keys(settings) as (keyof ProjectSettings)[]).filter(
    (name) =>
      !isAtOnce(name) &&
      stableJson(deployedPart(name, settings[name])) !==
        stableJson(deployedPart(name, project[name])),
  );
}

/** Returns story lines about settings of the release that differ from the project's. */
export function settingsLines(release: DeploymentRecord, project: ProjectRecord): string[] {
  const names = undeployedNames(release, project);
  const lines =
    names.length === 0
      ? []
      : [
          `uses the settings of deployment ${release.generation}; the project’s ` +
            `${names.join(', ')} changed since and ` +
            `${names.length === 1 ? 'takes' : 'take'} effect with the next deployment from source`,
        ];
  if (release.config !== null)
    lines.push(`keeps ${release.config.keys.join(', ')} from ${originText(release.config)}`);
  if (release.settings.auth_required !== project.auth_required)
    lines.push(
      `requires ${project.auth_required ? 'a' : 'no'} login, like the project now; deployment ` +
        `${release.generation} ${release.settings.auth_required ? 'required one' : 'did not'}`,
    );
  return lines;
}

/** Throws no_release if the release cannot be deployed again. */
export function refuseRelease(
  release: DeploymentRecord,
  { project, datasets, platform }: Facts,
): void {
  const { generation, status, settings } = release;
  if (release.project_id !== project.id)
    throw new DomainError('no_release', 'the deployment belongs to another project');
  if (!can('rollback_to', status) || release.image_tag === null)
    throw new DomainError(
      'no_release',
      `deployment ${generation} is ${status}: a rollback needs a deployment that ran`,
    );
  // A running release can still be redeployed without its image in the registry: its node might
  // have the image.
  if (status !== 'running' && (release.image_removed_at ?? null) !== null)
    throw new DomainError('no_release', imageGone(release));
  const gone = settings.datasets.filter((use) => !datasets.some((d) => d.id === use.dataset_id));
  const names = gone.map(
    ({ dataset_id }) =>
      release.datasets?.find((pin) => pin.dataset_id === dataset_id)?.name ?? dataset_id,
  );
  if (gone.length > 0)
    throw new DomainError(
      'no_release',
      `its ${gone.length === 1 ? 'dataset' : 'datasets'} ${names.join(', ')} was deleted`,
    );
  // A running deployment keeps its prefix, so that it can still move to another node.
  if (status !== 'running' && platform.reservedPrefixes.includes(settings.domain_prefix))
    throw new DomainError(
      'no_release',
      `its domain prefix ${settings.domain_prefix} is now a host of the platform itself`,
    );
}

function imageGone({
  generation,
  commit,
  image_removed_at,
  image_missing,
}: DeploymentRecord): string {
  const at = new Date(image_removed_at ?? 0).toISOString();
  const instead =
    commit === null ? 'deploy from source instead' : `deploy commit ${commit} instead`;
  if (image_missing === true)
    return (
      `the registry has lacked the image of deployment ${generation} since ${at}; each clean-up ` +
      `looks again; until then, ${instead}`
    );
  return (
    `the image of deployment ${generation} was removed from the registry at ${at} ` +
    `(KEEP_RELEASES); ${instead}`
  );
}
