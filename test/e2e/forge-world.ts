/**
 * A world with the real Traefik and the real Gitea, and a private repository whose pushes deploy.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findGitea } from '@berth/testbed/config';
import { type Gitea, type GiteaRepo, startGitea } from '@berth/testbed/gitea';
import type { Files } from '@berth/testbed/git-repo';
import type { Project } from '@berth/wire/project';
import { pageApp, startWorld, type World, whyNot } from './world.ts';

/**
 * `push` pushes a page with the next version, and returns its commit. `hookId` is Gitea's number of
 * the hook.
 */
export type ForgeWorld = World & {
  gitea: Gitea;
  repo: GiteaRepo;
  project: Project;
  hookId: number;
  /** Path of the repository in Gitea's API. */
  path: string;
  /** The version that was pushed last. */
  version(): number;
  push(changed?: Files): Promise<string>;
};

export const whyNoForge = async (): Promise<string | undefined> =>
  (await whyNot('traefik')) ??
  (findGitea() === undefined ? 'no Gitea: put it on PATH, or set GITEA_BIN' : undefined);

export async function startForgeWorld(): Promise<ForgeWorld> {
  const dir = await mkdtemp(join(tmpdir(), 'berth-forge-'));
  // Gitea and its API are on loopback, which Berth reaches only if an operator names the host.
  const starting = [
    startGitea({ dir }),
    startWorld({ proxy: 'traefik', env: { ALLOWED_GIT_HOSTS: '127.0.0.1' } }),
  ] as const;
  const [forge, berth] = await Promise.allSettled(starting);
  const stop = async (): Promise<void> => {
    if (forge.status === 'fulfilled') await forge.value.stop();
    if (berth.status === 'fulfilled') await berth.value.stop();
    await rm(dir, { recursive: true, force: true });
  };
  try {
    const [gitea, world] = await Promise.all(starting);
    let version = 1;
    const repo = await gitea.createRepo('app', pageApp(version));
    return {
      ...world,
      gitea,
      repo,
      ...(await createProject(world, gitea, repo)),
      path: `/repos/${gitea.owner}/app`,
      version: () => version,
      push: (changed = {}) =>
        repo.push({ ...pageApp((version += 1)), ...changed }, `version ${version}`),
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/**
 * Creates the project as a developer does, with a deploy key, a git token and a hook; enters them
 * at Gitea.
 */
async function createProject(
  { berth }: World,
  gitea: Gitea,
  { sshUrl }: GiteaRepo,
): Promise<{ project: Project; hookId: number }> {
  const { api, url } = berth;
  const settings = { drain_seconds: 0, stop_grace_seconds: 1 };
  const project = await api.call('createProject', {
    body: { name: 'app', domain_prefix: 'app', git_url: sshUrl, ...settings },
  });
  const params = { id: project.id };
  for (const key of await gitea.hostKeys())
    await api.call('putGitHost', { params: { host: `127.0.0.1:${gitea.sshPort}` }, body: key });
  const { public_key } = await api.call('createDeployKey', { params });
  await gitea.api('POST', `/repos/${gitea.owner}/app/keys`, {
    title: 'berth',
    key: public_key,
    read_only: true,
  });
  await api.call('putGitToken', { params, body: { token: gitea.token, api_url: gitea.url } });
  const hook = await api.call('putHook', { params, body: { forge: 'gitea' } });
  const config = {
    url: `${url}${new URL(hook.url).pathname}`,
    content_type: 'json',
    secret: hook.secret,
  };
  const created = await gitea.api<{ id: number }>('POST', `/repos/${gitea.owner}/app/hooks`, {
    type: 'gitea',
    active: true,
    events: ['push', 'delete'],
    config,
  });
  return { project, hookId: created.id };
}
