/**
 * Registers the node every 30 s, and at once after a change. The first registration starts all
 * remaining loops of the agent.
 */
import type { Logger } from '@berth/kit/log';
import { type Loop, startLoop } from '@berth/kit/loop';
import type { Node } from '@berth/wire/node';
import type { TaskLoop } from './poll-loop.ts';
import type { PortGuard } from '../engine/port-guard.ts';
import type { Registration } from './registration.ts';
import { retryUntilAnswered } from './retry.ts';

export type RegistrationLoopDeps = {
  registration: Registration;
  tasks: Pick<TaskLoop, 'abortPoll' | 'checkOpenTasks'>;
  ports: PortGuard;
  metrics: { registered(): void; registrationFailed(): void };
  /** Called after each registration. */
  onAnswer: (node: Node) => void;
  /** Called once, after the first successful registration. */
  onFirst: () => void;
  signal: AbortSignal;
  log: Logger;
};

const REGISTER_MS = 30_000;
/**
 * Pause in ms while the engine does not answer: the containers are unknown, so the next
 * registration comes sooner.
 */
const ENGINE_RETRY_MS = 5_000;

export function startRegistrationLoop({
  registration,
  tasks,
  ports,
  metrics,
  onAnswer,
  onFirst,
  signal,
  log,
}: RegistrationLoopDeps): Loop {
  let isFirst = true;

  async function register(stopping: AbortSignal): Promise<Node> {
    try {
      const node = await registration.register(stopping);
      metrics.registered();
      return node;
    } catch (error) {
      if (!stopping.aborted) metrics.registrationFailed();
      throw error;
    }
  }
  async function registerUntilAccepted(stopping: AbortSignal): Promise<Node> {
    try {
      return await register(stopping);
    } catch (error) {
      if (registration.problem() !== null) tasks.abortPoll();
      if (stopping.aborted) throw error;
      log.warn({ err: error }, 'registration failed; will retry');
      // Retry soon: a restarting control plane is back before the next period of 30 s.
      return retryUntilAnswered(() => register(stopping), {
        signal: stopping,
        minMs: 500,
        maxMs: 5_000,
      });
    }
  }

  const loop: Loop = startLoop(
    {
      name: 'register',
      periodMs: REGISTER_MS,
      async run(stopping) {
        const node = await registerUntilAccepted(AbortSignal.any([stopping, signal]));
        await ports.guard();
        tasks.checkOpenTasks(node.open_tasks);
        if (registration.engineOk() === false)
          setTimeout(() => loop.wake(), ENGINE_RETRY_MS).unref();
        onAnswer(node);
        if (isFirst) onFirst();
        isFirst = false;
      },
    },
    log,
  );
  return loop;
}
