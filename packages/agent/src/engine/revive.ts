/**
 * Starts containers that should run but are stopped after an engine restart. If only engine 20.10
 * is killed, it stops the surviving containers at its next start and does not restart them,
 * whatever their restart policy is. A project would then be down until a person starts it.
 *
 *   watching ──the event stream broke──▶ suspicious
 *   suspicious ──SETTLE_MS after a complete check of the containers──▶ watching
 *   just started ──the engine process differs from the one at the last check──▶ suspicious
 *
 * While suspicious, the agent starts each exited container that ran at the last check, has its
 * restart policy, and was not stopped on purpose by an agent. If a person stops a container while
 * the engine runs, the agent sees this before it becomes suspicious. The last check and the agent's
 * own stops are saved on disk, because agent and engine might be killed together.
 */
import type { Logger } from '@berth/kit/log';
import { createRunMemory, type RunMemory } from './run-memory.ts';
import type { Container, Docker } from './docker.ts';

/** The engine answers before it has finished stopping containers. */
const SETTLE_MS = 10_000;
/**
 * Time that an engine can need at its start: it stops the containers that it finds (10 s each, in
 * parallel) before it records its start.
 */
const STOPPING_MS = 20_000;

export type Revival = {
  /**
   * Wraps Docker and records each stop. Revival does not restart a container that a task stopped.
   */
  docker: Docker;
  /** Call this when the engine might have been restarted. */
  suspect(): void;
  /**
   * Starts the listed containers that should run. Returns true if it started any: the list is then
   * out of date.
   */
  revive(listed: readonly Container[], signal: AbortSignal): Promise<boolean>;
};

const RESTART_POLICY = 'unless-stopped';

export async function createRevival(
  docker: Docker,
  { path, log, now = () => performance.now() }: { path: string; log: Logger; now?: () => number },
): Promise<Revival> {
  let suspiciousUntil = 0;
  /**
   * A container that ended before this time was stopped while no agent ran, and not by the engine.
   */
  let endedSince = 0;
  let started = false;
  const memory: RunMemory = await createRunMemory(path, log);

  /**
   * Becomes suspicious if the engine restarted after the last check of the previous agent process.
   */
  async function start(
    listed: readonly Container[],
    engine: string | undefined,
    since: number,
  ): Promise<void> {
    started = true;
    await memory.retainOnly(listed);
    if (engine === undefined || memory.engine() === null || memory.engine() === engine) return;
    log.warn('the engine was restarted while this agent was away');
    suspiciousUntil = Infinity;
    endedSince = since - STOPPING_MS;
  }

  async function reviveOne(container: Container, signal: AbortSignal): Promise<boolean> {
    if ((await docker.restartPolicy(container.id, signal)) !== RESTART_POLICY) return false;
    // A task might have stopped the container after it was listed.
    if (memory.wasStopped(container)) return false;
    log.warn(
      { container: container.name, exit_code: container.exitCode },
      'restarting a container that ran before the engine restart',
    );
    try {
      await docker.start(container.id);
      return true;
    } catch (error) {
      // Continue with the next container: the agent reports this container in its current state.
      log.error({ err: error, container: container.name }, 'restarting the container failed');
      return false;
    }
  }

  const isDue = (c: Container): boolean =>
    c.state === 'exited' &&
    memory.ran(c) &&
    !memory.wasStopped(c) &&
    (c.finishedAt === null || Date.parse(c.finishedAt) >= endedSince);

  return {
    docker: {
      ...docker,
      // Record the stop first. A check in between, or one after agent and engine were both killed,
      // must not start the container again.
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
    async revive(listed, signal) {
      const engine = await docker.engineStart(signal);
      if (!started) await start(listed, engine?.id, engine?.since ?? 0);
      const due = now() < suspiciousUntil ? listed.filter(isDue) : [];
      let anyStarted = false;
      for (const container of due) anyStarted = (await reviveOne(container, signal)) || anyStarted;
      if (suspiciousUntil === Infinity) suspiciousUntil = now() + SETTLE_MS;
      else if (now() >= suspiciousUntil) endedSince = 0;
      const runs = listed.filter((c) => c.state === 'running' || due.includes(c)).map((c) => c.id);
      await memory.checked({ engine: engine?.id ?? null, running: runs });
      return anyStarted;
    },
  };
}
