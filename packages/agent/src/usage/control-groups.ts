/**
 * Finds and reads the control groups of containers, versions 2 and 1. The engine names a
 * container's group after its full id, so the group is found by that name, wherever the engine
 * creates it: `docker/ID`, `system.slice/docker-ID.scope`, or below its `--cgroup-parent`.
 *
 *   version 2   one hierarchy: /sys/fs/cgroup/…/ID
 *   version 1   one hierarchy per controller: /sys/fs/cgroup/memory/…/ID;
 *               `cpu` and `cpuacct` can share `cpu,cpuacct`
 */
import { access, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

export type GroupReading = {
  cpuSeconds: number | null;
  memoryBytes: number | null;
  /** Memory limit in bytes; null if there is none or it is unknown. */
  memoryLimit: number | null;
  oomKills: number | null;
  /** CPU throttling: periods, throttled periods and throttled time. Null without a CPU limit. */
  periods: number | null;
  throttledPeriods: number | null;
  throttledSeconds: number | null;
  /** Id of a process in the container, as seen by this process; null if none is visible. */
  pid: number | null;
};
/** Folders of the group, by controller. In version 2 all are the same folder. */
export type Group = {
  version: 1 | 2;
  memory: string | null;
  cpu: string | null;
  cpuacct: string | null;
};

export type ControlGroups = {
  /**
   * Returns the groups of these containers. A container without a group is missing in the result.
   */
  find(ids: readonly string[]): Promise<Map<string, Group>>;
  /** Reads a group; null if it no longer exists. */
  read(group: Group): Promise<GroupReading | null>;
};

/** Maximum number of folders that one search reads. A machine usually has some hundreds. */
const MOST_FOLDERS = 20_000;
const DEEPEST = 6;
/** In version 1, "no limit" is the largest multiple of the page size. */
const NO_LIMIT = 2 ** 62;

export function createControlGroups(root = '/sys/fs/cgroup'): ControlGroups {
  return {
    async find(ids) {
      const groups = new Map<string, Group>();
      if (ids.length === 0) return groups;
      if (await exists(join(root, 'cgroup.controllers'))) {
        for (const [id, path] of await search(root, ids))
          groups.set(id, { version: 2, memory: path, cpu: path, cpuacct: path });
        return groups;
      }
      const [memory, cpu, cpuacct] = await Promise.all([
        search(join(root, 'memory'), ids),
        firstOf(root, ['cpu', 'cpu,cpuacct', 'cpuacct,cpu'], ids),
        firstOf(root, ['cpuacct', 'cpu,cpuacct', 'cpuacct,cpu'], ids),
      ]);
      for (const id of ids) {
        const group = {
          memory: memory.get(id) ?? null,
          cpu: cpu.get(id) ?? null,
          cpuacct: cpuacct.get(id) ?? null,
        };
        if (Object.values(group).some((path) => path !== null))
          groups.set(id, { version: 1, ...group });
      }
      return groups;
    },
    read: (group) => (group.version === 2 ? readSecond(group.memory ?? '') : readFirst(group)),
  };
}

async function firstOf(
  root: string,
  names: readonly string[],
  ids: readonly string[],
): Promise<Map<string, string>> {
  for (const name of names) {
    const paths = await search(join(root, name), ids);
    if (paths.size > 0) return paths;
  }
  return new Map();
}

/**
 * Searches level by level, and ends as soon as all groups are found. Does not search below a
 * container's group.
 */
async function search(root: string, ids: readonly string[]): Promise<Map<string, string>> {
  const missing = new Set(ids);
  const paths = new Map<string, string>();
  let level = [root];
  for (let depth = 0, read = 0; depth < DEEPEST && level.length > 0; depth++) {
    const next: string[] = [];
    for (const parent of level) {
      if (missing.size === 0 || (read += 1) > MOST_FOLDERS) return paths;
      for (const name of await foldersIn(parent)) {
        const id = /[0-9a-f]{64}/.exec(name)?.[0];
        if (id === undefined) next.push(join(parent, name));
        else if (missing.delete(id)) paths.set(id, join(parent, name));
      }
    }
    level = next;
  }
  return paths;
}

async function readSecond(dir: string): Promise<GroupReading | null> {
  const [cpu, current, max, events, stat, pid] = await Promise.all([
    readOrNull(join(dir, 'cpu.stat')),
    readOrNull(join(dir, 'memory.current')),
    readOrNull(join(dir, 'memory.max')),
    readOrNull(join(dir, 'memory.events')),
    readOrNull(join(dir, 'memory.stat')),
    firstPid(dir),
  ]);
  // cpu.stat exists in every group, even if the controller is off.
  if (cpu === null && current === null) return null;
  const [limited, usec] = [field(cpu, 'nr_periods') ?? 0, field(cpu, 'usage_usec')];
  return {
    cpuSeconds: usec === null ? null : usec / 1e6,
    memoryBytes: working(number(current), field(stat, 'inactive_file')),
    memoryLimit: number(max),
    oomKills: field(events, 'oom_kill'),
    periods: limited > 0 ? limited : null,
    throttledPeriods: limited > 0 ? field(cpu, 'nr_throttled') : null,
    throttledSeconds: limited > 0 ? scaled(field(cpu, 'throttled_usec'), 1e6) : null,
    pid,
  };
}

async function readFirst({ memory, cpu, cpuacct }: Group): Promise<GroupReading | null> {
  const at = (dir: string | null, file: string): Promise<string | null> =>
    dir === null ? Promise.resolve(null) : readOrNull(join(dir, file));
  const dir = memory ?? cpuacct ?? cpu ?? '';
  const [usage, limit, oom, stat, time, periods, pid] = await Promise.all([
    at(memory, 'memory.usage_in_bytes'),
    at(memory, 'memory.limit_in_bytes'),
    at(memory, 'memory.oom_control'),
    at(memory, 'memory.stat'),
    at(cpuacct, 'cpuacct.usage'),
    at(cpu, 'cpu.stat'),
    firstPid(dir),
  ]);
  if (usage === null && time === null) return null;
  const [most, limited] = [number(limit), field(periods, 'nr_periods') ?? 0];
  return {
    cpuSeconds: scaled(number(time), 1e9),
    memoryBytes: working(number(usage), field(stat, 'total_inactive_file')),
    memoryLimit: most === null || most >= NO_LIMIT ? null : most,
    oomKills: field(oom, 'oom_kill'),
    periods: limited > 0 ? limited : null,
    throttledPeriods: limited > 0 ? field(periods, 'nr_throttled') : null,
    throttledSeconds: limited > 0 ? scaled(field(periods, 'throttled_time'), 1e9) : null,
    pid,
  };
}

/** Returns the first visible process: a process outside this pid namespace is listed as 0. */
async function firstPid(dir: string): Promise<number | null> {
  const text = await readOrNull(join(dir, 'cgroup.procs'));
  const pid = (text ?? '')
    .split('\n')
    .map(Number)
    .find((one) => one > 0);
  return pid ?? null;
}

/**
 * Returns the received and sent bytes on all interfaces of a process's network except loopback;
 * null if they cannot be read.
 */
export async function readNetwork(
  pid: number,
  procDir = '/proc',
): Promise<{ rx: number; tx: number } | null> {
  const text = await readOrNull(join(procDir, String(pid), 'net/dev'));
  return text === null ? null : parseNetwork(text);
}
/**
 * Parses /proc/net/dev (proc(5)): after the name, the first number is bytes received and the ninth
 * is bytes sent.
 */
export function parseNetwork(text: string): { rx: number; tx: number } | null {
  const rows = text.split('\n').flatMap((line) => {
    const [, name, values] = /^\s*([^:\s]+):\s*(.+)$/.exec(line) ?? [];
    return name === undefined || values === undefined
      ? []
      : [{ name, values: values.trim().split(/\s+/).map(Number) }];
  });
  if (rows.length === 0) return null;
  const sum = (column: number): number =>
    rows.reduce((all, { name, values }) => all + (name === 'lo' ? 0 : (values[column] ?? 0)), 0);
  const [rx, tx] = [sum(0), sum(8)];
  return Number.isSafeInteger(rx) && Number.isSafeInteger(tx) ? { rx, tx } : null;
}

/** Subtracts the file cache that the kernel drops first, which would fill any limit over time. */
const working = (used: number | null, droppable: number | null): number | null =>
  used === null ? null : Math.max(0, used - (droppable ?? 0));
const scaled = (value: number | null, by: number): number | null =>
  value === null ? null : value / by;

/** Parses a number; null for an absent file and for `max`. */
function number(text: string | null): number | null {
  const trimmed = text?.trim() ?? '';
  return /^\d+$/.test(trimmed) ? Number(trimmed) : null;
}
/** Reads one value from a file with lines `name value`. */
function field(text: string | null, name: string): number | null {
  const value = new RegExp(`^${name} (\\d+)$`, 'm').exec(text ?? '')?.[1];
  return value === undefined ? null : Number(value);
}

async function foldersIn(dir: string): Promise<string[]> {
  try {
    return (await readdir(dir, { withFileTypes: true }))
      .filter((entry) => entry.isDirectory())
      .map((entry) => entry.name);
  } catch {
    // The folder was removed meanwhile, does not exist, or is not readable.
    return [];
  }
}
const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );
/**
 * Returns null if the file does not exist or is not readable. If the container ends during the
 * reading, the error is ENODEV.
 */
const readOrNull = (path: string): Promise<string | null> =>
  readFile(path, 'utf8').catch(() => null);
