/** Handles ssh host keys: which keys the control plane trusts, and which keys a host presents. */
import { createHash, createHmac } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { exec } from '@berth/kit/exec';
import { writeFileWhole } from '@berth/kit/write-file';
import type { SeenHostKey } from '@berth/wire/git';
import { outputTail, TaskFailure } from '../failures.ts';

/**
 * An ssh server. `name`: its name in the list of trusted hosts, `host`, or `host:port` if the port
 * is not 22.
 */
export type SshServer = { hostname: string; port: number; name: string };
/** An ssh host key. `key` is base64. */
export type HostKey = { type: string; key: string; fingerprint: string };

/** Returns the ssh server of a git address; null for other kinds of addresses. */
export function sshServer(url: string): SshServer | null {
  if (url.startsWith('-') || /[\s\p{Cc}\\]/u.test(url)) return null;
  if (url.includes('://')) {
    const parsed = URL.canParse(url) ? new URL(url) : null;
    if (parsed === null || parsed.protocol !== 'ssh:' || parsed.hostname === '') return null;
    return serverOf(parsed.hostname, parsed.port === '' ? 22 : Number(parsed.port));
  }
  const [, host] = /^[\w.~+-]+@([\w.-]+|\[[0-9a-fA-F:.]+\]):(?![:/]?-)/.exec(url) ?? [];
  return host === undefined ? null : serverOf(host, 22);
}
function serverOf(given: string, port: number): SshServer | null {
  const host = given.toLowerCase().replace(/\.$/, '');
  if (host === '' || host.startsWith('-')) return null;
  return {
    hostname: host.replace(/^\[|\]$/g, ''),
    port,
    name: port === 22 ? host : `${host}:${port}`,
  };
}

export const fingerprintOf = (key: string): string =>
  'SHA256:' +
  createHash('sha256').update(Buffer.from(key, 'base64')).digest('base64').replace(/=+$/, '');

type KnownLine = HostKey & { hosts: string[] };

/**
 * Reads the lines of a known_hosts file (sshd(8) "SSH_KNOWN_HOSTS FILE FORMAT"). Skips
 * certificates, revoked keys and patterns.
 */
export function parseKnownHosts(text: string): KnownLine[] {
  return text.split('\n').flatMap((line) => {
    const [hosts, type, key] = line.trim().split(/\s+/);
    if (hosts === undefined || type === undefined || key === undefined) return [];
    if (/^[#@]/.test(hosts) || !/^[a-z0-9@.-]{1,60}$/.test(type) || !/^[A-Za-z0-9+/]+=*$/.test(key))
      return [];
    return [
      {
        hosts: hosts.split(',').filter((host) => !/[*?!]/.test(host)),
        type,
        key,
        fingerprint: fingerprintOf(key),
      },
    ];
  });
}

/** Returns the name of a server in known_hosts. */
const knownName = ({ hostname, port }: SshServer): string =>
  port === 22 ? hostname : `[${hostname}]:${port}`;
const isNamed = (entry: string, name: string): boolean => {
  const [, salt, hash] = /^\|1\|([^|]+)\|([^|]+)$/.exec(entry) ?? [];
  if (salt === undefined) return entry.toLowerCase() === name;
  return createHmac('sha1', Buffer.from(salt, 'base64')).update(name).digest('base64') === hash;
};

/**
 * Returns the keys of a known_hosts file. Finds hosts with hashed names only if they are in
 * `candidates`.
 */
export function knownHosts(text: string, candidates: readonly string[]): SeenHostKey[] {
  const named = parseKnownHosts(text).flatMap((line) =>
    line.hosts.flatMap((entry) => {
      const names = entry.startsWith('|')
        ? candidates.filter((name) => isNamed(entry, name))
        : [entry.toLowerCase()];
      return names.map((name) => ({
        host: ourName(name),
        key_type: line.type,
        fingerprint: line.fingerprint,
      }));
    }),
  );
  return [...new Map(named.map((key) => [`${key.host} ${key.fingerprint}`, key])).values()];
}
/** Converts `[host]:port` of known_hosts to `host:port`; an IPv6 address keeps its brackets. */
function ourName(entry: string): string {
  const [, bracketed, port] = /^\[([^\]]+)\](?::(\d+))?$/.exec(entry) ?? [];
  const host = bracketed ?? entry;
  const shown = host.includes(':') ? `[${host}]` : host;
  return port === undefined || port === '22' ? shown : `${shown}:${port}`;
}

export type HostKeys = {
  /**
   * Returns the server that the builder's ssh_config sets for this host. Call this only for hosts
   * of SSH_KEY_HOSTS: for all others, ssh ignores ssh_config.
   */
  resolve(server: SshServer, signal: AbortSignal): Promise<SshServer>;
  /**
   * Returns the trusted keys of a server, from the cache if possible. `again`: ssh refused the
   * cached keys, so ask the server. Throws git_host_unknown, git_host_changed, git_unreachable.
   */
  trusted(
    server: SshServer,
    fingerprints: readonly string[],
    again: boolean,
    signal: AbortSignal,
  ): Promise<TrustedKeys>;
};
export type TrustedKeys = {
  keys: HostKey[];
  /** The keys that the server presented now; empty if the agent did not ask the server. */
  presented: SeenHostKey[];
};

export type HostKeysOptions = {
  env: NodeJS.ProcessEnv;
  timeoutMs: number;
  /** File with the keys that were trusted before, in the format of known_hosts. */
  cachePath: string;
  /**
   * known_hosts files of older versions and of the machine. They can save a request to the server,
   * but do not decide about trust.
   */
  alsoRead: readonly string[];
};

const MAX_CACHED = 500;

export function createHostKeys({ env, timeoutMs, cachePath, alsoRead }: HostKeysOptions): HostKeys {
  const read = (path: string): Promise<string> => readFile(path, 'utf8').catch(() => '');

  async function remembered(server: SshServer): Promise<HostKey[]> {
    const name = knownName(server);
    const lines = (await Promise.all([cachePath, ...alsoRead].map(read))).flatMap(parseKnownHosts);
    return lines.filter((line) => line.hosts.some((entry) => isNamed(entry, name)));
  }
  /**
   * Appends to the file, because other builds write to it too. A lost line costs one extra request
   * to the server.
   */
  async function remember(server: SshServer, keys: readonly HostKey[]): Promise<void> {
    const name = knownName(server);
    const others = parseKnownHosts(await read(cachePath)).filter(
      (line) => !line.hosts.includes(name),
    );
    const lines = [
      ...others.flatMap((line) => line.hosts.map((host) => `${host} ${line.type} ${line.key}`)),
    ];
    const kept = [...lines, ...keys.map((key) => `${name} ${key.type} ${key.key}`)].slice(
      -MAX_CACHED,
    );
    await writeFileWhole(cachePath, `${kept.join('\n')}\n`);
  }

  async function scan(
    { hostname, port, name }: SshServer,
    signal: AbortSignal,
  ): Promise<HostKey[]> {
    const seconds = Math.max(1, Math.round(timeoutMs / 1000));
    const argv = [
      'ssh-keyscan',
      '-T',
      String(seconds),
      '-p',
      String(port),
      '-t',
      'ed25519,ecdsa,rsa',
      '--',
      hostname,
    ];
    const { stdout, stderr } = await exec(argv, {
      env,
      signal,
      timeoutMs: 4 * timeoutMs,
      maxOutput: 64 * 1024,
      dieWithParent: true,
    });
    signal.throwIfAborted();
    const keys = parseKnownHosts(stdout);
    if (keys.length > 0) return keys;
    const why = outputTail(stderr.replace(/^#.*$/gm, ''));
    throw new TaskFailure(
      'git_unreachable',
      `${name} presented no ssh host key${why === '' ? '' : `: ${why}`}`,
    );
  }

  return {
    async resolve(server, signal) {
      const port = server.port === 22 ? [] : ['-p', String(server.port)];
      const argv = ['ssh', '-G', ...port, '--', server.hostname];
      const { code, stdout } = await exec(argv, {
        env,
        signal,
        timeoutMs,
        maxOutput: 256 * 1024,
        dieWithParent: true,
      });
      return code === 0 ? resolvedServer(server, stdout) : server;
    },

    async trusted(server, fingerprints, again, signal) {
      const isTrusted = (key: HostKey): boolean => fingerprints.includes(key.fingerprint);
      const rememberedKeys = again ? [] : (await remembered(server)).filter(isTrusted);
      if (rememberedKeys.length > 0) return { keys: rememberedKeys, presented: [] };
      const seen = await scan(server, signal);
      const presented = seen.map((key) => ({
        host: server.name,
        key_type: key.type,
        fingerprint: key.fingerprint,
      }));
      const keys = seen.filter(isTrusted);
      if (keys.length === 0) throw hostFailure(server, presented, fingerprints);
      // Ignore a write error: the cache only saves time.
      await remember(server, keys).catch(() => undefined);
      return { keys, presented };
    },
  };
}

/** Reads the output of `ssh -G`. A HostKeyAlias names the key, but is not a host to connect to. */
export function resolvedServer(server: SshServer, output: string): SshServer {
  const value = (key: string): string | null =>
    new RegExp(`^${key} (\\S+)$`, 'mi').exec(output)?.[1] ?? null;
  const resolved = serverOf(
    value('hostname') ?? server.hostname,
    Number(value('port') ?? server.port),
  );
  if (resolved === null) return server;
  const alias = value('hostkeyalias');
  return alias === null ? resolved : { ...resolved, name: alias.toLowerCase() };
}

function hostFailure(
  { name }: SshServer,
  presented: SeenHostKey[],
  trusted: readonly string[],
): TaskFailure {
  const shown = presented.map((key) => `${key.key_type} ${key.fingerprint}`).join(', ');
  const trust =
    `an admin can trust it: berth git-host trust ${name} SHA256:… (PUT ` +
    `/api/git-hosts/${encodeURIComponent(name)})`;
  if (trusted.length === 0)
    return new TaskFailure(
      'git_host_unknown',
      `${name} presents ${shown}. If the operator of ${name} publishes one of these ` +
        `fingerprints, ${trust}`,
      { report: { host_keys: presented } },
    );
  return new TaskFailure(
    'git_host_changed',
    `${name} presents ${shown}; trusted: ${trusted.join(', ')}. ` +
      `Somebody may listen to the connection. Only if the operator of ${name} announces the ` +
      `new key, ${trust}`,
    { report: { host_keys: presented } },
  );
}
