/**
 * After the engine was away: starts again what should run and does not. Engine 20.10, killed alone, stops the containers that
 * outlived it and leaves them stopped, whatever their restart policy says; without us a project would be down until a person comes.
 *
 *   watching ──the event stream broke──▶ suspicious ──SETTLE_MS after a look at the containers worked──▶ watching
 *   just begun ──another engine process than the last look saw──▶ suspicious
 *
 * Meanwhile, one that our last look saw running, that has its restart policy and that nobody of ours stopped is started.
 * What a person stops while the engine is there is seen stopped before it could ever count. The last look and our own stops are
 * remembered on disk: agent and engine may end together.
 */
import type { Logger } from '@berth/kit/log';
import { createRunMemory, type RunMemory } from './run-memory.ts';
import type { Container, Docker } from './tools/docker.ts';

/** The engine answers before it has stopped all that it is going to stop. */
const SETTLE_MS = 10_000;
/** How long an engine that starts takes to stop what it finds (10 s for each, all at once), before it says that it is there. */
const STOPPING_MS = 20_000;

export type Revival = {
  /** The same docker, whose stops are remembered: what a task stopped stays stopped. */
  docker: Docker;
  /** The engine may have been restarted. */
  suspect(): void;
  /** Looks at what was listed, and starts what should run. True: something was started, so the list is old. */
  look(seen: readonly Container[], signal: AbortSignal): Promise<boolean>;
};

const RESTARTS = 'unless-stopped';

export async function createRevival(
  docker: Docker,
  { path, log, now = Date.now }: { path: string; log: Logger; now?: () => number },
): Promise<Revival> {
  let suspiciousUntil = 0;
  /** What ended before that was stopped while nobody of us was there, and by somebody else than the engine. */
  let endedSince = 0;
  let begun = false;
  const memory: RunMemory = await createRunMemory(path, log);

  /** Whether the engine was restarted since an earlier process of ours looked. */
  async function begin(seen: readonly Container[], engine: string | undefined, since: number): Promise<void> {
    begun = true;
    await memory.onlyOf(seen);
    if (engine === undefined || memory.engine() === null || memory.engine() === engine) return;
    log.warn('the engine was restarted while this agent was away');
    suspiciousUntil = Infinity;
    endedSince = since - STOPPING_MS;
  }

  async function revive(container: Container, signal: AbortSignal): Promise<boolean> {
    if ((await docker.restartPolicy(container.id, signal)) !== RESTARTS) return false;
    // A task may have begun with it since it was listed.
    if (memory.wasStopped(container)) return false;
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

  const isDue = (c: Container): boolean =>
    c.state === 'exited' && memory.ran(c) && !memory.wasStopped(c) && (c.finishedAt === null || Date.parse(c.finishedAt) >= endedSince);

  return {
    docker: {
      ...docker,
      // Before it happens: a look in the middle of it, or after the two of us were killed in it, must not undo it.
      async stop(id, graceSeconds, signal) {
        await memory.stopping(id);
        await docker.stop(id, graceSeconds, signal);
      },
      async remove(ref) {
        await memory.stopping(ref);
        await docker.remove(ref);
        await memory.forget(ref);
      },
      async start(id) {
        await memory.forget(id);
        await docker.start(id);
      },
    },
    suspect: () => void (suspiciousUntil = Infinity),
    async look(seen, signal) {
      const engine = await docker.incarnation(signal);
      if (!begun) await begin(seen, engine?.id, engine?.since ?? 0);
      const due = now() < suspiciousUntil ? seen.filter(isDue) : [];
      let any = false;
      for (const container of due) any = (await revive(container, signal)) || any;
      if (suspiciousUntil === Infinity) suspiciousUntil = now() + SETTLE_MS;
      else if (now() >= suspiciousUntil) endedSince = 0;
      const runs = seen.filter((c) => c.state === 'running' || due.includes(c)).map((c) => c.id);
      await memory.looked({ engine: engine?.id ?? null, running: runs });
      return any;
    },
  };
}
