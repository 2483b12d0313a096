/** Facts about this machine. */
import { execOk } from '@berth/kit/exec';
import { Problem } from './command.ts';
import { type Owner, parseEnv, readText } from './etc-files.ts';

/** Environment of programs that the commands start: `PATH` of root, messages that do not depend on the language. */
export const PROGRAM_ENV = { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C.UTF-8' };

export function requireRoot(command: string): void {
  if (process.getuid?.() !== 0) throw new Problem(`this needs root, because it writes to /etc and starts units: sudo berth ${command}`);
}

/** Returns ID and VERSION_ID of /etc/os-release. */
export function osRelease(path = '/etc/os-release'): { id: string; like: string; version: string; name: string } {
  const found = parseEnv(readText(path) ?? '');
  return {
    id: found.get('ID') ?? '',
    like: found.get('ID_LIKE') ?? '',
    version: found.get('VERSION_ID') ?? '',
    name: found.get('PRETTY_NAME') ?? 'unknown',
  };
}

/** Returns the ids of a system user, or undefined. */
export async function userNamed(name: string): Promise<Owner | undefined> {
  const line = (readText('/etc/passwd') ?? '').split('\n').find((entry) => entry.startsWith(`${name}:`));
  const [, , uid, gid] = line?.split(':') ?? [];
  return uid === undefined || gid === undefined ? undefined : { uid: Number(uid), gid: Number(gid) };
}

/** Returns the program that listens on a TCP port of any address, or undefined. */
export async function listenerOn(port: number): Promise<string | undefined> {
  const { stdout } = await execOk(['ss', '-Hltnp', `sport = :${port}`], { env: PROGRAM_ENV, timeoutMs: 10_000 });
  if (stdout.trim() === '') return undefined;
  return /users:\(\("([^"]+)",pid=(\d+)/.exec(stdout)?.slice(1).join(', process ') ?? 'another program';
}
