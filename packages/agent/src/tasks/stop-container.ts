import type { Container, Docker } from '../engine/docker.ts';
import type { TaskContext } from './task.ts';

const KILLED = 137;

/**
 * Stops a container. Adds a log line and a note if its program was killed after the grace period.
 */
export async function stopContainer(
  docker: Pick<Docker, 'stop' | 'inspect'>,
  container: Container,
  graceSeconds: number,
  step: string,
  { signal, logStep, note }: Pick<TaskContext, 'signal' | 'logStep' | 'note'>,
): Promise<void> {
  const from = performance.now();
  await docker.stop(container.id, graceSeconds, signal);
  const isOver = graceSeconds > 0 && performance.now() - from >= graceSeconds * 1000;
  if (
    container.state !== 'running' ||
    !isOver ||
    (await docker.inspect(container.id, signal))?.exitCode !== KILLED
  )
    return;
  const text =
    `${container.name} did not end within ${graceSeconds} s after ${container.stopSignal} ` +
    '(stop_grace_seconds) and was killed: its first process ignores the signal, does not pass it ' +
    'on, or needs longer';
  logStep(step, text);
  note('killed', text);
}
