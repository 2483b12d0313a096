/** A container engine with all containers of one machine. It outlives its agent, and a restart changes its ports. */
import type { History } from '@berth/testbed/history';
import { createDisk, type Disk } from './disk.ts';
import type { World } from './world.ts';

export type Container = {
  id: string;
  name: string;
  project: string;
  deployment: string;
  generation: number;
  /** The node whose agent started the container, by its name at that time. */
  node: string;
  /** The attempt that owns it, shown by its name: an agent that adopts it renames it (packages/agent/src/tasks/attempt-container.ts). */
  holder: { task: string; attempt: number };
  port: number;
  startedAt: number;
  running: boolean;
  /** Whether it starts again with the engine. */
  stays: boolean;
  /** Stopped on purpose: it does not start again with the engine. */
  halted: boolean;
};
type Cause = 'task' | 'contract' | 'outside' | 'hand';

export class EngineError extends Error {
  override name = 'EngineError';
}

export type Engine = {
  address: string;
  disk: Disk;
  up: boolean;
  /** Throws while the engine does not answer: that is not an empty list. */
  list(): Container[];
  run(spec: Omit<Container, 'id' | 'port' | 'startedAt' | 'running' | 'stays' | 'halted'>, cause: Cause): Container;
  stop(id: string, cause: Cause): void;
  /** Starts a stopped container, with another port. */
  start(id: string, cause?: Cause): void;
  remove(id: string, cause: Cause): void;
  keepUp(id: string): void;
  rename(id: string, name: string): void;
  takeOver(id: string, holder: Container['holder']): void;
  /** Gives every container another port. Containers without a restart policy do not start again. */
  restart(): void;
};

/** Few ports, so that they are soon used again, like on a busy machine. */
const PORTS = { from: 32_000, to: 32_030 };

export function createEngine(world: World, history: History, name: string, address: string): Engine {
  const containers = new Map<string, Container>();
  let ids = 0;
  const freePort = (): number => {
    for (;;) {
      const port = world.random.int(PORTS.from, PORTS.to);
      if (![...containers.values()].some((c) => c.running && c.port === port)) return port;
    }
  };
  const tell = (c: Container, change: 'started' | 'moved' | 'stopped' | 'removed', cause: Cause): void =>
    history.record({
      type: 'container',
      change,
      cause,
      node: c.node,
      container: c.id,
      project: c.project,
      deployment: c.deployment,
      address: `${address}:${c.port}`,
    });
  const engine: Engine = {
    address,
    disk: createDisk(history),
    up: true,
    list() {
      if (!engine.up) throw new EngineError(`the engine of ${name} does not answer`);
      return [...containers.values()].map((c) => ({ ...c }));
    },
    run(spec, cause) {
      if (!engine.up) throw new EngineError(`the engine of ${name} does not answer`);
      const fresh = { id: `${name}-c${++ids}`, port: freePort(), startedAt: world.now() };
      const container: Container = { ...spec, ...fresh, running: true, stays: false, halted: false };
      containers.set(container.id, container);
      tell(container, 'started', cause);
      return { ...container };
    },
    stop(id, cause) {
      if (!engine.up) throw new EngineError(`the engine of ${name} does not answer`);
      const container = containers.get(id);
      // Also a container that has exited already: it does not start again.
      if (container !== undefined) container.halted = true;
      if (container === undefined || !container.running) return;
      container.running = false;
      tell(container, 'stopped', cause);
    },
    start(id, cause = 'task') {
      if (!engine.up) throw new EngineError(`the engine of ${name} does not answer`);
      const container = containers.get(id);
      if (container === undefined || container.running) return;
      Object.assign(container, { running: true, halted: false, port: freePort(), startedAt: world.now() });
      tell(container, 'started', cause);
    },
    remove(id, cause) {
      engine.stop(id, cause);
      containers.delete(id);
    },
    keepUp(id) {
      const container = containers.get(id);
      if (container !== undefined) container.stays = true;
    },
    rename(id, name) {
      const container = containers.get(id);
      if (container !== undefined) container.name = name;
    },
    takeOver(id, holder) {
      const container = containers.get(id);
      if (container !== undefined) container.holder = holder;
    },
    restart() {
      engine.up = true;
      for (const container of containers.values()) {
        const was = container.running;
        container.running = container.stays && (was || !container.halted);
        if (container.running) {
          container.port = freePort();
          container.startedAt = world.now();
          tell(container, 'moved', 'outside');
        } else if (was) tell(container, 'stopped', 'outside');
      }
    },
  };
  return engine;
}
