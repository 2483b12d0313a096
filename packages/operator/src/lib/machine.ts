/** Reads facts about this machine. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { Problem } from './command.ts';
import { type Owner, parseEnv, readText } from './etc-files.ts';

/**
 * Environment for child programs: the `PATH` of root, and a locale that keeps messages in English.
 */
export const PROGRAM_ENV = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  HOME: '/root',
  LC_ALL: 'C.UTF-8',
};

export function requireRoot(command: string): void {
  if (process.getuid?.() !== 0)
    throw new Problem(
      `this needs root, because it writes to /etc and starts units: sudo berth ${command}`,
    );
}

export type OsRelease = { id: string; like: string; version: string; name: string };
export function osRelease(path = '/etc/os-release'): OsRelease {
  const fields = parseEnv(readText(path) ?? '');
  return {
    id: fields.get('ID') ?? '',
    like: fields.get('ID_LIKE') ?? '',
    version: fields.get('VERSION_ID') ?? '',
    name: fields.get('PRETTY_NAME') ?? 'an unknown system',
  };
}

/** Returns the ids of a system user, or undefined if there is no such user. */
export function userNamed(name: string): Owner | undefined {
  const line = (readText('/etc/passwd') ?? '')
    .split('\n')
    .find((entry) => entry.startsWith(`${name}:`));
  const [, , uid, gid] = line?.split(':') ?? [];
  return uid === undefined || gid === undefined
    ? undefined
    : { uid: Number(uid), gid: Number(gid) };
}

export type Listener = { name: string; pid: number | undefined; unit: string | undefined };

/**
 * Returns the program that listens on a TCP port of any address, or undefined. The program's name
 * is unknown without root.
 */
export function listenerOn(port: number): Listener | undefined {
  const inodes = ['/proc/net/tcp', '/proc/net/tcp6'].flatMap((file) =>
    listeningSockets(readText(file) ?? '', port),
  );
  if (inodes.length === 0) return undefined;
  const pid = processWith(inodes);
  if (pid === undefined) return { name: 'another program', pid, unit: undefined };
  const read = (name: string): string => {
    try {
      return readFileSync(`/proc/${pid}/${name}`, 'utf8').trim();
    } catch {
      return '';
    }
  };
  return {
    name: read('comm') || 'a program that just ended',
    pid,
    unit: /\/([^/\n]+\.service)(\/|\n|$)/.exec(read('cgroup'))?.[1],
  };
}

/** Returns the inodes of sockets in /proc/net/tcp that listen on the port. */
export function listeningSockets(table: string, port: number): string[] {
  const LISTEN = '0A';
  const wanted = port.toString(16).toUpperCase().padStart(4, '0');
  return table.split('\n').flatMap((line) => {
    const [, local = '', , state, , , , , , inode] = line.trim().split(/\s+/);
    return state === LISTEN && local.endsWith(`:${wanted}`) && inode !== undefined ? [inode] : [];
  });
}

function processWith(inodes: readonly string[]): number | undefined {
  const wanted = new Set(inodes.map((inode) => `socket:[${inode}]`));
  // Check the highest process id first: systemd (process 1) also holds the socket of a unit, and
  // the unit's own process is the better answer.
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  for (const pid of pids.toSorted((a, b) => Number(b) - Number(a))) {
    try {
      for (const fd of readdirSync(`/proc/${pid}/fd`))
        if (wanted.has(readlinkSync(`/proc/${pid}/fd/${fd}`))) return Number(pid);
    } catch {
      // The process has ended or belongs to another user.
      continue;
    }
  }
  return undefined;
}
