/** Explains why a new container did not become healthy. Pure, so that every case is a row of a test. */
import type { Listener } from './listening.ts';
import type { ProbeAnswer } from './probe.ts';
import type { Container } from './tools/docker.ts';
import { TaskFailure } from './tools/failures.ts';

/** For a container that exited, or never started, while it was probed. */
export function exitFailure(container: Pick<Container, 'exitCode' | 'oomKilled' | 'error'>, memoryBytes: number | null): TaskFailure {
  const limit = memoryBytes === null ? '' : ` of ${Math.round(memoryBytes / 1_048_576)} MiB`;
  // `--init` reports a death by signal as 128 + the number of the signal.
  if (container.oomKilled || (container.exitCode === 137 && memoryBytes !== null)) {
    return new TaskFailure(
      'container_exited',
      `exit code ${container.exitCode}, out of memory: the container exceeded its memory limit${limit}`,
    );
  }
  return new TaskFailure('container_exited', `exit code ${container.exitCode}${container.error === '' ? '' : ` (${container.error})`}`);
}

export type ProbeFacts = {
  containerPort: number;
  healthPath: string | null;
  probeSeconds: number;
  last: ProbeAnswer | null;
  /** Null if the listeners could not be read. */
  listeners: readonly Listener[] | null;
};

/** For a container that runs but was not healthy in time. */
export function probeFailure(facts: ProbeFacts): TaskFailure {
  const { containerPort, last, listeners } = facts;
  const within = `within ${facts.probeSeconds} s`;
  if (last?.kind === 'status')
    return new TaskFailure(
      'health_check_failed',
      `GET ${facts.healthPath ?? '/'} was answered with status ${last.status}; below 400 is healthy`,
    );
  if (listeners === null)
    return new TaskFailure(
      'probe_timeout',
      `no HTTP answer on port ${containerPort} ${within}; the listeners inside the container could not be read`,
    );
  if (listeners.length === 0)
    return new TaskFailure('container_not_listening', `no program listened ${within}; the project's container port is ${containerPort}`);

  const seen = listeners.map((l) => `${l.address.includes(':') ? `[${l.address}]` : l.address}:${l.port}`).join(', ');
  const onPort = listeners.filter((l) => l.port === containerPort);
  if (onPort.some((l) => !l.loopback)) {
    return new TaskFailure(
      'probe_timeout',
      `a program listens on port ${containerPort}, but did not answer HTTP ${within}${last === null ? '' : ` (${last.message})`}`,
    );
  }
  if (onPort.length > 0)
    return new TaskFailure('container_loopback_only', `the program listens on ${seen}; it must listen on 0.0.0.0:${containerPort}`);
  const too = listeners.every((l) => l.loopback) ? ', and on the loopback address only' : '';
  return new TaskFailure('container_wrong_port', `the program listens on ${seen}${too}; the project's container port is ${containerPort}`);
}
