/** Why a new container did not come up, from what was seen: pure, so that every case is a row of a test. */
import type { Listener } from './listening.ts';
import type { ProbeAnswer } from './probe.ts';
import type { Container } from './tools/docker.ts';
import { TaskFailure } from './tools/failures.ts';

/** A container that stopped by itself (or never began) while it was probed. */
export function exitFailure(container: Pick<Container, 'exitCode' | 'oomKilled' | 'error'>, memoryBytes: number | null): TaskFailure {
  const limit = memoryBytes === null ? '' : ` of ${Math.round(memoryBytes / 1_048_576)} MiB`;
  // `--init` passes a signal's death on as 128 + its number.
  if (container.oomKilled || (container.exitCode === 137 && memoryBytes !== null)) {
    return new TaskFailure(
      'container_exited',
      `exit code ${container.exitCode}, it ran out of memory: it used more than its limit${limit}`,
    );
  }
  return new TaskFailure('container_exited', `exit code ${container.exitCode}${container.error === '' ? '' : ` (${container.error})`}`);
}

export type ProbeFacts = {
  containerPort: number;
  healthPath: string | null;
  probeSeconds: number;
  last: ProbeAnswer | null;
  /** Null: could not be seen. */
  listeners: readonly Listener[] | null;
};

/** A container that runs but was not found healthy in time. */
export function probeFailure(facts: ProbeFacts): TaskFailure {
  const { containerPort, last, listeners } = facts;
  const within = `within ${facts.probeSeconds} s`;
  if (last?.kind === 'status')
    return new TaskFailure(
      'health_check_failed',
      `GET ${facts.healthPath ?? '/'} was answered with status ${last.status}; below 400 is healthy`,
    );
  if (listeners === null)
    return new TaskFailure('probe_timeout', `no HTTP answer on port ${containerPort} ${within}; what listens inside could not be seen`);
  if (listeners.length === 0)
    return new TaskFailure('container_not_listening', `nothing listens ${within}; the project says port ${containerPort}`);

  const seen = listeners.map((l) => `${l.address.includes(':') ? `[${l.address}]` : l.address}:${l.port}`).join(', ');
  const there = listeners.filter((l) => l.port === containerPort);
  if (there.some((l) => !l.loopback)) {
    return new TaskFailure(
      'probe_timeout',
      `something listens on port ${containerPort}, but did not speak HTTP ${within}${last === null ? '' : ` (${last.message})`}`,
    );
  }
  if (there.length > 0)
    return new TaskFailure('container_loopback_only', `it listens on ${seen}; it must listen on 0.0.0.0:${containerPort}`);
  const too = listeners.every((l) => l.loopback) ? ', and on the loopback address only' : '';
  return new TaskFailure('container_wrong_port', `it listens on ${seen}${too}; the project says port ${containerPort}`);
}
