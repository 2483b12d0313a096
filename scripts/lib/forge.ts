/**
 * The forge of the demo and of the recorded session, with one repository to push to: the real Gitea
 * with a private repository, or, on a machine without it, a bare repository whose post-receive hook
 * calls Berth. Both call the project's hook after each push.
 */
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { findGitea, findProgram } from '@berth/testbed/config';
import { git, initRepository } from '@berth/testbed/git-repo';
import { startGitea } from '@berth/testbed/gitea';
import type { GitServer } from '@berth/testbed/git-server';
import type { Platform } from '@berth/testbed/platform';
import { run } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';

export type Forge = {
  kind: 'gitea' | 'generic';
  title: string;
  /** Settings of a clone that may push. */
  gitConfig: Record<string, string>;
  /** Creates an empty repository. Returns the address for git. */
  createRepo(name: string): Promise<string>;
  /** Gives Berth access to the repository, if it needs any, and returns what was done. */
  giveAccess(berth: Platform, projectId: string, name: string): Promise<string | undefined>;
  /** Enters the hook of the project, as its owner does on the page of the forge. */
  addHook(name: string, hook: { url: string; secret: string }): Promise<void>;
  /**
   * Waits for the successful status of a commit and returns its text; undefined if the forge has no
   * statuses.
   */
  success(name: string, commit: string): Promise<string | undefined>;
  stop(): Promise<void>;
};

/** Returns why there is no Gitea; undefined if it can be started. */
export function whyNoGitea(): string | undefined {
  if (findGitea() === undefined)
    return 'no program gitea: put gitea 1.26 or newer on PATH, or set GITEA_BIN';
  return ['ssh', 'ssh-keygen', 'ssh-keyscan'].every((name) => findProgram(name) !== undefined)
    ? undefined
    : 'openssh-client is missing';
}

type Status = { status: string; context: string; description: string };

/** `dir` keeps Gitea and the keys of the person who pushes. */
export async function startGiteaForge(dir: string): Promise<Forge> {
  const gitea = await startGitea({ dir: join(dir, 'gitea') });
  const keys = join(dir, 'ssh');
  await mkdir(keys, { recursive: true, mode: 0o700 });
  const [key, known] = [join(keys, 'id_ed25519'), join(keys, 'known_hosts')];
  await run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', 'ada@example.org', '-f', key]);
  await gitea.api('POST', '/user/keys', {
    title: 'laptop',
    key: await readFile(`${key}.pub`, 'utf8'),
  });
  const { stdout } = await run(['ssh-keyscan', '-p', String(gitea.sshPort), '127.0.0.1']);
  await writeFile(known, stdout);
  return {
    kind: 'gitea',
    title: `Gitea at ${gitea.url}, in a private repository`,
    gitConfig: {
      'core.sshCommand': `ssh -i '${key}' -o IdentitiesOnly=yes -o UserKnownHostsFile='${known}'`,
    },
    async createRepo(name) {
      await gitea.api('POST', '/user/repos', { name, private: true, default_branch: 'main' });
      return `ssh://git@127.0.0.1:${gitea.sshPort}/${gitea.owner}/${name}.git`;
    },
    async giveAccess({ api }, id, name) {
      for (const body of await gitea.hostKeys())
        await api.call('putGitHost', { params: { host: `127.0.0.1:${gitea.sshPort}` }, body });
      const { public_key } = await api.call('createDeployKey', { params: { id } });
      await gitea.api('POST', `/repos/${gitea.owner}/${name}/keys`, {
        title: 'berth',
        key: public_key,
        read_only: true,
      });
      await api.call('putGitToken', {
        params: { id },
        body: { token: gitea.token, api_url: gitea.url },
      });
      return (
        'the repository is private: Berth got a deploy key that may read, and a token for commit ' +
        'statuses'
      );
    },
    async addHook(name, { url, secret }) {
      const config = { url, content_type: 'json', secret };
      await gitea.api('POST', `/repos/${gitea.owner}/${name}/hooks`, {
        type: 'gitea',
        active: true,
        events: ['push'],
        config,
      });
    },
    async success(name, commit) {
      const found = await waitFor(
        `Gitea shows the status of ${commit}`,
        async () =>
          (
            await gitea.api<Status[]>(
              'GET',
              `/repos/${gitea.owner}/${name}/commits/${commit}/statuses`,
            )
          ).find(({ status }) => status === 'success'),
        { deadlineMs: 60_000 },
      );
      return `${found.context}: ${found.description}`;
    },
    stop: () => gitea.stop(),
  };
}

/**
 * Sends the push to Berth as any program can: a request with the secret of the hook. The answer
 * appears in the output of `git push`.
 */
const POST_RECEIVE = (url: string, secret: string): string => `
const answer = await fetch(${JSON.stringify(url)}, { method: 'POST', headers: { authorization: ${JSON.stringify(`Bearer ${secret}`)} } });
console.log(answer.ok ? 'Berth checks this push' : \`Berth answered \${answer.status}\`);
`;

/** A repository below `root` that `server` serves. */
export function bareForge(server: GitServer, root: string): Forge {
  const path = (name: string): string => join(root, `${name}.git`);
  return {
    kind: 'generic',
    title: `the git server at ${server.url}`,
    gitConfig: {},
    async createRepo(name) {
      await initRepository(path(name), 'main');
      await git(path(name), ['config', 'http.receivepack', 'true']);
      return server.repoUrl(name);
    },
    giveAccess: async () => undefined,
    async addHook(name, { url, secret }) {
      const hooks = join(path(name), 'hooks');
      await mkdir(hooks, { recursive: true });
      await writeFile(join(hooks, 'call-berth.mjs'), POST_RECEIVE(url, secret), { mode: 0o600 });
      await writeFile(
        join(hooks, 'post-receive'),
        `#!/bin/sh\nexec '${process.execPath}' "$(dirname "$0")/call-berth.mjs"\n`,
      );
      await chmod(join(hooks, 'post-receive'), 0o755);
    },
    success: async () => undefined,
    stop: async () => undefined,
  };
}
