/**
 * A network for each project: containers of one project do not reach those of another. Made before the first container of the
 * project, from a pool of addresses; removed when no container of the project is left. A network without our label is never
 * touched, and its addresses are never used.
 */
import { randomBytes } from 'node:crypto';
import type { Logger } from '@berth/kit/log';
import { LABELS } from '@berth/wire/vocabulary';
import type { Locks } from './locks.ts';
import type { DockerNetworks, Network } from './tools/docker-networks.ts';
import { TaskFailure } from './tools/failures.ts';

export type Networks = {
  /** Id of the project's network on this node; null: containers get the engine's default one. TaskFailure network_pool_exhausted. */
  of(project: string, node: string, signal: AbortSignal): Promise<string | null>;
  /** The engine does not know it any more. */
  forget(project: string): void;
  /** Keeps the project's network from being removed until the returned function is called. */
  hold(project: string): () => void;
  /** Soon, in the background: removes those that no container has. */
  cleanLater(): void;
  /** Resolves when nothing is under way; nothing begins any more. */
  stop(): Promise<void>;
};

/** IPv4 addresses as a range of numbers. */
export type Range = { first: number; last: number };
/** Addresses of one project: 13 containers, the gateway and the two that no host may have. */
const BITS = 28;
const SIZE = 2 ** (32 - BITS);
const DELAY_MS = 5_000;
/** Of another agent on this engine that takes the same addresses at the same time. */
const TRIES = 20;

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
const textOf = (address: number): string => [24, 16, 8, 0].map((shift) => Math.floor(address / 2 ** shift) % 256).join('.');

/** The first part of `pool` that overlaps with none of `taken`, as CIDR; null: there is none. */
export function freeSubnet(pool: Range, taken: readonly Range[]): string | null {
  for (let first = pool.first; first + SIZE - 1 <= pool.last; first += SIZE) {
    const last = first + SIZE - 1;
    if (!taken.some((range) => range.first <= last && range.last >= first)) return `${textOf(first)}/${BITS}`;
  }
  return null;
}

export type NetworksDeps = {
  docker: DockerNetworks;
  locks: Locks;
  /** Null: no networks are made. */
  pool: Range | null;
  /** This agent, as networks name it. */
  owner: string;
  log: Logger;
  delayMs?: number;
};

export function createNetworks({ docker, locks, pool, owner, log, delayMs = DELAY_MS }: NetworksDeps): Networks {
  const known = new Map<string, string>();
  const held = new Map<string, number>();
  let timer: NodeJS.Timeout | undefined;
  let cleaning: Promise<void> = Promise.resolve();
  let stopped = false;
  const never = new AbortController().signal;

  async function make(labels: Record<string, string>, networks: readonly Network[], from: Range, signal: AbortSignal): Promise<string> {
    const project = labels[LABELS.project] ?? '';
    const taken = networks.flatMap(({ subnets }) => subnets.flatMap((subnet) => rangeOf(subnet) ?? []));
    for (let tries = 0; tries < TRIES; tries += 1) {
      const subnet = freeSubnet(from, taken);
      if (subnet === null) break;
      // Two networks of one name are possible, and then neither is found by it.
      const name = `berth-${project.slice(0, 40)}-${randomBytes(3).toString('hex')}`;
      const id = await docker.create({ name, subnet, labels }, signal);
      if (id !== null) {
        log.info({ project, subnet, network: name }, 'network made');
        return id;
      }
      const range = rangeOf(subnet);
      if (range !== null) taken.push(range);
    }
    throw new TaskFailure(
      'network_pool_exhausted',
      `all of PROJECT_NETWORK_POOL (${textOf(from.first)} to ${textOf(from.last)}) is in use`,
    );
  }
  async function clean(): Promise<void> {
    const unlock = await locks.hold('networks', never);
    try {
      for (const network of await docker.list()) {
        const project = network.labels[LABELS.project] ?? '';
        if (network.labels[LABELS.network] !== owner || held.has(project) || stopped) continue;
        if (await docker.isUsed(network.id)) continue;
        known.delete(project);
        if (await docker.remove(network.id)) log.info({ project, network: network.name }, 'empty network removed');
      }
    } finally {
      unlock();
    }
  }

  return {
    async of(project, node, signal) {
      if (pool === null) return null;
      const cached = known.get(project);
      if (cached !== undefined) return cached;
      const labels = { [LABELS.network]: owner, [LABELS.project]: project, [LABELS.node]: node };
      const unlock = await locks.hold('networks', signal);
      try {
        const networks = await docker.list(signal);
        const there = networks.find(({ labels }) => labels[LABELS.network] !== undefined && labels[LABELS.project] === project);
        const id = there?.id ?? (await make(labels, networks, pool, signal));
        known.set(project, id);
        return id;
      } finally {
        unlock();
      }
    },
    forget: (project) => void known.delete(project),
    hold(project) {
      held.set(project, (held.get(project) ?? 0) + 1);
      return () => {
        const left = (held.get(project) ?? 1) - 1;
        if (left > 0) held.set(project, left);
        else held.delete(project);
      };
    },
    cleanLater() {
      if (pool === null || stopped) return;
      timer ??= setTimeout(() => {
        timer = undefined;
        cleaning = cleaning
          .then(clean)
          .catch((err: unknown) => log.warn({ err }, 'empty networks could not be removed; tried again after the next task'));
      }, delayMs).unref();
    },
    async stop() {
      stopped = true;
      clearTimeout(timer);
      await cleaning;
    },
  };
}
