// Git over ssh: Debian's sshd on loopback, which serves bare repositories with git-shell.
import { chmod, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { findProgram } from './config.ts';
import { allowAnySha, commitFiles, type Files, initRepository } from './git-repo.ts';
import { freePort } from './ports.ts';
import { run, type RunningProcess, startProcess, untilReady } from './process.ts';

const program = findProgram('sshd');

/** Reason for skipping a test, appended to its name; empty where sshd is installed. */
export const noSshd =
  program === undefined ? ' (skipped: no sshd; as root: apt-get install openssh-server)' : '';

export type HostKeyType = 'ed25519' | 'ecdsa' | 'rsa';

export interface SshGitServer {
  /** `host:port`, as Berth names the host. */
  readonly name: string;
  /** Returns the address to clone a repository from. */
  repoUrl(name: string): string;
  createRepo(name: string, files: Files): Promise<{ url: string; sha: string }>;
  /** Adds a commit to `main` and returns its full id. */
  commit(name: string, files: Files, message: string): Promise<string>;
  /** The public keys that can read every repository. */
  authorize(...publicKeys: string[]): Promise<void>;
  /** Restarts the server with new host keys of these types, and returns their fingerprints. */
  newHostKeys(...types: HostKeyType[]): Promise<string[]>;
  fingerprints(): string[];
  /** The log of the server since the last call. */
  log(): string;
  stop(): Promise<void>;
}

export interface SshGitServerOptions {
  readonly root: string;
  /** Default 127.0.0.1. */
  readonly address?: string;
  readonly hostKeys?: readonly HostKeyType[];
}

export async function startSshGitServer({
  root,
  address = '127.0.0.1',
  hostKeys = ['ed25519'],
}: SshGitServerOptions): Promise<SshGitServer> {
  if (program === undefined) throw new Error('sshd is not installed (npm run setup installs it)');
  const sshd = program;
  const repositories = join(root, 'repositories');
  const keys = join(root, 'authorized_keys');
  await mkdir(repositories, { recursive: true });
  await chmod(root, 0o755);
  await writeFile(keys, '');
  // sshd of root requires the folder of its unprivileged child.
  if (process.getuid?.() === 0) await mkdir('/run/sshd', { recursive: true, mode: 0o755 });
  const port = await freePort(address);
  const user = userInfo().username;
  let log = '';
  let running: RunningProcess | undefined;
  let fingerprints: string[] = [];

  async function start(types: readonly HostKeyType[]): Promise<string[]> {
    await running?.stop();
    fingerprints = [];
    const lines = [];
    for (const type of types) {
      const path = join(root, `host_${type}`);
      await rm(path, { force: true });
      await rm(`${path}.pub`, { force: true });
      await run([
        'ssh-keygen',
        '-q',
        '-t',
        type,
        ...(type === 'rsa' ? ['-b', '2048'] : []),
        '-N',
        '',
        '-f',
        path,
      ]);
      fingerprints.push(
        (await run(['ssh-keygen', '-l', '-f', `${path}.pub`])).stdout.split(' ')[1] ?? '',
      );
      lines.push(`HostKey ${path}`);
    }
    const config = join(root, 'sshd_config');
    const settings = [
      `Port ${port}`,
      `ListenAddress ${address}`,
      ...lines,
      'PidFile none',
      `AuthorizedKeysFile ${keys}`,
      'PermitRootLogin prohibit-password',
      'PasswordAuthentication no',
      'KbdInteractiveAuthentication no',
      'UsePAM no',
      'StrictModes no',
      'LogLevel VERBOSE',
      `ForceCommand exec git-shell -c "$SSH_ORIGINAL_COMMAND"`,
      `AllowUsers ${user}`,
    ];
    await writeFile(config, `${settings.join('\n')}\n`);
    let isReady = false;
    const started = await startProcess([sshd, '-D', '-e', '-f', config], {
      name: 'sshd',
      onOutput: (text) => {
        log += text;
        isReady ||= text.includes('Server listening');
      },
    });
    running = started;
    await untilReady(started, async () => isReady || log.includes('Server listening'), 10_000);
    return fingerprints;
  }
  await start(hostKeys);

  const path = (name: string): string => join(repositories, `${name}.git`);
  const repoUrl = (name: string): string => `ssh://${user}@${address}:${port}${path(name)}`;
  return {
    name: `${address}:${port}`,
    repoUrl,
    async createRepo(name, files) {
      await initRepository(path(name), 'main');
      await allowAnySha(path(name), true);
      const sha = await commitFiles(path(name), files, {
        branch: 'main',
        message: 'first commit',
        replaceAll: true,
      });
      return { url: repoUrl(name), sha };
    },
    commit: (name, files, message) => commitFiles(path(name), files, { branch: 'main', message }),
    async authorize(...publicKeys) {
      await writeFile(keys, publicKeys.map((key) => `restrict ${key}\n`).join(''));
    },
    async newHostKeys(...types) {
      log = '';
      return start(types);
    },
    fingerprints: () => [...fingerprints],
    log() {
      const text = log;
      log = '';
      return text;
    },
    async stop() {
      await running?.stop();
    },
  };
}

/**
 * Creates a key pair of a person or builder. Returns the path of the private key and the public
 * key.
 */
export async function newKeyPair(path: string): Promise<{ path: string; publicKey: string }> {
  await run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', path]);
  return { path, publicKey: (await readFile(`${path}.pub`, 'utf8')).trim() };
}
