/**
 * Authenticates git during one task. Keys and known_hosts are files in memory, and a token is in
 * the environment of git. None of these appears in arguments, the workspace or the log.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { defined } from '@berth/kit/defined';
import type { GitAccess, SeenHostKey } from '@berth/wire/git';
import { TaskFailure } from '../failures.ts';
import { gitHost, isListed } from './git-hosts.ts';
import { type HostKeys, type SshServer, sshServer } from './host-keys.ts';

/** The credential that a transfer used, to explain a refusal. */
export type Used = 'deploy key' | 'git token' | 'builder keys' | 'nothing';
export type Connection = { env: NodeJS.ProcessEnv; used: Used; redact: readonly string[] };

export type GitSession = {
  /**
   * Prepares a transfer from `url`. `again`: the host key was refused before. Throws
   * git_host_unknown, git_host_changed, git_unreachable.
   */
  connect(url: string, again: boolean, signal: AbortSignal): Promise<Connection>;
  /** Tells whether a refused host key can be looked up again. */
  checksHostKeys: boolean;
  /**
   * Returns the authorization header with the git token, only for the token's host and only over
   * https; null for any other address.
   */
  authorization(url: string): string | null;
  /** Returns the host keys that servers presented in this session. */
  presented(): SeenHostKey[];
};

export type SessionOptions = {
  /** The address of the project. Only its host receives the project’s key and token. */
  url: string;
  /** Null if the control plane is an older version, which keeps no host keys. */
  access: GitAccess | null;
  /** Creates the folder in memory for the files of this task. */
  dir: () => Promise<string>;
  hostKeys: HostKeys;
  /** Hosts to which ssh can offer the keys of this machine. */
  sshKeyHosts: readonly string[];
  sshAuthSock: string | undefined;
  /** Path of the known_hosts file that older versions wrote. */
  legacyKnownHosts: string;
  stallSeconds: number;
};

/**
 * The known_hosts file uses this name for every server, so that ports and aliases in ssh_config do
 * not matter.
 */
const ALIAS = 'berth-git-host';

/** The options, and the state of one task's session. */
type Session = SessionOptions & {
  /** Host keys by host and fingerprint. */
  seen: Map<string, SeenHostKey>;
  /** Counter for the names of known_hosts files. */
  files: number;
  keyFile: Promise<string> | null;
};
type SshTransfer = { url: string; server: SshServer; again: boolean; signal: AbortSignal };

export function createGitSession(options: SessionOptions): GitSession {
  const session: Session = { ...options, seen: new Map(), files: 0, keyFile: null };
  const { access } = options;
  return {
    checksHostKeys: access !== null,
    presented: () => [...session.seen.values()],
    authorization(url) {
      const own = tokenFor(access, url);
      return own === null ? null : `Basic ${own.basic}`;
    },
    async connect(url, again, signal) {
      const server = sshServer(url);
      if (server === null) return overHttp(access, url);
      return overSsh(session, { url, server, again, signal });
    },
  };
}

async function overSsh(session: Session, transfer: SshTransfer): Promise<Connection> {
  const { url, access, sshAuthSock } = session;
  const host = gitHost(transfer.url);
  /**
   * Only listed hosts get the keys of this machine: a server that sees a key learns the machine's
   * identity, and could use a forwarded ssh agent.
   */
  const listed = host !== null && isListed(host, session.sshKeyHosts);
  const command = [sshCommand(session.stallSeconds), await hostChecks(session, transfer, listed)];
  const key = access?.deploy_key;
  if (key !== undefined && host !== null && host === gitHost(url)) {
    const path = await deployKeyFile(session, key.private_key);
    // ssh uses the settings of ssh_config only for the hosts in SSH_KEY_HOSTS; for all other hosts
    // it ignores the file.
    if (!listed) command.push('-F /dev/null');
    command.push(`-i ${path} -oIdentitiesOnly=yes -oIdentityAgent=none -oForwardAgent=no`);
    return { env: { GIT_SSH_COMMAND: command.join(' ') }, used: 'deploy key', redact: [] };
  }
  if (listed) {
    const env = defined({ SSH_AUTH_SOCK: sshAuthSock, GIT_SSH_COMMAND: command.join(' ') });
    return { env, used: 'builder keys', redact: [] };
  }
  command.push('-F /dev/null -oPubkeyAuthentication=no -oIdentityAgent=none -oForwardAgent=no');
  return { env: { GIT_SSH_COMMAND: command.join(' ') }, used: 'nothing', redact: [] };
}

function sshCommand(stallSeconds: number): string {
  const seconds = Math.min(15, stallSeconds);
  return [
    'ssh -oBatchMode=yes -oServerAliveCountMax=2',
    `-oConnectTimeout=${seconds} -oServerAliveInterval=${seconds}`,
  ].join(' ');
}

/** Returns the ssh options for checking the server's host key. */
async function hostChecks(
  session: Session,
  { server, again, signal }: SshTransfer,
  listed: boolean,
): Promise<string> {
  const { access, hostKeys, legacyKnownHosts } = session;
  if (access === null)
    return `-oStrictHostKeyChecking=accept-new -oUserKnownHostsFile=${legacyKnownHosts}`;
  const checked = listed ? await hostKeys.resolve(server, signal) : server;
  const trusted = access.hosts.find(({ host }) => host === checked.name)?.fingerprints ?? [];
  const { keys, presented } = await hostKeys.trusted(checked, trusted, again, signal);
  for (const key of presented) session.seen.set(`${key.host} ${key.fingerprint}`, key);
  const path = join(await session.dir(), `known_hosts-${(session.files += 1)}`);
  const lines = keys.map((key) => `${ALIAS} ${key.type} ${key.key}\n`);
  await writeFile(path, lines.join(''), { mode: 0o600 });
  return [
    `-oStrictHostKeyChecking=yes -oUserKnownHostsFile=${path}`,
    `-oGlobalKnownHostsFile=/dev/null -oHostKeyAlias=${ALIAS}`,
    '-oCheckHostIP=no -oUpdateHostKeys=no -oVerifyHostKeyDNS=no',
    '-oIgnoreUnknown=KnownHostsCommand -oKnownHostsCommand=none',
  ].join(' ');
}

/** Writes the deploy key once, when the first transfer needs it. */
function deployKeyFile(session: Session, privateKey: string): Promise<string> {
  session.keyFile ??= (async () => {
    const path = join(await session.dir(), 'key');
    await writeFile(path, privateKey, { mode: 0o600 });
    return path;
  })();
  return session.keyFile;
}

/** Returns the git token if it is meant for the host of this address. */
function tokenFor(
  access: GitAccess | null,
  url: string,
): { host: string; token: string; basic: string } | null {
  const token = access?.token;
  const parsed = URL.canParse(url) ? new URL(url) : null;
  if (
    token === undefined ||
    parsed?.protocol !== 'https:' ||
    parsed.host.replace(/\.(?=:|$)/, '') !== token.host
  )
    return null;
  return {
    host: parsed.host,
    token: token.token,
    basic: Buffer.from(`${token.username}:${token.token}`).toString('base64'),
  };
}

function overHttp(access: GitAccess | null, url: string): Connection {
  const own = tokenFor(access, url);
  if (own === null) return { env: {}, used: 'nothing', redact: [] };
  const { host, token, basic } = own;
  const config = [
    // With the address in the key, git sends the header to this host only, and only over https.
    [`http.https://${host}/.extraHeader`, `Authorization: Basic ${basic}`],
    // With HTTP/1.1, the trace of every git version redacts the header.
    ['http.version', 'HTTP/1.1'],
  ];
  const env = Object.fromEntries(
    config.flatMap(([name, value], i) => [
      [`GIT_CONFIG_KEY_${i}`, name],
      [`GIT_CONFIG_VALUE_${i}`, value],
    ]),
  );
  return {
    env: { ...env, GIT_CONFIG_COUNT: String(config.length) },
    used: 'git token',
    redact: [token, basic],
  };
}

/** Replaces a refusal by an error that names the credential that was used, and what to do. */
export function explainRefusal(
  failure: TaskFailure,
  used: Used,
  url: string,
  access: GitAccess | null,
): TaskFailure {
  if (failure.code !== 'git_credentials' && failure.code !== 'git_repository_not_found')
    return failure;
  const host = gitHost(url) ?? 'the host';
  const say = (
    code: 'git_credentials' | 'git_key_refused' | 'git_token_refused',
    more: string,
  ): TaskFailure =>
    new TaskFailure(
      failure.code === 'git_repository_not_found' ? failure.code : code,
      `${failure.detail}. ${more}`,
      { cause: failure },
    );
  if (used === 'deploy key')
    return say(
      'git_key_refused',
      `Add the public key of the project (${access?.deploy_key?.fingerprint ?? ''}) to the ` +
        `repository on ${host} as a deploy key`,
    );
  if (used === 'git token')
    return say(
      'git_token_refused',
      `The token may have expired, or it may not read this repository: set a new git token`,
    );
  if (failure.code === 'git_repository_not_found' && access === null) return failure;
  if (sshServer(url) !== null) {
    if (used === 'builder keys' || failure.code === 'git_repository_not_found') return failure;
    return say('git_credentials', withoutKey(host, access));
  }
  return access === null ? failure : say('git_credentials', withoutToken(url, access));
}

const withoutKey = (host: string, access: GitAccess | null): string =>
  access === null
    ? `This builder offers no ssh key to ${host}; add the host to SSH_KEY_HOSTS`
    : `The project has no deploy key, and this builder offers no ssh key to ${host}: ` +
      'create a deploy key, or add the host to SSH_KEY_HOSTS';

function withoutToken(url: string, access: GitAccess): string {
  if (!/^https:/i.test(url))
    return (
      'If the repository is private, use its https address and a git token, or its ssh address ' +
      'and a deploy key'
    );
  return access.deploy_key === undefined
    ? 'If the repository is private, set a git token'
    : 'If the repository is private, set a git token, or change git_url to the ssh address, for ' +
        'which the project has a deploy key';
}
