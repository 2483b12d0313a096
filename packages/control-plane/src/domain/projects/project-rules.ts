/**
 * Checks the rules for a project that its schema cannot express. Returns all violated rules
 * together, each with its field. Pure.
 */
import { whyOnlyOne } from '@berth/wire/can';
import {
  hasWeb,
  type Process,
  PROJECT_DEFAULTS,
  type ProjectCreate,
  WEB,
} from '@berth/wire/project';
import type { ReplaceMode } from '@berth/wire/vocabulary';
import { buildArgProblems } from '@berth/wire/build-arg-rules';
import { envSizeProblems } from './env.ts';
import { originProblems } from '../routes/cors-origins.ts';
import { type DomainRules, domainProblems, punycodeProblem } from '../routes/domains.ts';
import type { FieldProblem } from '../platform/errors.ts';
import { branchProblem } from '../git/git-ref.ts';
import { type GitUrlRules, gitUrlProblem } from '../git/git-url.ts';
import { isStopFirst, volumeProblems } from '../data/volumes.ts';
import { mountPathOf, overlap } from '../data/mounts.ts';
import {
  healthPathProblem,
  mountPathProblem,
  repoFolderProblem,
  repoPathProblem,
  watchPathProblem,
} from '@berth/wire/path-rules';
import type { ProjectSettings } from '../platform/records.ts';

export type ProjectRules = GitUrlRules &
  DomainRules & {
    /** True if AUTH_SERVICE_URL is set, so that logins are possible. */
    hasLogin: boolean;
    /** Domain prefixes that the platform uses itself. */
    reservedPrefixes: readonly string[];
    /** Returns the name of a dataset, or null if no dataset has this id. */
    datasetName: (id: string) => string | null;
  };

type Settings = Omit<ProjectSettings, 'replace'> & { replace: ReplaceMode };

/**
 * Adds the defaults. The default of `replace` depends on the datasets and volumes
 * (docs/interfaces.md "Project").
 */
export function settingsOf(input: ProjectCreate): Settings {
  const { name: _, ...given } = input;
  const datasets = given.datasets ?? [];
  const volumes = given.volumes ?? [];
  const replace = given.replace ?? (isStopFirst({ datasets, volumes }) ? 'recreate' : 'rolling');
  return {
    ...PROJECT_DEFAULTS,
    ...given,
    env: given.env ?? {},
    build_args: given.build_args ?? {},
    watch_paths: given.watch_paths ?? [],
    members: given.members ?? [],
    requires: given.requires ?? {},
    domains: given.domains ?? [],
    cors_origins: given.cors_origins ?? [],
    processes: given.processes ?? [...PROJECT_DEFAULTS.processes],
    datasets,
    volumes,
    replace,
  };
}

/** Returns the problem of two mounts with equal or nested paths. */
const overlapProblem = (field: string, path: string, other: string): FieldProblem =>
  path === other
    ? { field, rule: 'unique', message: `two datasets cannot be mounted at one path (${path})` }
    : {
        field,
        rule: 'nested',
        message: `${path} and ${other}: one would be mounted inside the other`,
      };

/** Checks the fields in `changed`. `settings` are the settings with the change applied. */
export function projectProblems(
  changed: Partial<ProjectSettings> & { name?: string },
  settings: ProjectSettings & { on_node_lost_set?: boolean },
  rules: ProjectRules,
): FieldProblem[] {
  const problems: (FieldProblem | null)[] = [];
  if (changed.name !== undefined) problems.push(nameProblem(changed.name));
  if (changed.domain_prefix !== undefined)
    problems.push(...prefixProblems(changed.domain_prefix, rules));
  // After a prefix change, a listed domain can equal the project's own host.
  if (changed.domains !== undefined || changed.domain_prefix !== undefined)
    problems.push(...domainProblems(settings.domains, settings.domain_prefix, rules));
  if (changed.git_url !== undefined) problems.push(gitUrlProblem(changed.git_url, rules));
  if (changed.branch !== undefined) problems.push(branchProblem(changed.branch));
  if (changed.dockerfile_path !== undefined)
    problems.push(repoPathProblem(changed.dockerfile_path, 'dockerfile_path'));
  if (changed.build_context !== undefined)
    problems.push(repoFolderProblem(changed.build_context, 'build_context'));
  if (changed.build_args !== undefined) problems.push(...buildArgProblems(changed.build_args));
  if (changed.health_path !== undefined && changed.health_path !== null)
    problems.push(healthPathProblem(changed.health_path, 'health_path'));
  if (changed.auth_required === true && !rules.hasLogin) problems.push(NO_LOGIN);
  if (changed.watch_paths !== undefined)
    problems.push(
      ...changed.watch_paths.map((path, i) => watchPathProblem(path, `watch_paths[${i}]`)),
    );
  if (changed.cors_origins !== undefined) problems.push(...originProblems(changed.cors_origins));
  if (changed.members !== undefined) problems.push(...memberProblems(changed.members));
  if (changed.env !== undefined)
    problems.push(...envProblems(changed.env), ...envSizeProblems(changed.env));
  if (changed.datasets !== undefined) problems.push(...datasetProblems(changed.datasets, rules));
  if (changed.volumes !== undefined || changed.datasets !== undefined)
    problems.push(...volumeProblems(settings));
  if (
    changed.datasets !== undefined ||
    changed.volumes !== undefined ||
    changed.replace !== undefined
  )
    problems.push(replaceProblem(settings));
  if (
    changed.processes !== undefined ||
    changed.requires !== undefined ||
    changed.datasets !== undefined ||
    changed.volumes !== undefined
  )
    problems.push(...processProblems(settings));
  if (
    changed.on_node_lost !== undefined ||
    changed.datasets !== undefined ||
    changed.volumes !== undefined
  )
    problems.push(
      onNodeLostProblem({
        ...settings,
        on_node_lost_set: changed.on_node_lost !== undefined || settings.on_node_lost_set === true,
      }),
    );
  return problems.filter((p) => p !== null);
}

export function processProblems(
  settings: Pick<ProjectSettings, 'processes' | 'datasets' | 'volumes' | 'requires'>,
): FieldProblem[] {
  const writes = whyOnlyOne(settings);
  return [
    ...(hasWeb(settings) || writes === null
      ? []
      : [
          {
            field: 'processes',
            rule: 'web',
            message: `must have the process “web” while ${writes}: all processes run on its node`,
          },
        ]),
    ...settings.processes.flatMap((process, i) =>
      rulesOfProcess(settings, process, i).flatMap(({ isBroken, name, rule, message }) =>
        isBroken ? [{ field: `processes[${i}].${name}`, rule, message }] : [],
      ),
    ),
  ];
}

type Rule = { isBroken: boolean; name: keyof Process; rule: string; message: string };

function rulesOfProcess(
  settings: Pick<ProjectSettings, 'processes' | 'datasets' | 'volumes' | 'requires'>,
  { name, count = 1, replace = null, health_path = null }: Process,
  i: number,
): Rule[] {
  const writes = whyOnlyOne(settings);
  const isWeb = name === WEB;
  const path = health_path === null ? null : healthPathProblem(health_path, 'health_path');
  return [
    {
      isBroken: settings.processes.findIndex((other) => other.name === name) < i,
      name: 'name',
      rule: 'unique',
      message: 'this process is listed twice',
    },
    {
      isBroken: count > 1 && writes !== null,
      name: 'count',
      rule: 'single_writer',
      message: `must be at most 1 while ${writes}: two instances would write at once`,
    },
    {
      isBroken: replace === 'rolling' && isStopFirst(settings),
      name: 'replace',
      rule: 'single_writer',
      message: `must be “recreate” while ${writes}: with “rolling” two versions would write at once`,
    },
    {
      isBroken: !isWeb && health_path !== null,
      name: 'health_path',
      rule: 'web',
      message: 'only “web” serves HTTP; remove it',
    },
    {
      isBroken: path !== null,
      name: 'health_path',
      rule: path?.rule ?? '',
      message: path?.message ?? '',
    },
  ];
}

/**
 * Checks `on_node_lost` against the mounts. Reports only a `move` that a person set. The default
 * `move` is allowed for a project that writes, and its instance then waits. The store checks this
 * rule again, as it does `replaceProblem`.
 */
export const onNodeLostProblem = (
  settings: Pick<ProjectSettings, 'on_node_lost' | 'datasets' | 'volumes'> & {
    on_node_lost_set: boolean;
  },
): FieldProblem | null => {
  const writes = whyOnlyOne(settings);
  return settings.on_node_lost_set && settings.on_node_lost === 'move' && writes !== null
    ? {
        field: 'on_node_lost',
        rule: 'single_writer',
        message: `must be “wait” while ${writes}: the silent machine may still write`,
      }
    : null;
};

const memberProblems = (members: ProjectSettings['members']): FieldProblem[] =>
  members.flatMap(({ user_id }, i) =>
    members.findIndex((other) => other.user_id === user_id) < i
      ? [{ field: `members[${i}].user_id`, rule: 'unique', message: 'this user is listed twice' }]
      : [],
  );

const NO_LOGIN: FieldProblem = {
  field: 'auth_required',
  rule: 'auth_service',
  message:
    'requires AUTH_SERVICE_URL to be set; without it the proxy cannot check a login, so the ' +
    'project could not be published',
};

/**
 * Checks the name. Project `x` has the routers `x` and `x-http`, so a project name must not end
 * with `-http`.
 */
const nameProblem = (name: string): FieldProblem | null => {
  // The dashboard uses this path for the page that creates a project.
  if (name === 'new')
    return {
      field: 'name',
      rule: 'reserved',
      message: 'must not be “new”, which is an address of the dashboard',
    };
  return name.endsWith('-http') || name.startsWith('berth-marker')
    ? {
        field: 'name',
        rule: 'reserved',
        message:
          'must not end with “-http” or begin with “berth-marker”; Berth uses these names for ' +
          'its own routers',
      }
    : null;
};

function prefixProblems(prefix: string, rules: ProjectRules): (FieldProblem | null)[] {
  const host = `${prefix}.${rules.baseDomain}`;
  const punycode = punycodeProblem(prefix);
  return [
    punycode === null ? null : { field: 'domain_prefix', ...punycode },
    rules.reservedPrefixes.includes(prefix)
      ? {
          field: 'domain_prefix',
          rule: 'reserved',
          message: `“${host}” is reserved for the platform`,
        }
      : null,
    host.length > 253
      ? {
          field: 'domain_prefix',
          rule: 'host_length',
          message: `“${host}” would be longer than 253 characters`,
        }
      : null,
  ];
}

function envProblems(env: Record<string, string>): FieldProblem[] {
  return Object.keys(env)
    .filter((name) => name.length > 200)
    .map((name) => ({
      field: `env.${name.slice(0, 40)}…`,
      rule: 'max_length',
      message: 'the name must not be longer than 200 characters',
    }));
}

function datasetProblems(
  datasets: ProjectSettings['datasets'],
  rules: ProjectRules,
): (FieldProblem | null)[] {
  const ids = new Set<string>();
  const taken: string[] = [];
  return datasets.flatMap((use, i) => {
    const at = `datasets[${i}]`;
    const name = rules.datasetName(use.dataset_id);
    const isGiven = use.mount_path !== undefined;
    const path = mountPathOf(use, name ?? use.dataset_id);
    const other = taken.find((t) => overlap(t, path));
    const useProblems = [
      name === null
        ? { field: `${at}.dataset_id`, rule: 'exists', message: 'there is no dataset with this id' }
        : null,
      ids.has(use.dataset_id)
        ? { field: `${at}.dataset_id`, rule: 'unique', message: 'this dataset is listed twice' }
        : null,
      use.mount_path === undefined ? null : mountPathProblem(use.mount_path, `${at}.mount_path`),
      other === undefined || (ids.has(use.dataset_id) && !isGiven)
        ? null
        : overlapProblem(`${at}.mount_path`, path, other),
    ];
    ids.add(use.dataset_id);
    taken.push(path);
    return useProblems;
  });
}

/**
 * Checks `replace` against the mounts. The store checks this rule again, because two concurrent
 * changes can each be valid alone.
 */
export const replaceProblem = (
  settings: Pick<ProjectSettings, 'replace' | 'datasets' | 'volumes'>,
): FieldProblem | null =>
  settings.replace === 'rolling' && isStopFirst(settings)
    ? {
        field: 'replace',
        rule: 'single_writer',
        message: `must be “recreate” while ${
          settings.volumes.length > 0 ? 'the project has volumes' : 'a dataset is mounted readwrite'
        }: with “rolling” two versions would write at once`,
      }
    : null;
