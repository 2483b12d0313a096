/**
 * Chooses the host port of a new container from this agent's own range, and publishes the container
 * on exactly this port. If the engine chose the port, it would change at each start of the
 * container or the engine: after a reboot, the route of one project could lead to another project.
 * The range is outside the one from which engine and kernel take ports, so no other program takes
 * the port of a stopped container. Released ports are reused as late as possible, because a proxy
 * might still have the old route: first the ports that were never used, then the ports that were
 * released longest ago. This order is saved on disk. If it is lost, the search starts at a random
 * port.
 */
import { randomInt } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Logger } from '@berth/kit/log';
import { writeFileWhole } from '@berth/kit/write-file';
import type { Locks } from '../locks.ts';
import type { Ports } from './port-rule.ts';
import type { Container } from './docker.ts';
import { TaskFailure } from '../failures.ts';

export type HostPorts = {
  range: Ports;
  /**
   * Reserves the best free port. Call `release` when the container exists or its start has failed.
   * Rejects with ports_exhausted.
   */
  take(signal: AbortSignal): Promise<{ port: number; release: () => void }>;
};
export type HostPortsDeps = {
  range: Ports;
  path: string;
  /**
   * Returns all containers of Berth on the engine, running or stopped, including those of other
   * nodes.
   */
  listAll: (signal: AbortSignal) => Promise<readonly Pick<Container, 'hostPort' | 'fixedPort'>[]>;
  locks: Locks;
  log: Logger;
  /** For tests: the offset in the range at which the search starts if no order is saved. */
  startAt?: (size: number) => number;
};

/** `used`: ports in the order in which they were last used. */
type Saved = { start: number; used: number[] };

export async function createHostPorts({
  range,
  path,
  listAll,
  locks,
  log,
  startAt = randomInt,
}: HostPortsDeps): Promise<HostPorts> {
  const { first, last } = range;
  const size = last - first + 1;
  const saved = (await read(path, log)) ?? { start: first + startAt(size), used: [] };
  const isInRange = (port: number): boolean => port >= first && port <= last;
  const start = isInRange(saved.start) ? saved.start : first;
  /** A Set keeps the insertion order. */
  const used = new Set(saved.used.filter(isInRange));
  const reserved = new Set<number>();

  const mark = (port: number): void => {
    used.delete(port);
    if (isInRange(port)) used.add(port);
  };
  function neverUsed(): number | undefined {
    if (used.size >= size) return undefined;
    return Array.from({ length: size }, (_, i) => first + ((start - first + i) % size)).find(
      (port) => !used.has(port),
    );
  }

  return {
    range,
    async take(signal) {
      const unlock = await locks.acquire('host ports', signal);
      try {
        const present = new Set([
          ...(await listAll(signal)).flatMap((c) => c.fixedPort ?? c.hostPort ?? []),
          ...reserved,
        ]);
        for (const port of present) mark(port);
        const port = neverUsed() ?? [...used].find((one) => !present.has(one));
        if (port === undefined)
          throw new TaskFailure(
            'ports_exhausted',
            `containers have all ${size} ports from ${first} to ${last} (PUBLISH_PORTS)`,
          );
        mark(port);
        await save(path, { start, used: [...used] }, log);
        reserved.add(port);
        return { port, release: () => void reserved.delete(port) };
      } finally {
        unlock();
      }
    },
  };
}

/** The engine’s errors for a port that is already in use. */
const PORT_TAKEN = /port is already allocated|address already in use/i;
export const isPortTaken = (error: unknown): boolean =>
  error instanceof TaskFailure && PORT_TAKEN.test(error.detail);

async function read(path: string, log: Logger): Promise<Saved | null> {
  try {
    const { start, used } = JSON.parse(await readFile(path, 'utf8')) as Partial<Saved>;
    if (!Number.isInteger(start) || !Array.isArray(used))
      throw new Error('the file holds no ports');
    return { start: start as number, used: used.filter((port) => Number.isInteger(port)) };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
      log.warn(
        { err: error, path },
        'reading the order of host ports failed; starting at a random port',
      );
    return null;
  }
}

async function save(path: string, order: Saved, log: Logger): Promise<void> {
  try {
    await writeFileWhole(path, JSON.stringify(order), { mode: 0o600 });
  } catch (error) {
    // A full disk must not prevent a start; the order is still in memory.
    log.warn({ err: error }, 'saving the order of host ports failed');
  }
}
