/**
 * Finds the listening ports of a container from outside, to diagnose a container that does not
 * answer. The agent finds the container's processes by their control group, which names the
 * container's full id. It does not use the engine's `.State.Pid`, which counts in the engine's pid
 * namespace and might differ from the agent's. If /proc shows no process of the container, because
 * the agent itself runs in a container, the agent runs `cat` inside the container.
 */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Docker } from './docker.ts';

export type Listener = { address: string; port: number; loopback: boolean };

/** Returns the listening ports; null if they could not be read. */
export async function listenersOf(
  id: string,
  docker: Docker,
  procDir = '/proc',
): Promise<Listener[] | null> {
  const pid = await pidOf(id, procDir);
  const text = pid === null ? null : await readTables(join(procDir, pid, 'net'));
  if (text !== null) return parseListeners(text);
  const inside = await docker.readInside(id, ['/proc/net/tcp', '/proc/net/tcp6']);
  return inside === null ? null : parseListeners(inside);
}

async function pidOf(id: string, procDir: string): Promise<string | null> {
  for (const pid of await readdir(procDir)) {
    if (!/^\d+$/.test(pid)) continue;
    const groups = await readOrNull(join(procDir, pid, 'cgroup'));
    if (groups?.includes(id)) return pid;
  }
  return null;
}

async function readTables(dir: string): Promise<string | null> {
  const tables = [await readOrNull(join(dir, 'tcp')), await readOrNull(join(dir, 'tcp6'))];
  return tables.every((t) => t === null) ? null : tables.join('');
}

/** Returns null if the process has ended, the file is not readable, or the kernel has no IPv6. */
async function readOrNull(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (
      ['ENOENT', 'ESRCH', 'EACCES', 'EPERM', 'EINVAL'].includes(
        (error as NodeJS.ErrnoException).code ?? '',
      )
    )
      return null;
    throw error;
  }
}

const LISTEN_STATE = '0A';
/** The engine's own DNS server in user-defined networks. */
const ENGINE_DNS = '127.0.0.11';

/**
 * Parses /proc/net/tcp and tcp6 (proc(5)): each 32-bit word of an address is in host byte order,
 * and ports are hexadecimal.
 */
export function parseListeners(text: string): Listener[] {
  const listeners = new Map<string, Listener>();
  for (const line of text.split('\n')) {
    const [, local, , state] = line.trim().split(/\s+/);
    const match = /^([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})$/.exec(local ?? '');
    if (state !== LISTEN_STATE || match?.[1] === undefined || match[2] === undefined) continue;
    const address = match[1].length === 8 ? ipv4(match[1]) : ipv6(match[1]);
    if (address === ENGINE_DNS) continue;
    const port = Number.parseInt(match[2], 16);
    const loopback =
      address.startsWith('127.') || address === '::1' || address.startsWith('::ffff:127.');
    listeners.set(`${address} ${port}`, { address, port, loopback });
  }
  return [...listeners.values()].sort((a, b) => a.port - b.port);
}

const bytes = (word: string): number[] =>
  [6, 4, 2, 0].map((at) => Number.parseInt(word.slice(at, at + 2), 16));
const ipv4 = (word: string): string => bytes(word).join('.');
function ipv6(hex: string): string {
  const all = [0, 8, 16, 24].flatMap((at) => bytes(hex.slice(at, at + 8)));
  if (all.every((b) => b === 0)) return '::';
  if (all.slice(0, 10).every((b) => b === 0) && all[10] === 255 && all[11] === 255)
    return `::ffff:${all.slice(12).join('.')}`;
  if (all.slice(0, 15).every((b) => b === 0) && all[15] === 1) return '::1';
  return Array.from({ length: 8 }, (_, i) =>
    (((all[2 * i] ?? 0) << 8) | (all[2 * i + 1] ?? 0)).toString(16),
  ).join(':');
}
