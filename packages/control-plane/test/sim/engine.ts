/** A container engine: what runs on one machine, whoever started it. It outlives its agent, and a restart gives new ports. */
import type { History } from '@berth/testbed/history';
import type { World } from './world.ts';

export type Container = {
  id: string;
  name: string;
  project: string;
  deployment: string;
  generation: number;
  /** The node whose agent started it, as it was called then. */
  node: string;
  /** The attempt that has it, told by its name: who takes it over gives it another (packages/agent/src/tasks/attempt-container.ts). */
  holder: { task: string; attempt: number };
  port: number;
  running: boolean;
  /** Comes up again with the engine. */
  stays: boolean;
  /** Stopped on purpose: it does not. */
  halted: boolean;
};
type Cause = 'task' | 'contract' | 'outside';

export class EngineError extends Error {
  override name = 'EngineError';
}

export type Engine = {
  address: string;
  up: boolean;
  /** Throws while it does not answer: that is not "none". */
  list(): Container[];
  run(spec: Omit<Container, 'id' | 'port' | 'running' | 'stays' | 'halted'>, cause: Cause): Container;
  stop(id: string, cause: Cause): void;
  /** Of one that stands still; with another port. */
  start(id: string): void;
  remove(id: string, cause: Cause): void;
  keepUp(id: string): void;
  rename(id: string, name: string): void;
  takeOver(id: string, holder: Container['holder']): void;
  /** Everything gets another port; what was not meant to stay does not come up again. */
  restart(): void;
};

/** Few ports, so that they are used again soon, as a busy machine's are. */
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
    up: true,
    list() {
      if (!engine.up) throw new EngineError(`the engine of ${name} does not answer`);
      return [...containers.values()].map((c) => ({ ...c }));
    },
    run(spec, cause) {
      if (!engine.up) throw new EngineError(`the engine of ${name} does not answer`);
      const container: Container = { ...spec, id: `${name}-c${++ids}`, port: freePort(), running: true, stays: false, halted: false };
      containers.set(container.id, container);
      tell(container, 'started', cause);
      return { ...container };
    },
    stop(id, cause) {
      if (!engine.up) throw new EngineError(`the engine of ${name} does not answer`);
      const container = containers.get(id);
      // Also one that has ended already: it does not come up again.
      if (container !== undefined) container.halted = true;
      if (container === undefined || !container.running) return;
      container.running = false;
      tell(container, 'stopped', cause);
    },
    start(id) {
      if (!engine.up) throw new EngineError(`the engine of ${name} does not answer`);
      const container = containers.get(id);
      if (container === undefined || container.running) return;
      Object.assign(container, { running: true, halted: false, port: freePort() });
      tell(container, 'started', 'task');
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
          tell(container, 'moved', 'outside');
        } else if (was) tell(container, 'stopped', 'outside');
      }
    },
  };
  return engine;
}
