/** What a deployment takes from a release that it deploys once more, and what it takes from its project. Pure. */
import { can } from '@berth/wire/can';
import { DomainError } from '../domain/errors.ts';
import type { Facts } from '../domain/facts.ts';
import { pathsOfRelease } from '../domain/mounts.ts';
import type { DeploymentRecord, ProjectRecord, ProjectSettings } from '../domain/records.ts';
import { stableJson } from '../domain/stable-json.ts';

/**
 * The project's present value counts, whatever was set when a deployment was requested. `auth_required` is among them because it
 * protects: a rollback must not publish a project that requires a login, and PATCH alone decides who may see it.
 */
const AT_ONCE: readonly (keyof ProjectSettings)[] = ['auth_required', 'on_dataset_change'];

const settingsOfProject = ({
  id: _id,
  name: _name,
  flow_version: _version,
  last_generation: _generation,
  deleting_at: _deleting,
  created_at: _created,
  updated_at: _updated,
  ...settings
}: ProjectRecord): ProjectSettings => settings;

/** With the mount paths that it really had. */
const settingsOfRelease = ({ settings, datasets }: DeploymentRecord): ProjectSettings => ({
  ...settings,
  datasets: pathsOfRelease(settings.datasets, datasets),
});

/** A deployment from source takes the project's settings; a release keeps its own. */
export function settingsFor(project: ProjectRecord, release: DeploymentRecord | null): ProjectSettings {
  const present = settingsOfProject(project);
  if (release === null) return present;
  return { ...settingsOfRelease(release), auth_required: present.auth_required, on_dataset_change: present.on_dataset_change };
}

/** Settings of the project that are not those that the deployment runs with, by name. */
export function undeployedNames(d: DeploymentRecord, project: ProjectRecord): (keyof ProjectSettings)[] {
  const settings = settingsOfRelease(d);
  return (Object.keys(settings) as (keyof ProjectSettings)[]).filter(
    (name) => !AT_ONCE.includes(name) && stableJson(settings[name]) !== stableJson(project[name]),
  );
}

/** Lines of the story that say where the settings come from; none where the project's are the same. */
export function tellSettings(release: DeploymentRecord, project: ProjectRecord): string[] {
  const names = undeployedNames(release, project);
  const lines =
    names.length === 0
      ? []
      : [
          `it has the settings of deployment ${release.generation}; the project’s ${names.join(', ')} ` +
            `${names.length === 1 ? 'is another' : 'are others'} now and ${names.length === 1 ? 'takes' : 'take'} effect with the next deployment from source`,
        ];
  if (release.settings.auth_required !== project.auth_required)
    lines.push(
      `it requires ${project.auth_required ? 'a' : 'no'} login, as the project does now, whatever deployment ${release.generation} had`,
    );
  return lines;
}

/** Throws no_release. */
export function refuseRelease(release: DeploymentRecord, { project, datasets, platform }: Facts): void {
  const { generation, status, settings } = release;
  if (release.project_id !== project.id) throw new DomainError('no_release', 'the deployment belongs to another project');
  if (!can('rollback_to', status) || release.image_tag === null)
    throw new DomainError('no_release', `deployment ${generation} is ${status}: a rollback needs a deployment that ran`);
  const gone = settings.datasets.filter((use) => !datasets.some((d) => d.id === use.dataset_id));
  const names = gone.map(({ dataset_id }) => release.datasets?.find((pin) => pin.dataset_id === dataset_id)?.name ?? dataset_id);
  if (gone.length > 0)
    throw new DomainError('no_release', `its ${gone.length === 1 ? 'dataset' : 'datasets'} ${names.join(', ')} was deleted`);
  // What runs under such a name already is not stopped from being moved.
  if (status !== 'running' && platform.reservedPrefixes.includes(settings.domain_prefix))
    throw new DomainError('no_release', `its domain prefix ${settings.domain_prefix} is now a host of the platform itself`);
}
