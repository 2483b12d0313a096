/** Lists what a task needs from the agent of its node, beyond the contract. Pure. */
import { BUILD_SETTINGS, GIT_ACCESS, GIT_LFS } from '@berth/wire/git';
import { PROJECT_DEFAULTS } from '@berth/wire/project';
import type { BuildPayload } from '@berth/wire/task';
import { mayUse, remoteOf } from './git-token.ts';
import type { NodeRecord, ProjectSettings } from './records.ts';

/** `what` completes the sentence “the agent cannot …”. `because` completes “it …”, for an agent that implements more than the contract. */
export type Need = { capability: string; what: string; because?: string };

/** The deploy key and the host of the git token of a project. */
export type GitCredentials = { deployKey: boolean; tokenHost: string | null };

/** The build settings that are not the defaults, as the payload of a build has them. */
export function buildSettings(
  settings: ProjectSettings,
): Pick<BuildPayload, 'build_context' | 'build_target' | 'build_args' | 'submodules' | 'git_lfs'> {
  const { build_context, build_target, build_args, submodules, git_lfs } = settings;
  return {
    ...(isRoot(build_context) ? {} : { build_context }),
    ...(build_target === PROJECT_DEFAULTS.build_target ? {} : { build_target }),
    ...(Object.keys(build_args).length === 0 ? {} : { build_args }),
    ...(submodules ? {} : { submodules }),
    ...(git_lfs ? { git_lfs } : {}),
  };
}
const isRoot = (folder: string): boolean => folder.split('/').every((part) => part === '' || part === '.');

export function needsOf(settings: ProjectSettings, { deployKey, tokenHost }: GitCredentials): Need[] {
  const names = Object.keys(buildSettings(settings)).filter((name) => name !== 'git_lfs');
  return [
    ...(deployKey && remoteOf(settings.git_url).scheme === 'ssh'
      ? [{ capability: GIT_ACCESS, what: 'use the deploy key of the project' }]
      : []),
    ...(tokenHost !== null && mayUse(tokenHost, settings.git_url)
      ? [{ capability: GIT_ACCESS, what: 'use the git token of the project' }]
      : []),
    ...(settings.git_lfs ? [{ capability: GIT_LFS, what: 'fetch Git LFS files' }] : []),
    ...(names.length === 0 ? [] : [{ capability: BUILD_SETTINGS, what: `apply ${names.join(', ')}` }]),
  ];
}

/** Returns what the agent of a node lacks, as a sentence; null if it lacks nothing. */
export function lack(node: Pick<NodeRecord, 'hostname' | 'agent_version' | 'capabilities'>, needs: readonly Need[]): string | null {
  const missing = needs.filter(({ capability }) => node.capabilities?.includes(capability) !== true);
  if (missing.length === 0) return null;
  const why = node.agent_version === null ? 'implements only the contract' : (missing[0]?.because ?? 'is of an earlier version; update it');
  return `its agent cannot ${missing.map(({ what }) => what).join(' or ')}: it ${why}`;
}
