/** The real Gitea on loopback: private repositories, deploy keys, webhooks, commit statuses. */
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { defined } from '@berth/kit/defined';
import { findGitea } from './config.ts';
import { commitFiles, type Files, git, initRepository } from './git-repo.ts';
import { freePorts } from './ports.ts';
import { type Argv, run, startProcess, untilReady } from './process.ts';

export interface Gitea {
  /** `http://127.0.0.1:port`. */
  readonly url: string;
  /** A token of the owner with all rights. */
  readonly token: string;
  readonly owner: string;
  readonly sshPort: number;
  /** Fingerprint (`SHA256:…`) and type of each ssh host key. */
  hostKeys(): Promise<{ fingerprint: string; key_type: string }[]>;
  /**
   * Sends a request to its API, for example `api('POST', '/user/repos', {…})`. Throws unless it
   * answers 2xx.
   */
  api<T = unknown>(method: string, path: string, body?: object): Promise<T>;
  /** Creates a private repository with one commit on `main`, like a person who pushes it. */
  createRepo(name: string, files: Files): Promise<GiteaRepo>;
  stop(): Promise<void>;
}
export interface GiteaRepo {
  /** `ssh://git@127.0.0.1:port/owner/name.git`. */
  readonly sshUrl: string;
  /** `http://127.0.0.1:port/owner/name.git`, without credentials. */
  readonly httpUrl: string;
  readonly sha: string;
  /** Commits to a branch and pushes it. Returns the commit’s full id. */
  push(files: Files, message: string, branch?: string): Promise<string>;
  deleteBranch(branch: string): Promise<void>;
}

const OWNER = 'bosun';

/**
 * Starts Gitea with an empty database. `dir` must be on a disk that allows sockets. @throws when it
 * is not installed or does not answer
 */
export async function startGitea(options: { dir: string }): Promise<Gitea> {
  const bin = findGitea();
  if (bin === undefined) throw new Error('Gitea not found: set GITEA_BIN or put `gitea` on PATH');
  const { dir } = options;
  await mkdir(dir, { recursive: true });
  const [port, sshPort] = (await freePorts(2)) as [number, number];
  const url = `http://127.0.0.1:${port}`;
  const config = join(dir, 'app.ini');
  await writeFile(config, settings(dir, port, sshPort));
  const env = { HOME: dir, GITEA_I_AM_BEING_UNSAFE_RUNNING_AS_ROOT: 'true' };
  const admin = (...args: string[]): Argv => [bin, '--config', config, ...args];
  const password = randomBytes(12).toString('base64url');
  await run(admin('migrate'), { env });
  await run(
    admin(
      ...['admin', 'user', 'create', '--admin', '--username', OWNER, '--password', password],
      ...['--email', 'bosun@berth.invalid', '--must-change-password=false'],
    ),
    { env },
  );
  const { stdout } = await run(
    admin(
      'admin',
      'user',
      'generate-access-token',
      '--username',
      OWNER,
      '--token-name',
      't',
      '--scopes',
      'all',
      '--raw',
    ),
    { env },
  );
  const token = stdout.trim().split('\n').at(-1) ?? '';
  const gitea = await startProcess([bin, 'web', '--config', config], {
    name: 'gitea',
    env,
    logFile: join(dir, 'gitea.log'),
  });
  await untilReady(
    gitea,
    async () => (await fetch(`${url}/api/healthz`, { signal: AbortSignal.timeout(5_000) })).ok,
    60_000,
  );

  async function api<T>(method: string, path: string, body?: object): Promise<T> {
    const answer = await fetch(`${url}/api/v1${path}`, {
      method,
      headers: { authorization: `token ${token}`, 'content-type': 'application/json' },
      ...defined({ body: body === undefined ? undefined : JSON.stringify(body) }),
      signal: AbortSignal.timeout(20_000),
    });
    const text = await answer.text();
    if (!answer.ok)
      throw new Error(`Gitea: ${method} ${path} answered ${answer.status}: ${text.slice(0, 300)}`);
    return (text === '' ? undefined : JSON.parse(text)) as T;
  }

  return {
    url,
    token,
    owner: OWNER,
    sshPort,
    async hostKeys() {
      const { stdout: keys } = await run(['ssh-keyscan', '-p', String(sshPort), '127.0.0.1']);
      const folder = await mkdtemp(join(dir, 'keys-'));
      await writeFile(join(folder, 'keys'), keys);
      const { stdout: listed } = await run(['ssh-keygen', '-l', '-f', join(folder, 'keys')]);
      const types = keys
        .split('\n')
        .flatMap((line) =>
          (/^\S+ (\S+) /.exec(line)?.[1] ?? '').split(' ').filter((t) => t !== ''),
        );
      return listed
        .trim()
        .split('\n')
        .map((line, i) => ({ fingerprint: line.split(' ')[1] ?? '', key_type: types[i] ?? '' }));
    },
    api,
    async createRepo(name, files) {
      await api('POST', '/user/repos', { name, private: true, default_branch: 'main' });
      const local = join(dir, 'work', `${name}.git`);
      await mkdir(join(dir, 'work'), { recursive: true });
      await initRepository(local, 'main');
      const remote = `http://${OWNER}:${token}@127.0.0.1:${port}/${OWNER}/${name}.git`;
      const push = async (changed: Files, message: string, branch = 'main'): Promise<string> => {
        const from = branch === 'main' ? {} : { from: 'refs/heads/main^0' };
        const sha = await commitFiles(local, changed, { branch, message, ...from });
        await git(local, ['push', '--quiet', remote, `${branch}:${branch}`]);
        return sha;
      };
      const sha = await push(files, 'first commit');
      return {
        sshUrl: `ssh://git@127.0.0.1:${sshPort}/${OWNER}/${name}.git`,
        httpUrl: `${url}/${OWNER}/${name}.git`,
        sha,
        push,
        async deleteBranch(branch) {
          await git(local, ['push', '--quiet', remote, `:${branch}`]);
        },
      };
    },
    async stop() {
      await gitea.stop(20_000);
      await rm(dir, { recursive: true, force: true });
    },
  };
}

const settings = (dir: string, port: number, sshPort: number): string => `WORK_PATH = ${dir}
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = ${port}
ROOT_URL = http://127.0.0.1:${port}/
START_SSH_SERVER = true
SSH_LISTEN_HOST = 127.0.0.1
SSH_LISTEN_PORT = ${sshPort}
SSH_DOMAIN = 127.0.0.1
SSH_PORT = ${sshPort}
BUILTIN_SSH_SERVER_USER = git
OFFLINE_MODE = true
[database]
DB_TYPE = sqlite3
[security]
INSTALL_LOCK = true
[webhook]
ALLOWED_HOST_LIST = loopback,private
DELIVER_TIMEOUT = 10
[cron.update_checker]
ENABLED = false
[log]
LEVEL = Warn
`;
