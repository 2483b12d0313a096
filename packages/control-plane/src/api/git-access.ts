/**
 * Git access for agents: the access in the answer to a claim of a build, and the host keys that a
 * build reports.
 */
import { GIT_ACCESS, type GitAccess, type SeenHostKey } from '@berth/wire/git';
import type { LookPayload } from '@berth/wire/look';
import type { BuildPayload } from '@berth/wire/task';
import {
  BY_LOOK,
  hostName,
  PINNED,
  presented,
  type StoredKey,
  trustedKeys,
} from '../domain/git/git-hosts.ts';
import { isRepositoryLook, type RepositoryLookRecord } from '../domain/git/repository-looks.ts';
import { mayUse, remoteOf, usernameOf } from '../domain/git/git-token.ts';
import type { TaskRecord } from '../domain/platform/records.ts';
import type { Vault } from '../domain/secrets/vault.ts';
import type { DeployKeyStore, GitHostStore, GitTokenStore } from '../domain/git/git-stores.ts';
import type { NodeStore } from '../domain/nodes/node-store.ts';
import type { ProjectStore } from '../domain/projects/project-store.ts';
import type { TaskStore } from '../domain/deployments/task-store.ts';

export type AccessDeps = {
  projects: Pick<ProjectStore, 'getMany'>;
  nodes: Pick<NodeStore, 'standing'>;
  gitHosts: Pick<GitHostStore, 'all'>;
  deployKeys: Pick<DeployKeyStore, 'get'>;
  gitTokens: Pick<GitTokenStore, 'get'>;
  vault: Pick<Vault, 'open'>;
};
export type HostKeyDeps = {
  tasks: Pick<TaskStore, 'get'>;
  gitHosts: Pick<GitHostStore, 'change' | 'of'>;
  now: () => number;
};
export type HostKeysSeen = ReturnType<typeof createHostKeysSeen>;

/**
 * Returns null if the task needs no git, or if its agent cannot use the access. Throws
 * secrets_locked.
 */
export type GitAccessOf = (task: TaskRecord) => Promise<GitAccess | null>;

export function createGitAccess(deps: AccessDeps): GitAccessOf {
  /**
   * Returns the project whose credentials a `look` task can use; null if the project's git address
   * has changed since the request.
   */
  async function projectOf({
    payload: { project_id, git_url },
  }: RepositoryLookRecord): Promise<string | null> {
    const [project] = project_id === undefined ? [] : await deps.projects.getMany([project_id]);
    return project !== undefined && project.deleting_at === null && project.git_url === git_url
      ? project.id
      : null;
  }

  return async (task) => {
    if (task.kind !== 'build' && task.kind !== 'look') return null;
    const node = await deps.nodes.standing(task.node_id);
    if (node?.capabilities?.includes(GIT_ACCESS) !== true) return null;
    const { git_url } = task.payload as BuildPayload | LookPayload;
    const id = isRepositoryLook(task) ? await projectOf(task) : task.project_id;
    // A `look` task without a project gets the trusted host keys, but no key or token of any
    // project.
    if (id === null) return { hosts: hostsOf(await deps.gitHosts.all()) };
    const [stored, key, token] = await Promise.all([
      deps.gitHosts.all(),
      deps.deployKeys.get(id),
      deps.gitTokens.get(id),
    ]);
    const access: GitAccess = { hosts: hostsOf(stored) };
    // Send the deploy key for https too: a submodule might use ssh.
    if (key !== null)
      access.deploy_key = {
        private_key: (await deps.vault.open(id, 'deploy-key', key.sealed)).toString('utf8'),
        fingerprint: key.fingerprint,
      };
    if (token !== null && mayUse(token.host, git_url))
      access.token = {
        host: remoteOf(git_url).host,
        username: usernameOf(token.username, token.host),
        token: (await deps.vault.open(id, 'git-token', token.sealed)).toString('utf8'),
      };
    return access;
  };
}

/** Returns the trusted keys of all hosts, grouped by host. */
export function hostsOf(stored: readonly StoredKey[]): GitAccess['hosts'] {
  const byHost = keysByHost(stored);
  return [...byHost].flatMap(([host, keys]) => {
    const fingerprints = trustedKeys(host, keys).map((key) => key.fingerprint);
    return fingerprints.length === 0 ? [] : [{ host, fingerprints }];
  });
}

/** Groups keys by host. The hosts that Berth pins come first, even without stored keys. */
export function keysByHost(stored: readonly StoredKey[]): Map<string, StoredKey[]> {
  const byHost = new Map<string, StoredKey[]>(Object.keys(PINNED).map((host) => [host, []]));
  for (const key of stored) byHost.set(key.host, [...(byHost.get(key.host) ?? []), key]);
  return byHost;
}

/** Maximum number of hosts in one report: the repository and its submodules. */
const MAX_HOSTS_SEEN = 20;

/**
 * Records host keys that a builder saw, so that an admin can compare and trust them. For a `look`
 * task without a project, records only the keys of the host that it inspects.
 */
export function createHostKeysSeen({ tasks, gitHosts, now }: HostKeyDeps) {
  return async (taskId: string, keys: readonly SeenHostKey[]): Promise<void> => {
    if (keys.length === 0) return;
    const task = await tasks.get(taskId);
    const only = isRepositoryLook(task) ? sshHostOf(task.payload.git_url) : undefined;
    const by = isRepositoryLook(task) ? BY_LOOK : null;
    const all = [...new Set(keys.map((key) => hostName(key.host)))];
    const hosts = all
      .filter((host) => only === undefined || host === only)
      .slice(0, MAX_HOSTS_SEEN);
    for (const host of hosts) {
      const seen = keys.filter((key) => hostName(key.host) === host);
      // Skip the write if the build reported nothing new.
      const { put } = presented(host, await gitHosts.of(host), seen, now(), by);
      if (put.length > 0)
        await gitHosts.change(
          host,
          (stored) => ({ ...presented(host, stored, seen, now(), by), event: null }),
          now(),
        );
    }
  };
}

/** Returns the host of an ssh address in the form that host keys use; null for other addresses. */
function sshHostOf(gitUrl: string): string | null {
  const { scheme, hostname } = remoteOf(gitUrl);
  if (scheme !== 'ssh') return null;
  const port = gitUrl.includes('://') ? new URL(gitUrl).port : '';
  return hostName(port === '' ? hostname : `${hostname}:${port}`);
}
