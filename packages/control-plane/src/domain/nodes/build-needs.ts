/** Lists the needs of a task that go beyond the contract of agents. Pure. */
import { CAN_CONFIG_FILE, CAN_INSTANCES, CAN_PROCESSES } from '@berth/wire/task';
import { defined } from '@berth/kit/defined';
import { BUILD_SETTINGS, GIT_ACCESS, GIT_LFS } from '@berth/wire/git';
import { CAN_DEVICES } from '@berth/wire/machine';
import { PROJECT_DEFAULTS } from '@berth/wire/project';
import type { BuildPayload } from '@berth/wire/task';
import { mayUse, remoteOf } from '../git/git-token.ts';
import type { DeploymentRecord, NodeRecord, ProjectSettings } from '../platform/records.ts';
import type { AgentCannot } from './refusal.ts';

export type Need = {
  /** Required capability; null: every agent of Berth can do it, a contract-only agent cannot. */
  capability: string | null;
  /** Completes the sentence “the agent cannot …”. */
  what: string;
  /** Completes the sentence “it …”, for an agent of Berth. */
  because?: string;
};

/** Whether a project has a deploy key, and the host of its git token. */
export type GitCredentials = { deployKey: boolean; tokenHost: string | null };

/** Returns the build settings that differ from the defaults, as fields of a build payload. */
export function buildSettings(
  settings: ProjectSettings,
): Pick<BuildPayload, 'build_context' | 'build_target' | 'build_args' | 'submodules' | 'git_lfs'> {
  const { build_context, build_target, build_args, submodules, git_lfs } = settings;
  return {
    ...defined({
      build_context: isRoot(build_context) ? undefined : build_context,
      build_target: build_target === PROJECT_DEFAULTS.build_target ? undefined : build_target,
      build_args: Object.keys(build_args).length === 0 ? undefined : build_args,
      submodules: submodules ? undefined : submodules,
      git_lfs: git_lfs ? git_lfs : undefined,
    }),
  };
}
const isRoot = (folder: string): boolean =>
  folder.split('/').every((part) => part === '' || part === '.');

export function needsOf(
  settings: ProjectSettings,
  { deployKey, tokenHost }: GitCredentials,
): Need[] {
  const names = Object.keys(buildSettings(settings)).filter((name) => name !== 'git_lfs');
  return [
    ...(deployKey && remoteOf(settings.git_url).scheme === 'ssh'
      ? [{ capability: GIT_ACCESS, what: 'use the deploy key of the project' }]
      : []),
    ...(tokenHost !== null && mayUse(tokenHost, settings.git_url)
      ? [{ capability: GIT_ACCESS, what: 'use the git token of the project' }]
      : []),
    ...(settings.git_lfs ? [{ capability: GIT_LFS, what: 'fetch Git LFS files' }] : []),
    ...(names.length === 0
      ? []
      : [{ capability: BUILD_SETTINGS, what: `apply ${names.join(', ')}` }]),
  ];
}

const shortOf = (commit: string): string => commit.slice(0, 12);

/**
 * Returns the needs of a requested commit. A contract-only builder always builds the tip of the
 * branch. The commit of a push is usually that tip, but a commit that a person chose might not be.
 */
export const commitNeeds = ({
  requested_commit,
  trigger,
}: Pick<DeploymentRecord, 'requested_commit' | 'trigger'>): Need[] =>
  requested_commit === null || trigger === 'hook'
    ? []
    : [
        {
          capability: null,
          what: `build commit ${shortOf(requested_commit)} instead of the tip of the branch`,
        },
      ];

/**
 * Returns the needs of resource limits, which protect the other containers of a node. A
 * contract-only agent applies no limits.
 */
export function limitNeeds({
  memory_bytes,
  cpus,
}: Pick<ProjectSettings, 'memory_bytes' | 'cpus'>): Need[] {
  const names = [
    ...(memory_bytes === null ? [] : ['memory_bytes']),
    ...(cpus === null ? [] : ['cpus']),
  ];
  return names.length === 0 ? [] : [{ capability: null, what: `apply ${names.join(' and ')}` }];
}

/** Returns the needs of the devices that the project requires. */
export function deviceNeeds({ requires }: Pick<ProjectSettings, 'requires'>): Need[] {
  const kinds = Object.keys(requires.devices ?? {});
  return kinds.length === 0
    ? []
    : [{ capability: CAN_DEVICES, what: `pass ${kinds.join(' and ')} to a container` }];
}

/**
 * Returns the needs of a project whose serving version has settings from berth.toml. Without the
 * file, the next version would lose them.
 */
export const configNeeds = (
  running: Pick<DeploymentRecord, 'config' | 'generation'> | undefined,
): Need[] => {
  const config = running?.config ?? null;
  return config === null
    ? []
    : [
        {
          capability: CAN_CONFIG_FILE,
          what: `read ${config.file}, which sets ${config.keys.join(', ')}`,
        },
      ];
};

/** Returns whether the builder does not read berth.toml. */
const readsNoFile = ({ capabilities }: Pick<NodeRecord, 'capabilities'>): boolean =>
  capabilities?.includes(CAN_CONFIG_FILE) !== true;

/**
 * Returns how the build of a builder with an agent of an earlier version differs from the request;
 * null: no difference.
 */
export const builtEarlier = (
  builder: Pick<NodeRecord, 'agent_version' | 'capabilities' | 'hostname'>,
): string | null =>
  builder.agent_version !== null && readsNoFile(builder)
    ? `the agent of ${builder.hostname} is of an earlier version: it does not read berth.toml, so ` +
      'the settings of the project apply; update it'
    : null;

/**
 * Returns how the build of a contract-only builder differs from the request, for the story; null:
 * no difference.
 */
export function builtOtherwise({
  settings,
  requested_commit,
}: Pick<DeploymentRecord, 'settings' | 'requested_commit'>): string | null {
  const parts = [
    ...(requested_commit === null
      ? []
      : [
          `builds the tip of branch ${settings.branch}, which need not be commit ` +
            shortOf(requested_commit),
        ]),
    ...(settings.submodules ? ['need not fetch submodules'] : []),
    'does not read berth.toml, so the settings of the project apply',
  ];
  return parts.length === 0 ? null : parts.join(', and ');
}

/** The need of a further instance: its own name and label. */
export const instanceNeed: Need = { capability: CAN_INSTANCES, what: 'run a second instance' };

/** The need of a process: a command of its own, or a container without a port. */
export const processNeed = (name: string): Need => ({
  capability: CAN_PROCESSES,
  what: `run the process ${name}`,
});

/** Settings that a contract-only agent ignores. The container runs without them. */
const UNKNOWN_TO_CONTRACT = [
  'health_path',
  'start_seconds',
  'drain_seconds',
  'stop_grace_seconds',
] as const satisfies readonly (keyof ProjectSettings)[];

/** Returns the settings that a contract-only agent ignores and whose value is not the default. */
export const ignoredSettings = (settings: ProjectSettings): string[] =>
  UNKNOWN_TO_CONTRACT.filter((name) => settings[name] !== PROJECT_DEFAULTS[name]);

/** Returns the needs that the agent of the node cannot meet, or null if it meets all. */
export function lack(
  node: Pick<NodeRecord, 'agent_version' | 'capabilities'>,
  needs: readonly Need[],
): AgentCannot | null {
  const isContractOnly = node.agent_version === null;
  const missing = needs.filter(({ capability }) =>
    capability === null ? isContractOnly : node.capabilities?.includes(capability) !== true,
  );
  if (missing.length === 0) return null;
  const because = isContractOnly
    ? 'implements only the contract'
    : (missing[0]?.because ?? 'is of an earlier version; update it');
  return { kind: 'agent_cannot', needs: missing.map(({ what }) => what), because };
}
