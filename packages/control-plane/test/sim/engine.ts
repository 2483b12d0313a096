/**
 * A container engine with all containers of one machine. It outlives its agent. A restart changes
 * the ports that the engine chose, and keeps those that an agent chose.
 */
import type { History } from '@berth/testbed/history';
import { type Commands, createCommands } from './commands.ts';
import { createDisk, type Disk } from './disk.ts';
import { EngineError } from './engine-error.ts';
import { createRandom } from './random.ts';
import type { World } from './world.ts';

/** The kind of the devices that machines have. */
export const DEVICE = 'sim.example/gpu';

export type Container = {
  id: string;
  name: string;
  project: string;
  deployment: string;
  generation: number;
  /** Its label: the instance beside the first one; null: it has no such label. */
  instance: string | null;
  /** The process of a container without a port; null: it serves HTTP. */
  process: string | null;
  /** The node whose agent started the container, by its name at that time. */
  node: string;
  /**
   * The attempt that owns it, shown by its name: an agent that adopts it renames it
   * (packages/agent/src/tasks/attempt-container.ts).
   */
  holder: { task: string; attempt: number };
  port: number;
  /** Its agent chose the port, which stays its own until it is removed. */
  keepsPort: boolean;
  /** No other version may run beside it (`replace: recreate`). */
  alone: boolean;
  /** CDI devices. */
  devices: readonly string[];
  startedAt: number;
  running: boolean;
  /** Whether it starts again with the engine. */
  stays: boolean;
  /** Stopped on purpose: it does not start again with the engine. */
  halted: boolean;
};
type Cause = 'task' | 'contract' | 'outside' | 'hand';

export type Engine = {
  readonly address: string;
  disk: Disk;
  /** The containers of runs. */
  commands: Commands;
  up: boolean;
  /** Throws while the engine does not answer: that is not an empty list. */
  list(): Container[];
  run(
    spec: Omit<Container, 'id' | 'port' | 'startedAt' | 'running' | 'stays' | 'halted'>,
    cause: Cause,
  ): Container;
  /** `forNext`: so that another version can start. */
  stop(id: string, cause: Cause, forNext?: boolean): void;
  /** Starts a stopped container. */
  start(id: string, cause?: Cause): void;
  remove(id: string, cause: Cause): void;
  keepUp(id: string): void;
  rename(id: string, name: string): void;
  takeOver(id: string, holder: Container['holder']): void;
  /** Starts it again, and each container with a restart policy. */
  restart(): void;
  /** Ends it and every container at once. Until `powerOn`, nothing starts on the machine. */
  cutPower(): void;
  powerOn(): void;
  isOff(): boolean;
  /** The next container whose port the engine chooses gets this one if it is free. */
  nextPort(port: number): void;
  /** The machine gets another address. */
  moveTo(address: string): void;
};

/** Few ports, so that they are soon used again, like on a busy machine. */
const ENGINE_PORTS = { from: 32_000, size: 30 };
/**
 * As packages/agent/src/engine/host-ports.ts: a port that was given up rests while others can be
 * used.
 */
const OWN_PORTS = { from: 20_000, size: 40 };

/** `loosePorts`: a planted bug, the engine chooses the ports that an agent should choose. */
export function createEngine(
  world: World,
  history: History,
  name: string,
  address: string,
  loosePorts = false,
): Engine {
  const containers = new Map<string, Container>();
  const chance = createRandom(world.random.int(1, 1e9));
  let host = address;
  let isOff = false;
  history.record({ type: 'addressed', machine: name, host });
  let ids = 0;
  let counted = 0;
  const portOfEngine = (): number => {
    for (;;) {
      const port = ENGINE_PORTS.from + (counted++ % ENGINE_PORTS.size);
      if (![...containers.values()].some((c) => c.running && c.port === port)) return port;
    }
  };
  /** Its own ports, the one that rests longest first. */
  const order = Array.from({ length: OWN_PORTS.size }, (_, i) => i);
  order.push(...order.splice(0, chance.int(0, OWN_PORTS.size - 1)));
  const ownPort = (): number => {
    const place = order.findIndex(
      (i) => ![...containers.values()].some((c) => c.port === OWN_PORTS.from + i),
    );
    if (place < 0) throw new EngineError(`${name} has no free port`);
    const [i = 0] = order.splice(place, 1);
    order.push(i);
    return OWN_PORTS.from + i;
  };
  const give = (keepsPort: boolean): number =>
    keepsPort && !loosePorts ? ownPort() : portOfEngine();
  /** Returns the port of a container that starts again. */
  const again = (c: Container): number => (c.keepsPort && !loosePorts ? c.port : portOfEngine());
  const tell = (
    c: Container,
    change: 'started' | 'moved' | 'stopped' | 'removed',
    cause: Cause,
    forNext = false,
  ): void => {
    if (c.process !== null) {
      // A container that moves has started again with its engine.
      tellWorker(c, c.process, change === 'moved' ? 'started' : change);
      return;
    }
    history.record({
      type: 'container',
      change,
      cause,
      node: c.node,
      container: c.id,
      project: c.project,
      deployment: c.deployment,
      address: `${host}:${c.port}`,
      ...(c.keepsPort ? { keeps_port: true } : {}),
      ...(c.alone ? { alone: true } : {}),
      ...(c.instance === null ? {} : { instance: c.instance }),
      ...(c.devices.length === 0 ? {} : { devices: c.devices.map((one) => `${name}/${one}`) }),
      ...(forNext ? { for_next: true } : {}),
    });
  };
  const tellWorker = (
    { node, id, project, deployment }: Container,
    process: string,
    change: 'started' | 'stopped' | 'removed',
  ): void =>
    history.record({ type: 'worker', change, node, container: id, project, deployment, process });
  const engine: Engine = {
    get address() {
      return host;
    },
    disk: createDisk(history),
    commands: createCommands(world, history, name, () => engine.up),
    up: true,
    list() {
      if (!engine.up) throw new EngineError(`the engine of ${name} does not answer`);
      return [...containers.values()].map((c) => ({ ...c }));
    },
    run(spec, cause) {
      if (!engine.up) throw new EngineError(`the engine of ${name} does not answer`);
      const fresh = { id: `${name}-c${++ids}`, port: give(spec.keepsPort), startedAt: world.now() };
      const container: Container = {
        ...spec,
        ...fresh,
        running: true,
        stays: false,
        halted: false,
      };
      containers.set(container.id, container);
      tell(container, 'started', cause);
      return { ...container };
    },
    stop(id, cause, forNext = false) {
      if (!engine.up) throw new EngineError(`the engine of ${name} does not answer`);
      const container = containers.get(id);
      // Also a container that has exited already: it does not start again.
      if (container !== undefined) container.halted = true;
      if (container === undefined || !container.running) return;
      container.running = false;
      tell(container, 'stopped', cause, forNext);
    },
    start(id, cause = 'task') {
      if (!engine.up) throw new EngineError(`the engine of ${name} does not answer`);
      const container = containers.get(id);
      if (container === undefined || container.running) return;
      Object.assign(container, {
        running: true,
        halted: false,
        port: again(container),
        startedAt: world.now(),
      });
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
      if (isOff) return;
      engine.up = true;
      engine.commands.crash();
      const all = [...containers.values()];
      const starting = all.filter((c) => c.stays && (c.running || !c.halted));
      for (const c of all) {
        if (c.running) tell(c, 'stopped', 'outside');
        c.running = false;
      }
      // They come up in any order, and the engine counts from the same port as before.
      const ports = starting.flatMap((c) => (c.keepsPort && !loosePorts ? [] : [c.port]));
      for (const c of starting) {
        const [taken] =
          c.keepsPort && !loosePorts ? [] : ports.splice(chance.int(0, ports.length - 1), 1);
        Object.assign(c, { port: taken ?? c.port, running: true, startedAt: world.now() });
        tell(c, 'moved', 'outside');
      }
    },
    cutPower() {
      isOff = true;
      engine.up = false;
      engine.commands.crash();
      for (const c of containers.values()) {
        if (c.running) tell(c, 'stopped', 'outside');
        c.running = false;
      }
    },
    powerOn() {
      isOff = false;
      engine.restart();
    },
    isOff: () => isOff,
    nextPort(port) {
      counted = Math.max(0, port - ENGINE_PORTS.from);
    },
    moveTo(next) {
      host = next;
      history.record({ type: 'addressed', machine: name, host });
    },
  };
  return engine;
}
