/**
 * After the engine was away: starts again what should run and does not. Engine 20.10, killed alone, stops the containers that
 * outlived it and leaves them stopped, whatever their restart policy says; without us a project would be down until a person comes.
 *
 *   watching ──the event stream broke──▶ suspicious ──SETTLE_MS after a look at the containers worked──▶ watching
 *
 * Meanwhile, one that our last look saw running, that has its restart policy and that nobody of ours stopped is started.
 * What a person stops while the engine is there is seen stopped before it could ever count.
 */
import type { Logger } from '@berth/kit/log';
import type { Container, Docker } from './tools/docker.ts';

/** The engine answers before it has stopped all that it is going to stop. */
const SETTLE_MS = 10_000;

export type Revival = {
  /** The same docker, whose stops are remembered: what a task stopped stays stopped. */
  docker: Docker;
  /** The engine may have been restarted. */
  suspect(): void;
  /** Looks at what was listed, and starts what should run. True: something was started, so the list is old. */
  look(seen: readonly Container[], signal: AbortSignal): Promise<boolean>;
};

const RESTARTS = 'unless-stopped';

export function createRevival(docker: Docker, log: Logger, now: () => number = Date.now): Revival {
  let suspiciousUntil = 0;
  let running = new Set<string>();
  const stopped = new Set<string>();

  async function revive(container: Container, signal: AbortSignal): Promise<boolean> {
    if ((await docker.restartPolicy(container.id, signal)) !== RESTARTS) return false;
    log.warn({ container: container.name, exit_code: container.exitCode }, 'it ran before the engine was restarted; starting it again');
    try {
      await docker.start(container.id);
      return true;
    } catch (error) {
      // It is reported as it is; the others must not wait for it.
      log.error({ err: error, container: container.name }, 'could not be started again');
      return false;
    }
  }

  return {
    docker: {
      ...docker,
      // Before it happens: a look in the middle of it must not undo it.
      stop(id, graceSeconds, signal) {
        stopped.add(id);
        return docker.stop(id, graceSeconds, signal);
      },
      async remove(id) {
        stopped.add(id);
        await docker.remove(id);
        stopped.delete(id);
      },
      async start(id) {
        stopped.delete(id);
        await docker.start(id);
      },
    },
    suspect: () => void (suspiciousUntil = Infinity),
    async look(seen, signal) {
      const due = now() < suspiciousUntil ? seen.filter((c) => c.state === 'exited' && running.has(c.id) && !stopped.has(c.id)) : [];
      let any = false;
      for (const container of due) any = (await revive(container, signal)) || any;
      if (suspiciousUntil === Infinity) suspiciousUntil = now() + SETTLE_MS;
      running = new Set(seen.filter((c) => c.state === 'running' || due.includes(c)).map((c) => c.id));
      return any;
    },
  };
}
