/**
 * The containers of runs on one machine, and the marks of the runs that might have started. Both
 * outlive the agent. A command ends by itself, also while no agent looks.
 */
import type { History } from '@berth/testbed/history';
import { EngineError } from './engine-error.ts';
import type { Life, World } from './world.ts';

export type CommandContainer = {
  id: string;
  run: string;
  project: string;
  /** The node whose agent created it, by its id at that time. */
  node: string;
  /** CDI devices. */
  devices: readonly string[];
  /** Null: it was never started. */
  startedAt: number | null;
  exitCode: number | null;
};
/** How a command behaves: when it ends by itself, and with which exit code. */
export type Behaviour = { ms: number; exitCode: number };
export type Commands = {
  marks: Set<string>;
  /** Throws while the engine does not answer. */
  list(): CommandContainer[];
  create(spec: Pick<CommandContainer, 'run' | 'project' | 'node' | 'devices'>): string;
  start(id: string, behaviour: Behaviour): void;
  stop(id: string): void;
  remove(id: string): void;
  /** The engine or the machine ends: none has a restart policy. */
  crash(): void;
};

/** Exit codes after SIGTERM and SIGKILL. */
const TERMINATED = 143;
const KILLED = 137;

export function createCommands(
  world: World,
  history: History,
  machine: string,
  isUp: () => boolean,
): Commands {
  const containers = new Map<string, CommandContainer>();
  const life: Life = { name: `commands of ${machine}`, alive: true };
  let ids = 0;
  const check = (): void => {
    if (!isUp()) throw new EngineError(`the engine of ${machine} does not answer`);
  };
  const isRunning = (c: CommandContainer): boolean => c.startedAt !== null && c.exitCode === null;

  function end(id: string, exitCode: number): void {
    const container = containers.get(id);
    if (container === undefined || !isRunning(container)) return;
    container.exitCode = exitCode;
    tell(container, 'ended');
  }
  const tell = (
    { id, run, project, exitCode, devices }: CommandContainer,
    change: 'started' | 'ended',
  ): void =>
    history.record({
      type: 'command',
      change,
      machine,
      container: id,
      project,
      run,
      code: exitCode,
      ...(devices.length === 0 ? {} : { devices: devices.map((one) => `${machine}/${one}`) }),
    });

  return {
    marks: new Set(),
    list() {
      check();
      return [...containers.values()].map((c) => ({ ...c }));
    },
    create(spec) {
      check();
      const id = `${machine}-r${++ids}`;
      containers.set(id, { ...spec, id, startedAt: null, exitCode: null });
      return id;
    },
    start(id, { ms, exitCode }) {
      check();
      const container = containers.get(id);
      if (container === undefined || container.startedAt !== null)
        throw new EngineError(`${id} cannot start`);
      container.startedAt = world.now();
      tell(container, 'started');
      world.after(ms, life, () => end(id, exitCode));
    },
    stop(id) {
      check();
      end(id, TERMINATED);
    },
    remove(id) {
      check();
      end(id, KILLED);
      containers.delete(id);
    },
    crash() {
      for (const id of containers.keys()) end(id, KILLED);
    },
  };
}
