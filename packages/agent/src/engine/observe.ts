/**
 * Observes the containers of this node: lists them at each registration, and watches the engine's
 * events in between.
 */
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import type { ObservedContainer } from '@berth/wire/node';
import { LABELS } from '@berth/wire/vocabulary';
import type { ListNodeContainers } from './node-ids.ts';
import { pause } from '../stopped.ts';
import type { Revival } from './revive.ts';
import type { Container, Docker } from './docker.ts';

const OUR_LABELS: readonly string[] = Object.values(LABELS);

export function toObserved(container: Container): ObservedContainer {
  return {
    id: container.id,
    name: container.name,
    // Labels of the image are left out: Berth does not use them, and there may be many.
    labels: Object.fromEntries(
      Object.entries(container.labels).filter(([name]) => OUR_LABELS.includes(name)),
    ),
    host_port: container.state === 'running' ? container.hostPort : null,
    port_fixed: container.fixedPort !== null,
    state: container.state,
    image: container.image,
    exit_code: container.state === 'running' ? null : container.exitCode,
    out_of_memory: container.state !== 'running' && container.oomKilled,
    started_at: container.startedAt,
    // The default limit of this node is not a limit of the project.
    memory_bytes:
      container.labels[LABELS.default_memory] === String(container.memoryBytes)
        ? null
        : container.memoryBytes,
    cpus: container.cpus,
  };
}

/**
 * Lists the containers and starts those that should run (revive.ts). Rejects if the engine does not
 * answer; that is not an empty list.
 */
export async function observe(
  list: ListNodeContainers,
  signal: AbortSignal,
  revive: Revival['revive'],
): Promise<Container[]> {
  const containers = await list({}, signal);
  return (await revive(containers, signal)) ? list({}, signal) : containers;
}

/** Events that change neither the state nor the port nor the health of a container. */
const IGNORED_EVENTS = /^(exec_|top|attach|resize|export|archive-path|extract-to-dir|copy|commit)/;
const DEBOUNCE_MS = 100;
/** A check may flap many times a second. */
const HEALTH_MS = 10_000;

export type ContainerWatch = {
  /** A container may have changed. */
  onChange: () => void;
  /** The kernel killed a process of this container. */
  onOutOfMemory?: (id: string) => void;
  /** The event stream broke: the engine may have stopped. */
  onBroken: () => void;
  /** Least time between two calls for changes of health alone. */
  healthMs?: number;
};

/**
 * Calls `onChange` 100 ms after a container changed, until the signal aborts. A broken event stream
 * is opened again with backoff.
 */
export async function watchContainers(
  docker: Docker,
  { onChange, onOutOfMemory, onBroken, healthMs = HEALTH_MS }: ContainerWatch,
  signal: AbortSignal,
  log: Logger,
): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  let healthTimer: NodeJS.Timeout | undefined;
  let nextHealthAt = 0;
  const wakeSoon = (): void =>
    void (timer ??= setTimeout(() => {
      timer = undefined;
      onChange();
    }, DEBOUNCE_MS));
  const onHealth = (): void =>
    void (healthTimer ??= setTimeout(
      () => {
        healthTimer = undefined;
        nextHealthAt = performance.now() + healthMs;
        wakeSoon();
      },
      Math.max(0, nextHealthAt - performance.now()),
    ));
  const onEvent = (action: string, id: string): void => {
    if (action === 'oom') onOutOfMemory?.(id);
    if (action.startsWith('health_status')) onHealth();
    else if (!IGNORED_EVENTS.test(action)) wakeSoon();
  };
  for (let attempt = 0; !signal.aborted; attempt += 1) {
    const since = performance.now();
    try {
      // Watch containers of all nodes: the own id may change meanwhile. An event of another node
      // costs one more registration.
      await docker.events({ [LABELS.node]: null }, onEvent, signal);
    } catch (error) {
      if (signal.aborted) break;
      log.warn({ err: error }, 'the stream of container events ended; reopening it');
    }
    if (signal.aborted) break;
    onBroken();
    if (performance.now() - since > 60_000) attempt = 0;
    await pause(backoff(attempt, { min: 500, max: 15_000 }), signal).catch(() => undefined);
    // Events were missed while the stream was closed: the engine may have restarted with other
    // ports.
    if (!signal.aborted) onChange();
  }
  clearTimeout(timer);
  clearTimeout(healthTimer);
}
