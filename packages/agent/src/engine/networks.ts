/**
 * Manages one network per project, so that containers of different projects cannot reach each
 * other. The agent creates a network from a pool of addresses before the project's first container,
 * and removes it after the last one. It never touches networks without Berth's label, and never
 * uses their addresses.
 */
import { randomBytes } from 'node:crypto';
import type { Logger } from '@berth/kit/log';
import { LABELS } from '@berth/wire/vocabulary';
import type { Locks } from '../locks.ts';
import { createRefCounts } from '@berth/kit/ref-count';
import type { DockerNetworks, Network } from './docker-networks.ts';
import { TaskFailure } from '../failures.ts';

export type Networks = {
  /**
   * Returns the id of the project's network on this node; null if containers use the engine's
   * default network. Throws TaskFailure network_pool_exhausted.
   */
  of(project: string, node: string, signal: AbortSignal): Promise<string | null>;
  /** Call this when the engine no longer has the network. */
  forget(project: string): void;
  /** Keeps the project's network from being removed until the returned function is called. */
  protect(project: string): () => void;
  /** Schedules the removal of this agent's unused networks in the background. */
  cleanLater(): void;
  /** Resolves when no clean-up is running. No clean-up starts afterwards. */
  stop(): Promise<void>;
};

/** A range of IPv4 addresses as numbers. */
export type Range = { first: number; last: number };
/**
 * Prefix length of one project’s network: 16 addresses for 13 containers, the gateway, the network
 * address and the broadcast address.
 */
const PREFIX_BITS = 28;
const SIZE = 2 ** (32 - PREFIX_BITS);
const DELAY_MS = 5_000;
/** Another agent on this engine can take the same addresses at the same time. */
const MAX_TRIES = 20;

export function rangeOf(cidr: string): Range | null {
  const match = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\/(\d{1,2})$/.exec(cidr);
  const bits = Number(match?.[5]);
  const bytes = match?.slice(1, 5).map(Number) ?? [];
  if (match === null || bits > 32 || bytes.some((byte) => byte > 255)) return null;
  const size = 2 ** (32 - bits);
  const address = bytes.reduce((sum, byte) => sum * 256 + byte, 0);
  const first = Math.floor(address / size) * size;
  return { first, last: first + size - 1 };
}
const textOf = (address: number): string =>
  [24, 16, 8, 0].map((shift) => Math.floor(address / 2 ** shift) % 256).join('.');

/** Returns the first free network of `pool` as CIDR; null if all addresses are in use. */
export function freeSubnet(pool: Range, taken: readonly Range[]): string | null {
  for (let first = pool.first; first + SIZE - 1 <= pool.last; first += SIZE) {
    const last = first + SIZE - 1;
    if (!taken.some((range) => range.first <= last && range.last >= first))
      return `${textOf(first)}/${PREFIX_BITS}`;
  }
  return null;
}

export type NetworksDeps = {
  docker: DockerNetworks;
  locks: Locks;
  /** Null if projects get no networks of their own. */
  pool: Range | null;
  /** The agent’s id, which marks its networks. */
  owner: string;
  /** Called before the first container uses a new network. */
  onCreated?: () => Promise<void>;
  log: Logger;
  delayMs?: number;
};

export function createNetworks({
  docker,
  locks,
  pool,
  owner,
  onCreated,
  log,
  delayMs = DELAY_MS,
}: NetworksDeps): Networks {
  const ids = new Map<string, string>();
  const protectedProjects = createRefCounts();
  let timer: NodeJS.Timeout | undefined;
  let cleaning: Promise<void> = Promise.resolve();
  let stopped = false;
  const never = new AbortController().signal;

  async function make(
    labels: Record<string, string>,
    networks: readonly Network[],
    from: Range,
    signal: AbortSignal,
  ): Promise<string> {
    const project = labels[LABELS.project] ?? '';
    const taken = networks.flatMap(({ subnets }) =>
      subnets.flatMap((subnet) => rangeOf(subnet) ?? []),
    );
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const subnet = freeSubnet(from, taken);
      if (subnet === null) break;
      // The engine allows two networks with the same name, and then finds neither by name. Random
      // digits keep the name unique.
      const name = `berth-${project.slice(0, 40)}-${randomBytes(3).toString('hex')}`;
      const id = await docker.create({ name, subnet, labels }, signal);
      if (id !== null) {
        log.info({ project, subnet, network: name }, 'project network created');
        await onCreated?.();
        return id;
      }
      const range = rangeOf(subnet);
      if (range !== null) taken.push(range);
    }
    throw new TaskFailure(
      'network_pool_exhausted',
      `all addresses of PROJECT_NETWORK_POOL (${textOf(from.first)} to ${textOf(from.last)}) ` +
        'are in use; set a larger pool',
    );
  }
  async function clean(): Promise<void> {
    const unlock = await locks.acquire('networks', never);
    try {
      for (const network of await docker.list()) {
        const project = network.labels[LABELS.project] ?? '';
        if (network.labels[LABELS.network] !== owner || protectedProjects.has(project) || stopped)
          continue;
        if (await docker.isUsed(network.id)) continue;
        ids.delete(project);
        if (await docker.remove(network.id))
          log.info({ project, network: network.name }, 'unused project network removed');
      }
    } finally {
      unlock();
    }
  }

  return {
    async of(project, node, signal) {
      if (pool === null) return null;
      const cached = ids.get(project);
      if (cached !== undefined) return cached;
      const labels = { [LABELS.network]: owner, [LABELS.project]: project, [LABELS.node]: node };
      const unlock = await locks.acquire('networks', signal);
      try {
        const networks = await docker.list(signal);
        const existing = networks.find(
          ({ labels }) =>
            labels[LABELS.network] !== undefined && labels[LABELS.project] === project,
        );
        const id = existing?.id ?? (await make(labels, networks, pool, signal));
        ids.set(project, id);
        return id;
      } finally {
        unlock();
      }
    },
    forget: (project) => void ids.delete(project),
    protect: protectedProjects.add,
    cleanLater() {
      if (pool === null || stopped) return;
      timer ??= setTimeout(() => {
        timer = undefined;
        cleaning = cleaning
          .then(clean)
          .catch((err: unknown) =>
            log.warn(
              { err },
              'removing unused project networks failed; will retry after the next task',
            ),
          );
      }, delayMs).unref();
    },
    async stop() {
      stopped = true;
      clearTimeout(timer);
      await cleaning;
    },
  };
}
